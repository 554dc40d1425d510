"""A treebank's relations as a figure: best head against best offset, and the grid of heads."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import interval, name_bars
from attnviz.drawing.headed import MARGIN, HeadedFigure
from attnviz.drawing.labels import model_name, shorten, visible
from attnviz.drawing.tiles import COLOR, FULL, Tile
from attnviz.drawing.tiles_figure import draw_grid, size
from attnviz.features.syntax.arcs import SHORT
from attnviz.features.syntax.description import measured, strongest
from attnviz.features.syntax.result import Relation, Syntax

_OFFSET = "#b0b0b0"
_LISTED = 20
_BAR, _BARS = 0.24, 3.2


@picture
def draw(report: Syntax, dpi: float) -> Figure:
    """The figure: bars of the most frequent relations, and the grid beside them."""
    grid_wide, grid_high = size(report.layout)
    listed = [r for r in report.relations if r.best and r.best.accuracy.value is not None]
    listed = listed[:_LISTED]
    names = [_name(report, relation) for relation in listed]
    title = f"{model_name(report.source)}: heads that follow grammar"
    sheet = HeadedFigure(title, [measured(report)], dpi, names)
    label = sheet.ruler.widest(names, 7) + 0.1
    wide = 2 * MARGIN + label + _BARS + 0.6 + grid_wide
    top = sheet.begin(wide) + 0.45
    body = max(len(listed) * _BAR, grid_high)
    figure = sheet.figure(top + body + 0.5 + MARGIN)
    bars = sheet.axes(MARGIN + label, top, _BARS, max(len(listed), 1) * _BAR)
    _bars(bars, listed, [sheet.text(name) for name in names])
    x = MARGIN + label + _BARS + 0.6
    tiles = {
        head: Tile(visible(role.relation), (role.margin.value or 0.0) / FULL)
        for head, role in strongest(report).items()
    }
    draw_grid(
        sheet.axes(x, top, grid_wide, grid_high),
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
        interval(axes, (accuracy.low, accuracy.high), number - 0.17, times=100)
    axes.set_xlim(0, 100)
    label = "accuracy in % with 95 % interval (green: best head, grey: best offset)"
    name_bars(axes, names, label)
