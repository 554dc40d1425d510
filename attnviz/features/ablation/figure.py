"""An ablation as a figure: the grid of heads by effect, the largest effects, and the curve."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.drawing import grid_figure
from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import GREY, INK, MARGIN, HeadedFigure, interval, name_axes, name_bars
from attnviz.drawing.grid import BLUE, ORANGE
from attnviz.drawing.labels import model_name, shorten
from attnviz.features.ablation.result import Ablation, Effect
from attnviz.features.ablation.words import kept_share, measure, most, role

_LISTED = 15
_ORDERS = (INK, "#b0b0b0")
_BAR = 0.21


@picture
def draw(report: Ablation, dpi: float) -> Figure:
    """Give the figure: the grid, the largest effects beside it, the curve below if there is one."""
    layout, single = report.layout, report.single
    grid_wide, grid_high = grid_figure.signed_size(layout) if single else (0.0, 0.0)
    largest = sorted(report.effects, key=lambda effect: -abs(effect.change))[:_LISTED]
    listed = sorted(largest, key=lambda effect: -effect.change * report.worse)
    longest = max((len(_label(effect)) for effect in listed), default=0)
    names_wide = 0.35 + 0.062 * longest  # of digits and small letters at 7 points, generously
    bars_wide = 2.8
    body_high = max(grid_high, len(listed) * _BAR) + 0.3
    curve_high = 2.4 if report.curve else 0.0
    left = 0.5 if single else 0.0
    width = 2 * MARGIN + left + grid_wide + names_wide + bars_wide
    title = f"{model_name(report.source)}: effect of ablating each head"
    sheet = HeadedFigure(title, [measure(report)], dpi)
    top = sheet.begin(width) + 0.44
    figure = sheet.figure(top + body_high + curve_high + 0.25 + MARGIN)
    if single:
        axes = sheet.axes(MARGIN + left, top, grid_wide, grid_high)
        values = {head: effect.change for head, effect in single.items()}
        judged = any(effect.verdict for effect in report.effects)
        bold = {
            head
            for head, e in single.items()
            if (e.verdict in ("needed", "better without") if judged else e.sure)
        }
        meaning = "needed, or better without" if judged else "differs from 0"
        grid_figure.draw_signed(
            axes, layout, values, most(report), orange=-report.worse, bold=bold,
            legend=f"head (blue: worse without it, it helps; bold: {meaning})",
        )  # fmt: skip
    x = MARGIN + left + grid_wide + names_wide
    bars = sheet.axes(x, top, bars_wide, len(listed) * _BAR)
    _bars(bars, report, listed)
    if report.curve:
        y = top + body_high + 0.25
        inside = MARGIN + 0.55, y, width - 2 * MARGIN - 0.65, curve_high - 0.55
        _curve(sheet.axes(*inside), report)
    return figure


def _bars(axes: Axes, report: Ablation, listed: Sequence[Effect]) -> None:
    for number, effect in enumerate(listed):
        harm = effect.change * report.worse > 0
        axes.barh(number, effect.change, height=0.62, color=BLUE if harm else ORANGE)
        interval(axes, (effect.first.joint_low, effect.first.joint_high), number)
    for place, method in enumerate(report.methods[1:], start=1):
        axes.scatter(
            [effect.by[place].change for effect in listed], range(len(listed)), s=14,
            marker="ox"[place - 1], color=INK, linewidths=0.8, label=method, zorder=3,
        )  # fmt: skip
    if len(report.methods) > 1:
        axes.legend(fontsize=7, frameon=False, loc="lower right")
    names = [_label(effect) for effect in listed]
    axes.axvline(0, color=GREY, linewidth=0.5)
    lines = any(effect.first.joint_low is not None for effect in listed)
    name_bars(
        axes,
        names,
        f"change of {report.metric} in {report.unit} (bars: {report.methods[0]}"
        f"{'; lines: joint 95 %' if lines else ''})",
    )


def _curve(axes: Axes, report: Ablation) -> None:
    for order in reversed(list(dict.fromkeys(point.order for point in report.curve))):
        points = [point for point in report.curve if point.order == order]
        random = order.startswith("random")
        x = [1 - point.removed / points[-1].removed for point in points]
        axes.plot(
            x, [point.change for point in points], color=_ORDERS[random],
            linewidth=1 if random else 1.6,
            label="random orders" if order == "random 1" else None if random else f"by {order}",
        )  # fmt: skip
        if not random and points[0].low is not None:
            low = [point.low or 0.0 for point in points]
            high = [point.high or 0.0 for point in points]
            axes.fill_between(x, low, high, color=_ORDERS[0], alpha=0.12, linewidth=0)
    axes.set_xlim(1, 0)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    if report.tolerance is not None:
        axes.axhline(report.tolerance * report.worse, color=INK, linewidth=0.8, linestyle="dashed")
    name_axes(axes, "share of heads kept", f"change of {report.metric} ({report.unit})")


def _label(effect: Effect) -> str:
    """Return what a bar is called: its heads, what they do, and what rules keep of it."""
    shares = (f"{r.method} keeps {kept_share(r)}" for r in effect.kept if r.share is not None)
    return "  ".join(filter(None, (shorten(effect.name, 26), role(effect), *shares)))
