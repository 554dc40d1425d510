"""A logit as a figure: the grid of heads, the waterfall, and what came through each token."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.drawing import signed_figure
from attnviz.drawing.canvas import rendered
from attnviz.drawing.fonts import Ruler, choose, spelled
from attnviz.drawing.heading import GREY, Heading
from attnviz.drawing.labels import model_name, shorten, visible
from attnviz.drawing.signed import BLUE, ORANGE, signed
from attnviz.errors import UsageError
from attnviz.features.logits.result import Logits
from attnviz.features.logits.words import UP, by_token, checked, steps

_MARGIN = 0.2
_LINE = 0.2
_WIDE = 2.9
"""Of the waterfall and of the bars, in inches."""
_LISTED = 12
"""Tokens that are shown."""
_LONGEST = 20
"""Cells of a token."""


def draw(report: Logits, format: str = "png", dpi: float = 150) -> Any:
    """The picture, in ``png``, ``svg`` or ``pdf``.

    Raises:
        UsageError: the model's logits are no sum, so that there is nothing to draw.
    """
    if not report.parts:
        raise UsageError(f"no parts to draw: {report.reason}")
    return rendered(lambda: build(report, dpi), format, dpi)


def build(report: Logits, dpi: float) -> Figure:
    """The figure: the grid, the waterfall beside it, then the tokens that heads voted through."""
    layout, bars = report.layout, steps(report)
    title = f"{model_name(report.source)}: what adds to the logit of {visible(report.token)}"
    through = [
        (f"{shorten(visible(report.tokens[n]), _LONGEST)} ({n})", value)
        for n, value, _ in list(by_token(report))[:_LISTED]
    ]
    below = checked(report)
    families, missing = choose([title, below, *(name for name, _ in through)])
    title, below = spelled(title, missing), spelled(below, missing)
    through = [(spelled(name, missing), value) for name, value in through]
    ruler = Ruler(families, dpi, bold=len(choose([title])[0]) == 1)
    grid_wide, grid_high = signed_figure.size(layout)
    steps_left = 0.45 + ruler.widest([step.label for step in bars], 7)
    through_left = 0.6 + ruler.widest([name for name, _ in through], 7)
    wide = 2 * _MARGIN + 0.5 + grid_wide + steps_left + _WIDE + through_left + _WIDE
    heading = Heading(ruler, title, [below], wide, _MARGIN)
    head_high = heading.high + 0.4
    body_high = max(grid_high, len(bars) * _LINE, len(through) * _LINE) + 0.45
    high = 2 * _MARGIN + head_high + body_high
    figure = Figure(figsize=(wide, high))
    heading.draw(figure)

    def axes(x: float, w: float, h: float) -> Axes:
        """Axes by inches from the left, below the titles."""
        top = _MARGIN + head_high
        return figure.add_axes((x / wide, 1 - (top + h) / high, w / wide, h / high))

    x = _MARGIN + 0.5
    values = report.heads()
    signed_figure.draw(
        axes(x, grid_wide, grid_high), layout, values, max(map(abs, values.values()), default=0.0),
        orange=UP, legend="head (blue raises, orange lowers)",
    )  # fmt: skip
    x += grid_wide + steps_left
    _waterfall(axes(x, _WIDE, len(bars) * _LINE), report)
    x += _WIDE + through_left
    _bars(axes(x, _WIDE, len(through) * _LINE), through, families)
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
    axes.set_yticks(range(len(bars)), [step.label for step in bars])
    axes.set_xlabel("logits, cumulative from the top", fontsize=7)
    _finish(axes, len(bars))


def _bars(axes: Axes, through: list[tuple[str, float]], families: list[str]) -> None:
    for number, (_, value) in enumerate(through):
        axes.barh(number, value, height=0.62, color=BLUE if value > 0 else ORANGE)
    axes.set_yticks(range(len(through)), [name for name, _ in through], family=families)
    axes.set_xlabel("logits that all heads add through a token", fontsize=7)
    _finish(axes, len(through))


def _finish(axes: Axes, count: int) -> None:
    axes.set_ylim(count - 0.4, -0.6)
    axes.axvline(0, color=GREY, linewidth=0.5)
    axes.use_sticky_edges = False
    axes.margins(x=0.12)
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.tick_params(axis="x", labelsize=7)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
