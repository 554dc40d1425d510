"""The figure of the layer × head grid."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from attnviz.core.heads import Head, Layout, Site
from attnviz.core.scores import ScoredHeads
from attnviz.drawing import charts, paper
from attnviz.drawing.charts import GREY, open_sides
from attnviz.drawing.console import COLOR, Tile
from attnviz.drawing.fonts import OWN, Ruler, choose, spelled
from attnviz.drawing.grid import Grid, color, few_note, grids, signed, tally
from attnviz.drawing.labels import model_name, origin, shorten, tick_step
from attnviz.drawing.palette import FEW, ink, mix
from attnviz.scoring.roles import drawn

if TYPE_CHECKING or not OWN:
    from matplotlib.axes import Axes
    from matplotlib.collections import PatchCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
else:
    from attnviz.drawing.plain import Axes, Figure, PatchCollection, Rectangle

_FADE = 0.75  # a score of 0 would keep this much less of the role's colour; paper is the ground
_EMPTY = "#f0f0f0"
_MARGIN, _GAP = 0.15, 0.4
_LINE = 0.2
_WIDEST = 13.0  # grids of several kinds of attention stand side by side up to this width, in inches


def tint(color: str, strength: float) -> str:
    """Return a role's colour on paper, paler for a lower score (0..1)."""
    return mix(color, "#ffffff", _FADE * (1.0 - strength))


def build(report: ScoredHeads, dpi: float) -> Figure:
    """Return the figure; see :func:`attnviz.drawing.figure.heads_figure`."""
    by_kind = grids(report)
    heads = max((grid.heads for grid in by_kind), default=1)
    cell_x, cell_y, size = (0.4, 0.26, 7.0) if heads <= 24 else (0.2, 0.17, 5.5)
    title = paper.current().titled(f"{model_name(report.source)}: head roles")
    below = origin(report)
    families, missing = choose([title, below])
    title, below = spelled(title, missing), spelled(below, missing)
    ruler = Ruler(families, dpi, bold=len(choose([title])[0]) == 1)
    entries = tally(report)
    side = 0.5
    top = 0.46 + (0.22 if by_kind and by_kind[0].title else 0.0)
    widths = [side + grid.heads * cell_x for grid in by_kind]
    heights = [grid.layers * cell_y for grid in by_kind]
    beside = sum(widths) + _GAP * (len(by_kind) - 1) <= _WIDEST
    block_x = sum(widths) + _GAP * (len(by_kind) - 1) if beside else max(widths)
    block_y = max(heights) if beside else sum(heights) + (top + 0.1) * (len(by_kind) - 1)
    names = [f"{name or 'no role'}  {count}" for name, count in entries]
    legend_x = max(ruler.widest(names, 8), 1.35) + 0.65
    legend_y = (len(entries) + 3 + bool(few_note(by_kind))) * _LINE
    body = max(block_x + 0.3 + legend_x, ruler.width(title, 11, title=True))
    lines = [line for text in paper.captions([below]) for line in ruler.wrapped(text, 7, body)]
    heading = 0.24 * bool(title) + len(lines) * 0.12
    width = body + 2 * _MARGIN
    height = _MARGIN + heading + top + max(block_y, legend_y) + _MARGIN
    figure = Figure(figsize=(width, height), dpi=dpi)
    figure.text(_MARGIN / width, (height - _MARGIN) / height, title, fontsize=11,
                fontweight=ruler.title_weight, family=families, va="top")  # fmt: skip
    for number, line in enumerate(lines):
        line_y = (height - _MARGIN - 0.24 * bool(title) - number * 0.12) / height
        figure.text(
            _MARGIN / width, line_y, line, fontsize=7, color=GREY, family=families, va="top"
        )
    x, y = _MARGIN, height - _MARGIN - heading - top
    for grid, grid_x, grid_y in zip(by_kind, widths, heights, strict=True):
        axes = figure.add_axes(
            ((x + side) / width, (y - grid_y) / height, (grid_x - side) / width, grid_y / height)
        )
        draw(axes, grid, size, short=cell_x < 0.3)
        if beside:
            x += grid_x + _GAP
        else:
            y -= grid_y + top + 0.1
    left = _MARGIN + block_x + 0.3
    floor = height - _MARGIN - heading - top - legend_y
    axes = figure.add_axes((left / width, floor / height, legend_x / width, legend_y / height))
    legend(axes, entries, legend_x, legend_y, few_note(by_kind), short=cell_x < 0.3)
    return figure


