"""Needles as a figure: lengths and depths, the first heads, and what is lost without them."""

from __future__ import annotations

from itertools import count

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.drawing import charts
from attnviz.drawing.canvas import picture
from attnviz.drawing.console import COLOR
from attnviz.drawing.description import plain_percent
from attnviz.drawing.palette import mix
from attnviz.features.retrieval.description import (
    BY,
    control_line,
    depth_label,
    main_score,
    measured,
    title,
)
from attnviz.features.retrieval.result import LEAST_COPIED, Retrieval

_LISTED = 12
_CELL = (0.5, 0.3)
_LINE, _GAP, _BARS, _LOST = 0.2, 0.75, 2.2, 2.2
_EMPTY, _GREY = "#f0f0f0", "#909090"
_FIRST = "#c4500a"


@picture
def draw(result: Retrieval, dpi: float) -> Figure:
    """Give the figure: grids of cells to the left, heads in the middle, ablations to the right."""
    below = [measured(result), control_line(result)]
    heads = [result.layout.name(head.head) for head in result.heads[:_LISTED]]
    sheet = charts.HeadedFigure(title(result), list(filter(None, below)), dpi, heads)
    ruler = sheet.ruler
    panels = 2 if result.generates else 1
    wide_1 = len(result.lengths) * _CELL[0]
    high_1 = len(result.depths) * _CELL[1]
    left = 0.15 + ruler.widest([depth_label(depth) for depth in result.depths], 7) + 0.15
    middle = _GAP + ruler.widest(heads, 7)
    right = _GAP if result.ablations else 0.0
    wide_3 = _LOST if result.ablations else 0.0
    width = max(2 * charts.MARGIN + left + wide_1 + middle + _BARS + right + wide_3, 5.0)
    top = sheet.begin(width) + 0.55
    height = max(panels * high_1 + (panels - 1) * 0.75, len(heads) * _LINE, 1.8)
    figure = sheet.figure(top + height + 0.5 + charts.MARGIN)
    first = result.layout.name(result.heads[0].head)
    x, y = charts.MARGIN + left, top
    if result.generates:
        values = {(c.length, c.depth): c.accuracy for c in result.cells}
        _cells(sheet.axes(x, y, wide_1, high_1), result, values, "needles retrieved, %")
        y += high_1 + 0.75
    by_head = {
        (c.length, c.depth): c.copied if result.by == "copied" else c.query for c in result.cells
    }
    score = "copied" if result.by == "copied" else "weight"
    _cells(sheet.axes(x, y, wide_1, high_1), result, by_head, f"head {first}: {score}, %")
    x += wide_1 + middle
    _heads(sheet.axes(x, top, _BARS, max(len(heads) * _LINE, 0.4)), result)
    if result.ablations:
        _ablations(sheet.axes(x + _BARS + right, top, _LOST, height), result)
    return figure


def _cells(
    axes: Axes, result: Retrieval, values: dict[tuple[int, float], float | None], label: str
) -> None:
    for column, length in enumerate(result.lengths):
        for row, depth in enumerate(result.depths):
            value = values[length, depth]
            paint = _EMPTY if value is None else mix("#ffffff", COLOR, min(max(value, 0.0), 1.0))
            charts.cell(axes, column, row, paint, plain_percent(value), 6.5)
    charts.name_cells(
        axes, [f"{n:,}" for n in result.lengths], [depth_label(d) for d in result.depths]
    )
    axes.set_title(f"{label}\nby tokens and depth", fontsize=7, loc="left")


def _heads(axes: Axes, result: Retrieval) -> None:
    listed = result.heads[:_LISTED]
    charts.share_bars(axes, [(main_score(result, head), COLOR) for head in listed], count(), 0.7)
    level, label = (result.chance, "chance") if result.by == "copied" else (0.0, "")
    if level:
        axes.axvline(100 * level, color=_GREY, linewidth=0.8, linestyle="dotted")
        axes.axvline(100 * LEAST_COPIED, color=_GREY, linewidth=0.8, linestyle="dashed")
        label = f"; dotted: chance, dashed: {100 * LEAST_COPIED:.0f} %"
    axes.set_xlim(right=100)
    names = [result.layout.name(head.head) for head in listed]
    charts.name_bars(axes, names, f"{BY[result.by]}, %\n95 % interval{label}")


def _ablations(axes: Axes, result: Retrieval) -> None:
    sizes = [0, *[len(ablation.heads) for ablation in result.ablations]]
    first = [result.accuracy, *[ablation.accuracy for ablation in result.ablations]]
    levels = [result.accuracy, *[ablation.random for ablation in result.ablations]]
    for shares, color, label, shift in (
        (first, _FIRST, "the first", -0.04),
        (levels, _GREY, f"others, {result.ablations[0].draws} draws", 0.04),
    ):
        places = [x + shift for x in range(len(sizes))]
        axes.plot(places, [100 * (s.value or 0.0) for s in shares], "o-", color=color, label=label,
                  markersize=4, linewidth=1.2)  # fmt: skip
        for x, share in zip(places, shares, strict=True):
            charts.interval(axes, (share.low, share.high), x, times=100, color=color, upright=True)
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_ylim(-3, 103)
    charts.name_axes(axes, "heads ablated together", "needles retrieved, %, 95 % interval")
