"""The grid of heads as part of a figure: its cells, with words or with signed values."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from attnviz.core.heads import Head, Layout, Site
from attnviz.drawing import charts
from attnviz.drawing.charts import open_sides
from attnviz.drawing.labels import shorten, tick_step
from attnviz.drawing.palette import mix
from attnviz.drawing.renderable import COLOR, Tile
from attnviz.drawing.signed import color, signed

Cell = tuple[float, float]  # width and height in inches

_SMALL: Cell = (0.17, 0.17)
_ACROSS, _DOWN = 32, 48  # grids of more heads or lines have small cells, with a colour alone


def is_small(across: int, down: int) -> bool:
    """Whether a grid of so many heads and lines has cells too small for text."""
    return across > _ACROSS or down > _DOWN


def cell_of(across: int, down: int, usual: Cell) -> Cell:
    """The cell of such a grid; ``usual`` where there is text in it."""
    return _SMALL if is_small(across, down) else usual


def numbered(
    axes: Axes, across: int, down: int, lines: Sequence[tuple[int, int]], legend: str, texts: str
) -> None:
    """Number heads above a grid and layers beside it, every few where cells are small."""
    small = is_small(across, down)
    every = tick_step(2) if small else 1
    axes.set_xlim(0, across)
    axes.set_ylim(down, 0)
    axes.set_xticks(
        [n + 0.5 for n in range(0, across, every)], list(map(str, range(0, across, every)))
    )
    some = [(y, layer) for y, layer in lines if layer % every == 0]
    axes.set_yticks([y + 0.5 for y, _ in some], [str(layer) for _, layer in some])
    axes.tick_params(length=0, labelsize=7)
    axes.xaxis.tick_top()
    said = f"{legend}; too many heads for {texts}" if small else legend
    axes.set_xlabel(said, fontsize=7, wrap=texts == "words")
    axes.set_ylabel("layer", fontsize=7)
    open_sides(axes)


_CELL, _SIGNED = (0.5, 0.27), (0.46, 0.27)
_EMPTY = "#f0f0f0"

Drawn = tuple[str, str, Mapping[str, Any]]  # the colour of a head, its text, and how that is set


def rows(layout: Layout) -> int:
    """Lines of cells that a grid needs: a layer each, and one between kinds of layers."""
    return sum(layout.layers(kind) for kind in layout.kinds) + len(layout.kinds) - 1


def columns(layout: Layout) -> int:
    """The most heads of any layer."""
    return max(max(layout.heads[kind]) for kind in layout.kinds)


def cell(layout: Layout, usual: Cell = _CELL) -> Cell:
    """Width and height of a head in inches."""
    return cell_of(columns(layout), rows(layout), usual)


def size(layout: Layout, usual: Cell = _CELL) -> tuple[float, float]:
    """Width and height of a grid in inches."""
    wide, high = cell(layout, usual)
    return columns(layout) * wide, rows(layout) * high


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
    most: float,
    *,
    orange: int,
    bold: Container[Head] = (),
    legend: str,
) -> None:
    """Draw what is more or less than nothing, some heads in bold."""
    cells = {
        head: (
            color(value, most, orange),
            signed(value),
            {"fontweight": "bold" if head in bold else "normal"},
        )
        for head, value in values.items()
    }
    _draw(axes, layout, cells, legend, "figures")


def _draw(axes: Axes, layout: Layout, cells: Mapping[Head, Drawn], legend: str, texts: str) -> None:
    """Draw layers downwards and heads across, into ``columns`` × ``rows`` cells."""
    wide, high = columns(layout), rows(layout)
    lines: dict[Site, int] = {}
    for kind in layout.kinds:
        first = len(lines) + len({site.kind for site in lines})
        lines |= {Site(kind, layer): first + layer for layer in range(layout.layers(kind))}
    for head, (paint, text, fonts) in cells.items():
        shown = "" if is_small(wide, high) else text
        charts.cell(axes, head.index, lines[head.site], paint, shown, **fonts)
    numbered(axes, wide, high, [(y, site.layer) for site, y in lines.items()], legend, texts)
