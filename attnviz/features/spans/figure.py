"""Heads and spans as a figure: shares with their lift, and a matrix or the right document."""

from __future__ import annotations

from itertools import count

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.core.heads import Head
from attnviz.core.result import Interval
from attnviz.core.spans import ELSEWHERE
from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import MARGIN, HeadedFigure, cell, name_bars, name_cells, share_bars
from attnviz.drawing.console import COLOR
from attnviz.drawing.labels import model_name, shorten, visible
from attnviz.drawing.palette import mix
from attnviz.features.spans.description import MARK, RULE_NAMES, measured, times, whose
from attnviz.features.spans.result import Spans, SpanWeights

_LISTED = 12  # heads, those with the largest lifts
_CELL, _LINE, _GAP, _BARS = (0.72, 0.24), 0.2, 0.7, 2.4
_NAME = 14  # cells of a span's name
_BASELINE = "#b0b0b0"
_EMPTY = "#f0f0f0"


@picture
def draw(result: Spans, dpi: float) -> Figure:
    """Draw heads by spans; beside them the best heads' documents, or a head's own matrix."""
    heads, sheet = listed(result), result.documents
    title = f"{model_name(result.source)}: share of the weight ({whose(result)}) on each span"
    names = [shorten(visible(name), _NAME) for name in result.names]
    bars = [] if sheet is None else _bars(result)
    page = HeadedFigure(title, [measured(result)], dpi, names)
    names, ruler = list(map(page.text, names)), page.ruler
    labels = [name for name, *_ in bars] if sheet is not None else names
    left = 0.1 + ruler.widest([result.layout.name(head.head) for head in heads], 7)
    middle = _GAP + ruler.widest(labels, 7)
    wide_1 = len(names) * _CELL[0]
    wide_2 = _BARS if sheet is not None else wide_1
    high_1 = len(heads) * _CELL[1]
    high_2 = len(bars) * _LINE if sheet is not None else len(names) * _CELL[1]
    width = 2 * MARGIN + left + wide_1 + middle + wide_2
    top = page.begin(width) + 0.5
    figure = page.figure(top + max(high_1, high_2) + 0.45 + MARGIN)
    _shares(page.axes(MARGIN + left, top, wide_1, high_1), result, heads, names)
    x = MARGIN + left + wide_1 + middle
    if sheet is not None:
        _documents(page.axes(x, top, wide_2, high_2), result, bars)
    elif heads:
        _matrix(page.axes(x, top, wide_2, high_2), result, heads[0], names)
    return figure


def listed(result: Spans) -> list[SpanWeights]:
    """Return the heads with the largest lifts; of documents, those that find the right one."""
    if result.documents is not None:
        own = {head.head: head for head in result.heads}
        return [own[head.head] for head in result.documents.ranked[:_LISTED]]
    by_head: dict[Head, SpanWeights] = {}
    for head, _, _ in result.ranked():
        by_head.setdefault(head.head, head)
    return list(by_head.values())[:_LISTED]


def _shares(axes: Axes, result: Spans, heads: list[SpanWeights], names: list[str]) -> None:
    for row, head in enumerate(heads):
        for column, (name, share) in enumerate(zip(result.names, head.shares, strict=True)):
            text = "" if share.mean is None else f"{100 * share.mean:.0f}"
            if text and name != ELSEWHERE:
                text += f" {times(share.lift)}"
            _cell(axes, row, column, share.mean, text)
    name_cells(axes, names, [result.layout.name(head.head) for head in heads])
    axes.set_xlabel("% of the weight, × chance", fontsize=7)


def _matrix(axes: Axes, result: Spans, head: SpanWeights, names: list[str]) -> None:
    for row, line in enumerate(head.matrix):
        for column, mean in enumerate(line):
            _cell(axes, row, column, mean, "" if mean is None else f"{100 * mean:.0f}")
    name_cells(axes, names, names)
    axes.set_xlabel(
        f"head {result.layout.name(head.head)}: % from each line to each span", fontsize=7
    )


def _cell(axes: Axes, row: int, column: int, share: float | None, text: str) -> None:
    paint = _EMPTY if share is None else mix("#ffffff", COLOR, share)
    cell(axes, column, row, paint, text)


def _bars(result: Spans) -> list[tuple[str, Interval, str]]:
    """Heads, then chance and the rules: name, accuracy with its interval, colour."""
    sheet = result.documents
    assert sheet is not None
    return [
        *(
            (result.layout.name(head.head) + MARK * (head.head in sheet.sure), head.accuracy, COLOR)
            for head in sheet.ranked[:_LISTED]
        ),
        ("chance", Interval(sheet.chance), _BASELINE),
        *((RULE_NAMES[rule.name], rule.accuracy, _BASELINE) for rule in sheet.rules),
    ]


def _documents(axes: Axes, result: Spans, bars: list[tuple[str, Interval, str]]) -> None:
    sheet = result.documents
    assert sheet is not None
    share_bars(axes, [(share, color) for _, share, color in bars], count(), 0.7)
    axes.set_xlim(0, 100)
    axes.axvline(100 * sheet.chance, color="#606060", linewidth=0.6, linestyle=":")
    names = [name for name, *_ in bars]
    name_bars(axes, names, f"% right document on {sheet.measured_on}, 95 % interval")