def draw(axes: Axes, grid: Grid, size: float, *, short: bool) -> None:
    """Draw the tiles of a grid, with the codes of their roles, or short ones."""
    tiles, colors = [], []
    for layer, row in enumerate(grid.cells):
        for head, cell in enumerate(row):
            if cell is None:
                continue
            color = _EMPTY
            if cell.role is not None:
                style = drawn(cell.role)
                color = tint(style.color, cell.strength)
                axes.text(head, layer, cell.code(2 if short else 5) + FEW * cell.few, ha="center",
                          va="center_baseline", fontsize=size, color=ink(color))  # fmt: skip
            tiles.append(Rectangle((head - 0.47, layer - 0.46), 0.94, 0.92))
            colors.append(color)
    axes.add_collection(PatchCollection(tiles, facecolors=colors, edgecolors="none", zorder=0))
    axes.set_xlim(-0.5, grid.heads - 0.5)
    axes.set_ylim(grid.layers - 0.5, -0.5)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=2, labelsize=7, labelcolor=GREY, top=True, labeltop=True)
    axes.tick_params(bottom=False, labelbottom=False)
    step_x = 1 if grid.heads <= 24 else tick_step(2)
    axes.set_xticks(range(0, grid.heads, step_x))
    axes.set_yticks(range(grid.layers))
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("head", fontsize=8, color=GREY, labelpad=3)
    axes.set_ylabel("layer", fontsize=8, color=GREY, labelpad=3)
    if grid.title:
        axes.set_title(grid.title, fontsize=9, loc="left", pad=6)


def legend(
    axes: Axes,
    entries: tuple[tuple[str | None, int], ...],
    width: float,
    height: float,
    few: str = "",
    *,
    short: bool,
) -> None:
    """Role, code and number of heads, and how colour follows the score; units are inches."""
    axes.set_xlim(0, width)
    axes.set_ylim(height, 0)
    axes.axis("off")
    for number, (name, count) in enumerate(entries):
        y = (number + 0.5) * _LINE
        style = drawn(name) if name else None
        color = style.color if style else _EMPTY
        axes.add_patch(Rectangle((0, y - 0.08), 0.4, 0.16, facecolor=color))
        if style:
            code = style.short if short else style.code
            axes.text(0.2, y, code, ha="center", va="center_baseline", fontsize=7, color=ink(color))
        axes.text(0.5, y, name or "no role", va="center_baseline", fontsize=8)
        axes.text(width, y, str(count), ha="right", va="center_baseline", fontsize=8)
    y = (len(entries) + 1) * _LINE
    axes.text(
        0, y, "role, else attention sink; colour by score", fontsize=7, color=GREY, va="center"
    )
    if few:
        axes.text(0, y + 2 * _LINE, few, fontsize=7, color=GREY, va="center")
    steps = 10
    strongest = next((name for name, _ in entries if name), None)
    if strongest is None:
        return
    for step in range(steps):
        color = tint(drawn(strongest).color, (step + 0.5) / steps)
        axes.add_patch(Rectangle((0.12 + 0.1 * step, y + 0.12), 0.101, 0.1, facecolor=color))
    axes.text(0.05, y + 0.17, "0", fontsize=7, color=GREY, va="center_baseline", ha="center")
    axes.text(1.19, y + 0.17, "1", fontsize=7, color=GREY, va="center_baseline", ha="center")


Cell = tuple[float, float]  # width and height in inches

_SMALL: Cell = (0.17, 0.17)
_ACROSS, _DOWN = 32, 48  # grids of more heads or lines have small cells, with a colour alone


