"""Thoughts as a figure: the sentences of a trace with arcs from what each needs, and the heads."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc

from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import GREY, INK, MARGIN, HeadedFigure, interval, name_bars, open_sides
from attnviz.drawing.grid import BLUE, ORANGE
from attnviz.drawing.labels import counted, shorten, visible
from attnviz.features.thoughts import words
from attnviz.features.thoughts.result import Thoughts, Trace

_ROW, _BARS, _ARCS, _GAP = 0.17, 0.85, 0.7, 0.15
_TEXT, _HEADS = 44, 8
_OF_HEAD = 0.5
_READ = "#9aa3ad"
"""Attention beside effects, as in other pictures."""


@picture
def draw(result: Thoughts, dpi: float) -> Figure:
    """Give the figure: sentences with bars and arcs above, the heads of largest kurtosis below."""
    trace, heads = result.traces[0], result.ranked()[:_HEADS]
    names = [
        f"{words.number(trace, n)}  {shorten(visible(sentence.text), _TEXT)}"
        for n, sentence in enumerate(trace.sentences)
    ]
    of = f"the first of {counted(len(result.traces), 'trace')}" * (len(result.traces) > 1)
    below = [words.sentence(result), words.measure(result), *([of] if of else [])]
    page = HeadedFigure(words.title(result), below, dpi, names)
    names = list(map(page.text, names))
    left, bars = page.ruler.widest(names, 7) + 0.1, 1 + result.causal + bool(result.resampled)
    arcs = _ARCS if result.causal else 0.0
    width = 2 * MARGIN + arcs + left + bars * (_BARS + _GAP)
    top, high = page.begin(width) + 0.3, len(names) * _ROW
    under = len(heads) * _ROW + 0.75 if heads else 0.0
    figure = page.figure(top + high + 0.45 + under + MARGIN)
    x = MARGIN + arcs + left
    if arcs:
        _arcs(page.axes(MARGIN, top, arcs, high), trace)
    _name(page.axes(MARGIN + arcs, top, left, high), names)
    if result.causal:
        importance = trace.importance(result.apart)
        _bars(page.axes(x, top, _BARS, high), importance, "needed, log KL")
        x += _BARS + _GAP
    if result.resampled:
        anew = page.axes(x, top, _BARS, high)
        _bars(anew, [row.effect for row in trace.resampled], "resampled, nats")
        for place, row in enumerate(trace.resampled):
            if row.joint_low is not None and row.joint_high is not None:
                interval(anew, (row.joint_low, row.joint_high), place)
        x += _BARS + _GAP
    _bars(page.axes(x, top, _BARS, high), trace.read, "read, weight", _READ)
    if heads:
        inside = (MARGIN + _OF_HEAD, top + high + 0.75, width - 2 * MARGIN - _OF_HEAD)
        _kurtosis(page.axes(*inside, len(heads) * _ROW), result)
    return figure


def _name(axes: Axes, names: Sequence[str]) -> None:
    """Write the sentences, beside their bars."""
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.axis("off")
    for n, name in enumerate(names):
        axes.text(0, n, name, fontsize=7, va="center")


def _bars(axes: Axes, values: Sequence[float | None], label: str, paint: str = "") -> None:
    for n, value in enumerate(values):
        if value is not None:
            axes.barh(n, value, height=0.66, color=paint or (BLUE if value > 0 else ORANGE))
    axes.set_ylim(len(values) - 0.4, -0.6)
    axes.set_yticks([])
    axes.axvline(0, color=GREY, linewidth=0.5)
    axes.tick_params(axis="x", labelsize=6)
    axes.locator_params(axis="x", nbins=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:.2g}".replace("-", "−"))
    axes.set_xlabel(label, fontsize=7)
    open_sides(axes, "top", "right", "left")


def _arcs(axes: Axes, trace: Trace) -> None:
    """From each sentence to the one that it needs most, the darker the more."""
    count = len(trace.sentences)
    pairs = [(n, *trace.feeds(n, 1)[0]) for n in range(count) if trace.feeds(n, 1)]
    largest = max((value for _, _, value in pairs), default=1.0)
    axes.set_xlim(-1, 0)
    axes.set_ylim(count - 0.4, -0.6)
    far = max((later - earlier for later, earlier, _ in pairs), default=1)
    for later, earlier, value in pairs:
        span = later - earlier
        axes.add_patch(
            Arc((-0.02, (later + earlier) / 2), 1.9 * (span / far) ** 0.5, span, theta1=90,
                theta2=270, color=BLUE, alpha=0.25 + 0.75 * value / largest, linewidth=1)
        )  # fmt: skip
    axes.axis("off")


def _kurtosis(axes: Axes, result: Thoughts) -> None:
    heads = result.ranked()[:_HEADS]
    for y, head in enumerate(heads):
        axes.barh(y, head.kurtosis or 0.0, height=0.62, color=_READ)
        if head.control is not None and head.joint_low is not None and head.joint_high is not None:
            ends = (head.control + head.joint_low, head.control + head.joint_high)
            interval(axes, ends, y)
    controls = [(head.control, n) for n, head in enumerate(heads) if head.control is not None]
    if controls:
        axes.scatter(
            [value for value, _ in controls], [y for _, y in controls], s=14, marker="o",
            facecolor="white", edgecolor=INK, linewidths=0.8, zorder=3,
        )  # fmt: skip
    axes.axvline(0, color=GREY, linewidth=0.5)
    names = [result.layout.name(head.head) + words.MARK * bool(head.sure) for head in heads]
    ring = "; ring: sentences in random order" if controls else ""
    lines = "; lines: joint 95 %" if any(words.ends(head) for head in heads) else ""
    name_bars(axes, names, f"kurtosis{ring}{lines}")
