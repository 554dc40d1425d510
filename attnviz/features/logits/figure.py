"""A logit as a figure: the grid of heads, the waterfall, and what came through each token."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.drawing import grid_figure
from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import GREY, MARGIN, HeadedFigure, interval, name_bars
from attnviz.drawing.grid import BLUE, ORANGE, signed
from attnviz.drawing.labels import model_name, shorten, visible
from attnviz.errors import UsageError
from attnviz.features.logits.description import UP, checked, measured, said_of, steps, sums_by_token
from attnviz.features.logits.result import Logits, Writers

_LINE = 0.2
_WIDE = 2.9  # of the waterfall and of the bars, in inches
_LISTED = 12  # tokens that are shown
_LONGEST = 20  # cells of a token


@picture
def draw(report: Logits | Writers, dpi: float) -> Figure:
    """Draw the grid, the waterfall beside it, then the tokens that heads voted through."""
    if isinstance(report, Writers):
        return _writers(report, dpi)
    if not report.parts:
        raise UsageError(f"no parts to draw: {report.reason}")
    layout, bars = report.layout, steps(report)
    title = f"{model_name(report.source)}: what adds to the logit of {visible(report.token)}"
    through = [
        (f"{shorten(visible(report.tokens[n]), _LONGEST)} ({n})", value)
        for n, value, _ in list(sums_by_token(report))[:_LISTED]
    ]
    sheet = HeadedFigure(title, [checked(report)], dpi, [name for name, _ in through])
    through = [(sheet.text(name), value) for name, value in through]
    ruler = sheet.ruler
    grid_wide, grid_high = grid_figure.signed_size(layout)
    steps_left = 0.45 + ruler.widest([step.label for step in bars], 7)
    through_left = 0.6 + ruler.widest([name for name, _ in through], 7)
    width = 2 * MARGIN + 0.5 + grid_wide + steps_left + _WIDE + through_left + _WIDE
    top = sheet.begin(width) + 0.4
    body_high = max(grid_high, len(bars) * _LINE, len(through) * _LINE) + 0.45
    figure = sheet.figure(top + body_high + MARGIN)
    x = MARGIN + 0.5
    values = report.heads()
    grid_figure.draw_signed(
        sheet.axes(x, top, grid_wide, grid_high), layout, values,
        max(map(abs, values.values()), default=0.0), orange=UP,
        legend="head (blue raises, orange lowers)",
    )  # fmt: skip
    x += grid_wide + steps_left
    _waterfall(sheet.axes(x, top, _WIDE, len(bars) * _LINE), report)
    x += _WIDE + through_left
    axes = sheet.axes(x, top, _WIDE, len(through) * _LINE)
    _bars(axes, through, "logits that all heads add through a token", sheet.families)
    return figure


def _writers(report: Writers, dpi: float) -> Figure:
    """Draw what pushes up and what pushes down, or the largest parts where none does."""
    raising, lowering = report.listed("writer")[:_LISTED], report.listed("canceller")[:_LISTED]
    pushes = [*raising, *reversed(lowering)] or report.listed("")[:_LISTED]
    title = f"{model_name(report.source)}: what pushes the answer up, and what down"
    sheet = HeadedFigure(title, [measured(report)], dpi)
    names = [f"{p.part}, {said_of(p.why)}" if p.why and not p.why.fails else p.part for p in pushes]
    left = 0.3 + sheet.ruler.widest(names, 7)
    high = len(pushes) * _LINE
    top = sheet.begin(2 * MARGIN + left + 2 * _WIDE) + 0.2
    figure = sheet.figure(top + high + 0.45 + MARGIN)
    axes = sheet.axes(MARGIN + left, top, 2 * _WIDE, high)
    for number, push in enumerate(pushes):
        interval(axes, (push.mean.low, push.mean.high), number)
    caption = "sure of their sign" if pushes[0].verdict else "none is sure of its sign"
    values = [push.mean.value or 0.0 for push in pushes]
    bars = list(zip(names, values, strict=True))
    _bars(axes, bars, f"logits, mean over texts with 95 % interval; {caption}", sheet.families)
    return figure


def _waterfall(axes: Axes, report: Logits) -> None:
    bars = steps(report)
    for number, step in enumerate(bars):
        color = BLUE if step.value > 0 else ORANGE
        axes.barh(number, step.value, left=step.before, height=0.62, color=color)
        if number:
            axes.plot([step.before] * 2, [number - 1.31, number + 0.31], color=GREY, linewidth=0.5)
        right = max(step.before, step.after)
        axes.annotate(signed(step.value), (right, number), (3, 0), textcoords="offset points",
                      fontsize=6, va="center")  # fmt: skip
    _finish(axes)
    name_bars(axes, [step.label for step in bars], "logits, cumulative from the top")


def _bars(axes: Axes, bars: list[tuple[str, float]], label: str, families: list[str]) -> None:
    for number, (_, value) in enumerate(bars):
        axes.barh(number, value, height=0.62, color=BLUE if value > 0 else ORANGE)
    _finish(axes)
    name_bars(axes, [name for name, _ in bars], label, family=families)


def _finish(axes: Axes) -> None:
    axes.axvline(0, color=GREY, linewidth=0.5)
    axes.use_sticky_edges = False
    axes.margins(x=0.12)