def is_small(heads: int, lines: int) -> bool:
    """Whether a grid of so many heads and lines has cells too small for text."""
    return heads > _ACROSS or lines > _DOWN


def numbered(
    axes: Axes, heads: int, rows_: int, lines: Sequence[tuple[int, int]], legend: str, texts: str
) -> None:
    """Write the numbers of heads above a grid, of layers beside it, every few in small cells."""
    small = is_small(heads, rows_)
    step = tick_step(2) if small else 1
    axes.set_xlim(0, heads)
    axes.set_ylim(rows_, 0)
    axes.set_xticks([n + 0.5 for n in range(0, heads, step)], list(map(str, range(0, heads, step))))
    labelled = [(y, layer) for y, layer in lines if layer % step == 0]
    axes.set_yticks([y + 0.5 for y, _ in labelled], [str(layer) for _, layer in labelled])
    axes.tick_params(length=0, labelsize=7)
    axes.xaxis.tick_top()
    axis_label = f"{legend}; too many heads for {texts}" if small else legend
    axes.set_xlabel(axis_label, fontsize=7, wrap=texts == "words")
    axes.set_ylabel("layer", fontsize=7)
    open_sides(axes)


_CELL, _SIGNED = (0.5, 0.27), (0.46, 0.27)

Drawn = tuple[str, str, Mapping[str, Any]]  # the colour of a head, its text, and how that is set


def rows(layout: Layout) -> int:
    """Lines of cells that a grid needs: a layer each, and one between kinds of layers."""
    return sum(layout.layers(kind) for kind in layout.kinds) + len(layout.kinds) - 1


def columns(layout: Layout) -> int:
    """Return the most heads of any layer."""
    return max(max(layout.heads[kind]) for kind in layout.kinds)


def cell(layout: Layout, usual: Cell = _CELL) -> Cell:
    """Width and height of a head in inches; ``usual`` where there is text in it."""
    return _SMALL if is_small(columns(layout), rows(layout)) else usual


def size(layout: Layout, usual: Cell = _CELL) -> tuple[float, float]:
    """Width and height of a grid in inches."""
    width, height = cell(layout, usual)
    return columns(layout) * width, rows(layout) * height


def signed_size(layout: Layout) -> tuple[float, float]:
    """Width and height of a grid of signed values in inches."""
    return size(layout, _SIGNED)


def draw_grid(axes: Axes, layout: Layout, tiles: Mapping[Head, Tile], caption: str) -> None:
    """Draw what heads show, those without a tile empty."""

    def drawn(tile: Tile | None) -> Drawn:
        if tile is None:
            return _EMPTY, "", {}
        paint = mix("#ffffff", COLOR, min(max(tile.strength, 0.0), 1.0))
        return paint, shorten(tile.text, 8), {}

    _draw(axes, layout, {head: drawn(tiles.get(head)) for head in layout}, caption, "words")


def draw_signed(
    axes: Axes,
    layout: Layout,
    values: Mapping[Head, float],
    limit: float,
    *,
    orange: int,
    bold: Container[Head] = (),
    legend: str,
) -> None:
    """Draw what is more or less than nothing, some heads in bold."""
    cells = {
        head: (
            color(value, limit, orange),
            signed(value),
            {"fontweight": "bold" if head in bold else "normal"},
        )
        for head, value in values.items()
    }
    _draw(axes, layout, cells, legend, "figures")


def _draw(axes: Axes, layout: Layout, cells: Mapping[Head, Drawn], legend: str, texts: str) -> None:
    """Draw layers downwards and heads across, into ``columns`` × ``rows`` cells."""
    across, down = columns(layout), rows(layout)
    lines: dict[Site, int] = {}
    for kind in layout.kinds:
        first = len(lines) + len({site.kind for site in lines})
        lines |= {Site(kind, layer): first + layer for layer in range(layout.layers(kind))}
    for head, (paint, text, fonts) in cells.items():
        inside = "" if is_small(across, down) else text
        charts.cell(axes, head.index, lines[head.site], paint, inside, **fonts)
    numbered(axes, across, down, [(y, site.layer) for site, y in lines.items()], legend, texts)
