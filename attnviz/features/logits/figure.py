"""A logit as a figure: the grid of heads, the waterfall, and what came through each token."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.drawing import tiles_figure
from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import GREY, MARGIN, HeadedFigure, name_bars
from attnviz.drawing.labels import model_name, shorten, visible
from attnviz.drawing.signed import BLUE, ORANGE, signed
from attnviz.errors import UsageError
from attnviz.features.logits.description import UP, checked, steps, sums_by_token
from attnviz.features.logits.result import Logits

_LINE = 0.2
_WIDE = 2.9  # of the waterfall and of the bars, in inches
_LISTED = 12  # tokens that are shown
_LONGEST = 20  # cells of a token


@picture
def draw(report: Logits, dpi: float) -> Figure:
    """The figure: the grid, the waterfall beside it, then the tokens that heads voted through."""
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
    grid_wide, grid_high = tiles_figure.signed_size(layout)
    steps_left = 0.45 + ruler.widest([step.label for step in bars], 7)
    through_left = 0.6 + ruler.widest([name for name, _ in through], 7)
    wide = 2 * MARGIN + 0.5 + grid_wide + steps_left + _WIDE + through_left + _WIDE
    top = sheet.begin(wide) + 0.4
    body_high = max(grid_high, len(bars) * _LINE, len(through) * _LINE) + 0.45
    figure = sheet.figure(top + body_high + MARGIN)
    x = MARGIN + 0.5
    values = report.heads()
    tiles_figure.draw_signed(
        sheet.axes(x, top, grid_wide, grid_high), layout, values,
        max(map(abs, values.values()), default=0.0), orange=UP,
        legend="head (blue raises, orange lowers)",
    )  # fmt: skip
    x += grid_wide + steps_left
    _waterfall(sheet.axes(x, top, _WIDE, len(bars) * _LINE), report)
    x += _WIDE + through_left
    _bars(sheet.axes(x, top, _WIDE, len(through) * _LINE), through, sheet.families)
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


def _bars(axes: Axes, through: list[tuple[str, float]], families: list[str]) -> None:
    for number, (_, value) in enumerate(through):
        axes.barh(number, value, height=0.62, color=BLUE if value > 0 else ORANGE)
    _finish(axes)
    names = [name for name, _ in through]
    name_bars(axes, names, "logits that all heads add through a token", family=families)


def _finish(axes: Axes) -> None:
    axes.axvline(0, color=GREY, linewidth=0.5)
    axes.use_sticky_edges = False
    axes.margins(x=0.12)
