"""An explanation as a figure: what adds up to the lead, votes, then heads one by one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure

from attnviz.drawing import grid_figure
from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import GREY, MARGIN, HeadedFigure
from attnviz.drawing.fonts import Ruler, spelled
from attnviz.drawing.grid import BLUE, ORANGE, signed
from attnviz.drawing.labels import percent, shorten, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors, masked_color
from attnviz.drawing.palette import UNSELECTED as NOT_SELECTED
from attnviz.drawing.paper import BASE_FAMILY
from attnviz.features.explain import description
from attnviz.features.explain.result import BLOCKED, UNSELECTED, Explain, ExplainedHead
from attnviz.features.logits.description import UP

_LINE = 0.2
_BARS = 1.7  # of a chart of bars, in inches
_MAP = 2.2
_BETWEEN = 0.5
_LISTED = 8  # tokens that are shown by what came through them
_LONGEST = 14  # cells of a token
_LABELLED = 40  # tokens that are written at a map, at most
_ACROSS = 3  # heads beside each other
_DRAWN = (
    "Maps: queries downwards, keys across, coloured by the square root of the weight; grey is not "
    "allowed, the row of the prediction is framed."
)
_SELECTED = " Pink: the layer's indexer did not select the key."

Bars = Sequence[tuple[str, float, str]]  # a name, a value and how it is written


@picture
def draw(result: Explain, dpi: float) -> Figure:
    """Draw the figure: what is said of all parts above, heads below, three to a row."""
    tokens = _short(result.tokens)
    keys = [token for head in result.shown_heads for token in _short(head.tokens)]
    title = description.title(result)
    selects = any(UNSELECTED in row for head in result.shown_heads for row in head.map)
    limit = _DRAWN + _SELECTED * selects
    below = [
        description.said(result),
        *description.summary(result),
        description.measured(result),
        limit,
    ]
    sheet = HeadedFigure(title, below, dpi, [*tokens, *keys])
    tokens, ruler, families = list(map(sheet.text, tokens)), sheet.ruler, sheet.families
    charts = [*_charts(result, tokens, sheet.missing)]
    lefts = [0.15 + ruler.widest([name for name, _, _ in bars], 7) for _, bars in charts]
    votes = result.votes()
    grid_wide, grid_high = grid_figure.signed_size(result.layout) if votes else (0.0, 0.0)
    grid_wide += 0.5 if votes else 0.0
    names = [key.origin.name(result.layout) for head in result.shown_heads for key in head.keys]
    label = max(ruler.widest([*tokens, *map(sheet.text, keys)], 6), ruler.widest(names, 7)) + 0.12
    mapped = bool(result.heads[0].map)
    column = label + _MAP
    heads = result.shown_heads
    lines = [heads[n : n + _ACROSS] for n in range(0, len(heads), _ACROSS)]
    head_wide = min(len(heads), _ACROSS) * (column + _BETWEEN) - _BETWEEN
    top_wide = grid_wide + sum(lefts) + len(charts) * (_BARS + _BETWEEN)
    width = 2 * MARGIN + max(top_wide, head_wide, 6.0)
    height = max(grid_high, *(len(bars) * _LINE for _, bars in charts)) + 0.45
    top = sheet.begin(width) + 0.45
    second = top + height + 0.1
    map_high = _MAP + label if mapped else 0.0
    sources = max(1, *(len(head.keys) for head in heads)) * _LINE
    line_high = 0.5 + map_high + 0.2 + sources + 0.35
    figure = sheet.figure(second + len(lines) * line_high + MARGIN)
    x = MARGIN
    if votes:
        grid_figure.draw_signed(
            sheet.axes(x + 0.4, top, grid_wide - 0.5, grid_high), result.layout, votes,
            max(map(abs, votes.values())), orange=UP,
            bold={head.head for head in result.heads},
            legend="votes of heads for the lead (blue: for the answer)",
        )  # fmt: skip
        x += grid_wide + 0.2
    for (legend, bars), left in zip(charts, lefts, strict=True):
        x += left
        _bars(sheet.axes(x, top, _BARS, len(bars) * _LINE), bars, legend, families)
        x += _BARS + _BETWEEN
    high = figure.get_size_inches()[1]
    for number, head in enumerate(heads):
        line, slot = divmod(number, _ACROSS)
        x, y = MARGIN + slot * (column + _BETWEEN), second + line * line_high
        _told(figure, (x / width, 1 - y / high), result, head, ruler, column + 0.4)
        y += 0.5
        if mapped:
            _map(sheet.axes(x + label, y + label, _MAP, _MAP), result, head, sheet)
            y += map_high
        _keys(sheet.axes(x + label, y + 0.1, _MAP - 0.3, sources), result, head)
    return figure


def _short(tokens: Sequence[str]) -> list[str]:
    return [shorten(visible(token), _LONGEST) for token in tokens]


def _charts(result: Explain, tokens: list[str], missing: frozenset[str]) -> list[tuple[str, Bars]]:
    """Return what is predicted, what adds up to its lead, and the votes through each token."""
    predicted = [
        (spelled(visible(word.token), missing), word.probability, percent(word.probability))
        for word in result.predictions
    ]
    through = [
        (f"{tokens[n]} ({n})", value, signed(value))
        for n, value in (result.through_tokens()[:_LISTED] if result.by_token else ())
    ]
    parts: Bars = [(name, value, signed(value)) for name, value in description.bars(result)]
    charts: list[tuple[str, Bars]] = [
        ("what it predicts", predicted),
        ("what adds up to its lead", parts),
        ("votes through tokens", through),
    ]
    return [chart for chart in charts if chart[1]]


def _bars(axes: Axes, bars: Bars, legend: str, families: list[str]) -> None:
    values = [value for _, value, _ in bars]
    for number, (_, value, text) in enumerate(bars):
        axes.barh(number, value, height=0.62, color=BLUE if value > 0 else ORANGE)
        axes.annotate(text, (max(value, 0.0), number), (3, 0), textcoords="offset points",
                      fontsize=6, va="center")  # fmt: skip
    axes.set_yticks(range(len(bars)), [name for name, _, _ in bars], family=families)
    axes.set_xlabel(legend, fontsize=7)
    axes.set_ylim(len(bars) - 0.4, -0.6)
    axes.axvline(0, color=GREY, linewidth=0.5)
    ends = [min(0.0, *values), max(0.0, *values)]
    room = (ends[1] - ends[0] or 1) / 3  # for what is written behind a bar
    axes.set_xlim(ends[0], ends[1] + room)
    axes.set_xticks([])
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.spines[:].set_visible(False)


def _told(
    figure: Figure,
    corner: tuple[float, float],
    result: Explain,
    head: ExplainedHead,
    ruler: Ruler,
    room: float,
) -> None:
    """Write the name of a head, where it looks, and what happens without it."""
    vote = "" if head.vote is None else f": vote {signed(head.vote)}"
    figure.text(*corner, f"head {result.layout.name(head.head)}{vote}", fontsize=8.5, va="top",
                fontweight="bold", family=ruler.families)  # fmt: skip
    looks = f"looks at {description.most(head)}"
    caption = f"change of the lead without it: {description.changes(head.effect)}"
    lines = "\n".join((looks, *ruler.wrapped(caption, 6.5, room)))
    step = 0.15 / figure.get_size_inches()[1]
    figure.text(corner[0], corner[1] - step, lines, fontsize=6.5, va="top", color=GREY,
                family=ruler.families, linespacing=1.3)  # fmt: skip


def _map(axes: Axes, result: Explain, head: ExplainedHead, sheet: HeadedFigure) -> None:
    """All its weights, by their square root; the row of the prediction marked."""
    cells = np.array(head.map)
    weights = np.where(cells == UNSELECTED, -1, np.sqrt(cells.clip(0) / 1000))
    colors = LinearSegmentedColormap.from_list(DEFAULT_PALETTE, anchors(DEFAULT_PALETTE))
    axes.imshow(
        np.ma.array(weights, mask=cells == BLOCKED),
        cmap=colors.with_extremes(bad=masked_color(DEFAULT_PALETTE), under=NOT_SELECTED),
        vmin=0, vmax=1, interpolation="nearest", aspect="auto",
    )  # fmt: skip
    if head.query is not None:
        axes.axhspan(head.query - 0.5, head.query + 0.5, fill=False, edgecolor=ORANGE)
    queries = head.tokens if head.query is None else result.tokens
    for axis, tokens in ((axes.xaxis, head.tokens), (axes.yaxis, queries)):
        labelled = len(tokens) <= _LABELLED
        axis.set_ticks(range(len(tokens)) if labelled else [])
        axis.set_ticklabels(
            map(sheet.text, _short(tokens)) if labelled else [], family=sheet.families
        )
    axes.tick_params(axis="x", rotation=90)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, labelsize=6, pad=2)
    axes.spines[:].set_visible(False)


def _keys(axes: Axes, result: Explain, head: ExplainedHead) -> None:
    """Where its key comes from, or why that cannot be said."""
    if not head.keys:
        axes.text(0, 0.9, "where its key comes from cannot be told", fontsize=6.5, color=GREY,
                  va="top", transform=axes.transAxes)  # fmt: skip
        axes.axis("off")
        return
    known = all(key.share is not None for key in head.keys)
    values = [(key.share if known else None) or key.value for key in head.keys]
    bars = [
        (key.origin.name(result.layout), value, f"{100 * value:.0f} %" if known else signed(value))
        for key, value in zip(head.keys, values, strict=True)
    ]
    _bars(axes, bars, "its key comes from", [BASE_FAMILY])
