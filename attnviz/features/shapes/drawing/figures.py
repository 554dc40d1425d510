"""Sweeps and the effect of 1/√d as figures, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import open_sides
from attnviz.features.shapes.costs import DECODED
from attnviz.features.shapes.result import ScalingAnswer, SweepAnswer
from attnviz.features.shapes.table import HEADS, MIXED, NEUTRAL, count, plural, size

BLUE, ORANGE, GREEN = HEADS[0], HEADS[5], HEADS[2]
_NAMES = {"seq": "sequence length T", "d-model": "model width D", "heads": "heads H"}


def _panels(title: str, *labels: tuple[str, str], high: float = 4.4) -> tuple[Figure, list[Axes]]:
    """Lay out axes side by side under a title, by the names of their two axes."""
    figure = Figure(figsize=(9.6, high), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
    figure.suptitle(title, fontsize=11, color=MIXED)
    grid, panels = figure.add_gridspec(1, 2, wspace=0.06), []
    for column, (x, y) in enumerate(labels):
        axes = figure.add_subplot(grid[0, column])
        axes.set_xlabel(x, color=MIXED, fontsize=9)
        axes.set_ylabel(y, color=MIXED, fontsize=9)
        axes.tick_params(labelsize=8, colors=MIXED, which="both", length=2.5)
        axes.grid(True, which="major", color="#e4e6ea", linewidth=0.6)
        open_sides(axes, "top", "right")
        for side in ("left", "bottom"):
            axes.spines[side].set_color(NEUTRAL)
        panels.append(axes)
    return figure, panels


def _curves(
    axes: Axes, xs: Sequence[int], *curves: tuple[str, str, Sequence[float]], corner: str = "best"
) -> None:
    """Draw curves by colour and label, with their legend."""
    for colour, label, ys in curves:
        axes.plot(xs, ys, color=colour, marker="o", markersize=3.5, linewidth=1.8, label=label)
    frame: Any = {"facecolor": "white", "edgecolor": "none", "framealpha": 0.9, "loc": corner}
    axes.legend(fontsize=8.5, **frame)


@picture
def draw(answer: SweepAnswer | ScalingAnswer, dpi: float) -> Figure:
    """Draw costs along a size, or the effect of 1/√d."""
    if isinstance(answer, ScalingAnswer):
        return _scaling(answer)
    return _key_heads(answer) if answer.variable in DECODED else _sweep(answer)


def _sweep(sweep: SweepAnswer) -> Figure:
    """Draw FLOPs with their crossing, and memory."""
    x = _NAMES.get(sweep.variable, "context length S")
    labels = (x, "FLOPs of one layer"), (x, "memory of the attention weights")
    figure, (costs, memory) = _panels(sweep.subject, *labels)
    points, xs = sweep.points, [p.value for p in sweep.points]
    _curves(costs, xs,
            (BLUE, "projections, O(T·D²)", [p.projection_flops or 0 for p in points]),
            (ORANGE, "attention itself, O(T²·D)", [p.attention_flops or 0 for p in points]),
            corner="upper left")  # fmt: skip
    _mark_crossing(costs, sweep)
    _curves(
        memory,
        xs,
        (ORANGE, f"all of them kept, {sweep.sizes.number}", [p.weights_bytes for p in points]),
        (GREEN, "handed out in blocks, float32", [p.streamed_bytes or 0 for p in points]),
        corner="upper left",
    )
    for axes in (costs, memory):
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: count(value))
        axes.margins(y=0.18)
    costs.yaxis.set_major_formatter(lambda value, _: count(value))
    memory.set_yscale("log", base=2)
    memory.yaxis.set_major_formatter(lambda value, _: size(value))
    return figure


def _key_heads(sweep: SweepAnswer) -> Figure:
    """Draw what decoding a token reads along key heads or GPUs, and what it computes with that."""
    steps, run = sweep.points, sweep.sizes
    x = "GPUs" if sweep.variable == "tp" else "key heads G"
    groups = [step.value for step in steps]
    title = (
        f"{sweep.subject}: one layer decodes a "
        f"token of {plural(run.batch or 1, 'sequence')} on {plural(run.seq or 0, 'token')}"
    )
    figure, (read, pace) = _panels(title, (x, "bytes read"), (x, "FLOPs per byte read"))
    read.margins(y=0.18)
    caches, weights = [s.cache_bytes or 0 for s in steps], [s.weights_bytes for s in steps]
    _curves(read, groups, (ORANGE, f"keys and values, {run.cached}", caches),
            (BLUE, f"weights, {run.number}", weights))  # fmt: skip
    read.set_yscale("log", base=2)
    read.yaxis.set_major_formatter(lambda value, _: size(value))
    intensity = [step.flops_per_byte or 0 for step in steps]
    _curves(pace, groups, (GREEN, "arithmetic intensity", intensity))
    pace.set_ylim(bottom=0)
    for axes in (read, pace):
        _show_powers(axes, groups)
        axes.minorticks_off()
    return figure


def _mark_crossing(axes: Axes, sweep: SweepAnswer) -> None:
    equal = sweep.crossing_length
    if equal is None:
        return
    first, last = sweep.points[0], sweep.points[-1]
    if not first.value <= equal <= last.value:
        return
    height = (first.projection_flops or 0) / first.value * equal
    axes.plot([equal], [height], marker="D", markersize=8, color=MIXED, zorder=5, linestyle="none")
    axes.axvline(equal, color=NEUTRAL, linewidth=0.8, linestyle=(0, (3, 3)), zorder=0)
    axes.annotate(f"equal at T = {equal:,.0f}", (equal, height), xytext=(10, -14),
                  textcoords="offset points", fontsize=8.5, color=MIXED)  # fmt: skip


def _scaling(result: ScalingAnswer) -> Figure:
    """Draw entropy and gradient of softmax by head width, with and without 1/√d."""
    title = f"softmax over {result.keys} keys, standard normal queries and keys"
    quantities = ("entropy of a row, bits", "size of the softmax gradient")
    figure, panels = _panels(title, *(("head width d", name) for name in quantities), high=4.2)
    widths = [row.d for row in result.rows]
    for axes, name in zip(panels, ("entropy_bits", "gradient_norm"), strict=True):
        scaled, raw = (
            [getattr(getattr(row, which), name) for row in result.rows]
            for which in ("scaled", "raw")
        )
        _curves(axes, widths, (GREEN, "scores · 1/√d", scaled), (ORANGE, "raw scores", raw))
        _show_powers(axes, widths)
        axes.set_ylim(bottom=0)
    return figure


def _show_powers(axes: Axes, values: Sequence[int]) -> None:
    """Show every value on an axis that doubles."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(value) for value in values])
