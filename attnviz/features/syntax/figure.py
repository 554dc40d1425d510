"""A treebank's relations as a figure: best head against best offset, and the grid of heads."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.drawing.canvas import rendered
from attnviz.drawing.fonts import Ruler, choose, spelled
from attnviz.drawing.heading import Heading
from attnviz.drawing.labels import model_name, shorten, visible
from attnviz.drawing.tiles import COLOR, FULL, Tile
from attnviz.drawing.tiles_figure import draw_grid, size
from attnviz.features.syntax.result import Relation, Syntax
from attnviz.features.syntax.terminal import strongest
from attnviz.features.syntax.words import SHORT, measured

_OFFSET = "#b0b0b0"
_LISTED = 20
_BAR, _MARGIN, _BARS = 0.24, 0.2, 3.2


def draw(report: Syntax, format: str = "png", dpi: float = 150) -> Any:
    """The picture, in ``png``, ``svg`` or ``pdf``."""
    return rendered(lambda: build(report, dpi), format, dpi)


def build(report: Syntax, dpi: float) -> Figure:
    """The figure: bars of the most frequent relations, and the grid beside them."""
    grid_wide, grid_high = size(report.layout)
    listed = [r for r in report.relations if r.best and r.best.accuracy.value is not None]
    listed = listed[:_LISTED]
    names = [_name(report, relation) for relation in listed]
    title, below = f"{model_name(report.source)}: heads that follow grammar", measured(report)
    families, missing = choose([title, below, *names])
    title, below = spelled(title, missing), spelled(below, missing)
    ruler = Ruler(families, dpi, bold=len(choose([title])[0]) == 1)
    label = ruler.widest(names, 7) + 0.1
    wide = 2 * _MARGIN + label + _BARS + 0.6 + grid_wide
    heading = Heading(ruler, title, [below], wide, _MARGIN)
    top = _MARGIN + heading.high + 0.45
    body = max(len(listed) * _BAR, grid_high)
    high = top + body + 0.5 + _MARGIN
    figure = Figure(figsize=(wide, high), dpi=dpi)
    heading.draw(figure)

    def place(x: float, w: float, h: float) -> tuple[float, float, float, float]:
        return x / wide, 1 - (top + h) / high, w / wide, h / high

    bars = figure.add_axes(place(_MARGIN + label, _BARS, max(len(listed), 1) * _BAR))
    _bars(bars, listed, [spelled(name, missing) for name in names])
    x = _MARGIN + label + _BARS + 0.6
    tiles = {
        head: Tile(visible(role.relation), (role.margin.value or 0.0) / FULL)
        for head, role in strongest(report).items()
    }
    draw_grid(
        figure.add_axes(place(x, grid_wide, grid_high)),
        report.layout,
        tiles,
        f"head; the relation found ten points above its offset, full colour at {100 * FULL:.0f}",
    )
    return figure


def _name(report: Syntax, relation: Relation) -> str:
    assert relation.best is not None
    head = report.layout.name(relation.best.head)
    return f"{shorten(visible(relation.name), 16)}  {head} {SHORT[relation.best.direction]}"


def _bars(axes: Axes, listed: list[Relation], names: list[str]) -> None:
    for number, relation in enumerate(listed):
        best = relation.best
        assert best is not None
        accuracy = best.accuracy
        axes.barh(number - 0.17, 100 * (accuracy.value or 0.0), height=0.34, color=COLOR)
        axes.barh(number + 0.17, 100 * (best.offset_accuracy or 0.0), height=0.34, color=_OFFSET)
        if accuracy.low is not None and accuracy.high is not None:
            ends = [100 * accuracy.low, 100 * accuracy.high]
            axes.plot(ends, [number - 0.17] * 2, color="#1b1b1b", linewidth=1)
    axes.set_yticks(range(len(listed)), names)
    axes.set_ylim(len(listed) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel(
        "accuracy in % with 95 % interval (green: best head, grey: best offset)", fontsize=7
    )
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
