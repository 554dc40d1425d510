"""Sources as a figure: the matrix with the sums of both sides at its edges; shares as bars."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.drawing import charts
from attnviz.drawing.canvas import picture
from attnviz.drawing.grid import BLUE, ORANGE, color, signed
from attnviz.drawing.labels import model_name
from attnviz.features.sources import description as words
from attnviz.features.sources.result import ScoreSide, Sources, SourceShares

_CELL = (0.5, 0.27)
_BARS = 1.3  # of the sums, in inches
_GAP = 0.12
_LINE = 0.2
_WIDE = 2.6
_LISTED = 12


@picture
def draw(result: Sources | SourceShares, dpi: float) -> Figure:
    """Give the matrix: sources of the query downwards, of the key across, sums beside and below."""
    if isinstance(result, SourceShares):
        return _shares(result, dpi)
    rows, columns, values = words.grouped(result)
    title = f"{model_name(result.source)}: {words.subject(result)}"
    below = [words.checked(result), words.sentence(result)]
    sheet = charts.HeadedFigure(title, below, dpi)
    ruler = sheet.ruler
    left = 0.35 + ruler.widest(rows, 7)
    above = 0.3 + ruler.widest(columns, 7)
    wide_grid, high_grid = len(columns) * _CELL[0], len(rows) * _CELL[1]
    width = 2 * charts.MARGIN + max(left + wide_grid + _GAP + _BARS, 5.2)
    top = sheet.begin(width) + 0.2 + above
    figure = sheet.figure(top + high_grid + _GAP + _BARS + 0.2 + charts.MARGIN)
    x = charts.MARGIN + left
    _grid(sheet.axes(x, top, wide_grid, high_grid), rows, columns, values)
    of_query = [sum(row) for row in values]
    of_key = [sum(column) for column in zip(*values, strict=True)]
    _sums(sheet.axes(x + wide_grid + _GAP, top, _BARS, high_grid), of_query, "query side",
          upright=False)  # fmt: skip
    _sums(sheet.axes(x, top + high_grid + _GAP, wide_grid, _BARS), of_key, "key side", upright=True)
    return figure


def _shares(result: SourceShares, dpi: float) -> Figure:
    """Return the shares of both sides, with their intervals."""
    title = f"{model_name(result.source)}: where {result.name} finds its keys"
    below = [words.rows_of(result), words.shares_sentence(result)]
    sides: tuple[ScoreSide, ...] = ("key", "query")
    listed = {side: result.side(side)[:_LISTED] for side in sides}
    names = {side: [words.label(result, share.origin) for share in listed[side]] for side in sides}
    sheet = charts.HeadedFigure(title, below, dpi)
    ruler = sheet.ruler
    left = [0.35 + ruler.widest(names[side], 7) for side in sides]
    width = 2 * charts.MARGIN + sum(left) + 2 * _WIDE + 0.3
    top = sheet.begin(width) + 0.35
    list_height = max(len(listed[side]) for side in sides) * _LINE
    figure = sheet.figure(top + list_height + 0.55 + charts.MARGIN)
    x = charts.MARGIN
    for side, room in zip(sides, left, strict=True):
        x += room
        height = len(listed[side]) * _LINE
        axes = sheet.axes(x, top, _WIDE, height)
        for number, share in enumerate(listed[side]):
            paint = BLUE if share.share > 0 else ORANGE
            axes.barh(number, 100 * share.share, height=0.62, color=paint)
            charts.interval(axes, (share.low, share.high), number, times=100, color="black")
        axes.set_yticks(range(len(names[side])), names[side])
        axes.set_ylim(len(names[side]) - 0.4, -0.6)
        axes.set_xlabel(f"% of the contrast, by source of the {side}", fontsize=7)
        _plain(axes)
        axes.axvline(0, color=charts.GREY, linewidth=0.5)
        x += _WIDE + 0.3
    return figure


def _grid(axes: Axes, rows: list[str], columns: list[str], values: list[list[float]]) -> None:
    largest = max((abs(value) for row in values for value in row), default=0.0)
    for y, row in enumerate(values):
        for x, value in enumerate(row):
            paint = color(value, largest, words.UP)
            charts.cell(axes, x, y, paint, signed(value, 2, 2))
    charts.name_cells(axes, columns, rows)
    axes.tick_params(axis="x", labelrotation=90)
    axes.xaxis.set_label_position("top")
    axes.set_ylabel("source of the query", fontsize=7)
    axes.set_xlabel("source of the key", fontsize=7)


def _sums(axes: Axes, values: list[float], legend: str, *, upright: bool) -> None:
    """Bars of what the sources of a side add, in the order of the grid."""
    places = [n + 0.5 for n in range(len(values))]
    paints = [BLUE if value > 0 else ORANGE for value in values]
    if upright:
        axes.bar(places, values, width=0.62, color=paints)
        axes.set_xlim(0, len(values))
        axes.axhline(0, color=charts.GREY, linewidth=0.5)
        axes.set_xticks([])
        axes.set_ylabel(legend, fontsize=7)
    else:
        axes.barh(places, values, height=0.62, color=paints)
        axes.set_ylim(len(values), 0)
        axes.axvline(0, color=charts.GREY, linewidth=0.5)
        axes.set_yticks([])
        axes.set_xlabel(legend, fontsize=7)
    _plain(axes)


def _plain(axes: Axes) -> None:
    axes.tick_params(length=0, labelsize=7)
    charts.open_sides(axes, "top", "right", "left")
