"""Sweeps and the effect of 1/√d as figures, on logarithmic axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from attnviz.drawing.canvas import rendered
from attnviz.features.shapes.sweep import Sweep
from attnviz.features.shapes.table import HEADS, MIXED, NEUTRAL, count, plural, size
from attnviz.features.shapes.worked import Scaling

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DPI = 160
BLUE, ORANGE, GREEN = HEADS[0], HEADS[5], HEADS[2]
_NAMES = {"seq": "sequence length T", "d-model": "model width D", "heads": "heads H"}


def _axes(figure: Figure, place: Any, x: str, y: str) -> Axes:
    axes = figure.add_subplot(place)
    axes.set_xlabel(x, color=MIXED, fontsize=9)
    axes.set_ylabel(y, color=MIXED, fontsize=9)
    axes.tick_params(labelsize=8, colors=MIXED, which="both", length=2.5)
    axes.grid(True, which="major", color="#e4e6ea", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(NEUTRAL)
    return axes


def _curve(axes: Axes, xs: Sequence[int], ys: Sequence[float], colour: str, label: str) -> None:
    axes.plot(xs, ys, color=colour, marker="o", markersize=3.5, linewidth=1.8, label=label)


def sweep_figure(sweep: Sweep, format: str) -> bytes:
    """FLOPs of projections and attention, with their crossing, and the memory of the weights.

    Where key heads are swept: what decoding a token reads, and the FLOPs a byte.
    """
    if sweep.variable == "kv-heads":
        return _key_heads_figure(sweep, format)

    def build() -> Figure:
        figure = Figure(figsize=(9.6, 4.4), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
        figure.suptitle(sweep.subject, fontsize=11, color=MIXED)
        grid = figure.add_gridspec(1, 2, wspace=0.06)
        x_name = _NAMES.get(sweep.variable, "context length S")
        xs = [p.value for p in sweep.points]
        costs = _axes(figure, grid[0, 0], x_name, "FLOPs of one layer")
        _curve(
            costs,
            xs,
            [p.projection_flops or 0 for p in sweep.points],
            BLUE,
            "projections, O(T·D²)",
        )
        _curve(
            costs,
            xs,
            [p.attention_flops or 0 for p in sweep.points],
            ORANGE,
            "attention itself, O(T²·D)",
        )
        _mark_crossing(costs, sweep)
        costs.legend(
            facecolor="white", edgecolor="none", framealpha=0.9, fontsize=8.5, loc="upper left"
        )
        memory = _axes(figure, grid[0, 1], x_name, "memory of the attention weights")
        label = f"all of them kept, {sweep.run.number}"
        _curve(memory, xs, [p.weights_bytes for p in sweep.points], ORANGE, label)
        _curve(
            memory,
            xs,
            [p.streamed_bytes or 0 for p in sweep.points],
            GREEN,
            "handed out in blocks, float32",
        )
        memory.legend(
            facecolor="white", edgecolor="none", framealpha=0.9, fontsize=8.5, loc="upper left"
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

    return bytes(rendered(build, format, DPI))


def _key_heads_figure(sweep: Sweep, format: str) -> bytes:
    steps, run = sweep.points, sweep.run
    groups = [step.value for step in steps]

    def build() -> Figure:
        figure = Figure(figsize=(9.6, 4.4), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
        figure.suptitle(
            f"{sweep.subject}: one layer decodes a "
            f"token of {plural(run.batch or 1, 'sequence')} on {plural(run.seq or 0, 'token')}",
            fontsize=11,
            color=MIXED,
        )
        grid = figure.add_gridspec(1, 2, wspace=0.06)
        read = _axes(figure, grid[0, 0], "key heads G", "bytes read")
        label = f"keys and values, {run.cached}"
        _curve(read, groups, [step.cache_bytes or 0 for step in steps], ORANGE, label)
        _curve(read, groups, [step.weights_bytes for step in steps], BLUE, f"weights, {run.number}")
        read.set_yscale("log", base=2)
        read.yaxis.set_major_formatter(lambda value, _: size(value))
        pace = _axes(figure, grid[0, 1], "key heads G", "FLOPs per byte read")
        _curve(
            pace,
            groups,
            [step.flops_per_byte or 0 for step in steps],
            GREEN,
            "arithmetic intensity",
        )
        pace.set_ylim(bottom=0)
        for axes in (read, pace):
            axes.set_xscale("log", base=2)
            axes.set_xticks(groups, [str(group) for group in groups])
            axes.minorticks_off()
            axes.margins(y=0.18)
            axes.legend(
                facecolor="white", edgecolor="none", framealpha=0.9, fontsize=8.5, loc="best"
            )
        return figure

    return bytes(rendered(build, format, DPI))


def _mark_crossing(axes: Axes, sweep: Sweep) -> None:
    equal = sweep.crossing
    if equal is None:
        return
    first, last = sweep.points[0], sweep.points[-1]
    if not first.value <= equal <= last.value:
        return
    height = (first.projection_flops or 0) / first.value * equal
    axes.plot([equal], [height], marker="D", markersize=8, color=MIXED, zorder=5, linestyle="none")
    axes.axvline(equal, color=NEUTRAL, linewidth=0.8, linestyle=(0, (3, 3)), zorder=0)
    axes.annotate(
        f"equal at T = {equal:,.0f}",
        (equal, height),
        xytext=(10, -14),
        textcoords="offset points",
        fontsize=8.5,
        color=MIXED,
    )


def scaling_figure(result: Scaling, format: str) -> bytes:
    """Entropy and gradient of softmax by head width, with and without 1/√d."""

    def build() -> Figure:
        figure = Figure(figsize=(9.6, 4.2), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
        title = f"softmax over {result.keys} keys, standard normal queries and keys"
        figure.suptitle(title, fontsize=11, color=MIXED)
        grid = figure.add_gridspec(1, 2, wspace=0.06)
        widths = [row.d for row in result.rows]
        for column, (name, label) in enumerate(
            (
                ("entropy_bits", "entropy of a row, bits"),
                ("gradient_norm", "size of the softmax gradient"),
            )
        ):
            axes = _axes(figure, grid[0, column], "head width d", label)
            for which, colour, text in (
                ("scaled", GREEN, "scores · 1/√d"),
                ("raw", ORANGE, "raw scores"),
            ):
                values = [getattr(getattr(row, which), name) for row in result.rows]
                _curve(axes, widths, values, colour, text)
            axes.set_xscale("log", base=2)
            axes.set_xticks(widths, [str(width) for width in widths])
            axes.set_ylim(bottom=0)
            axes.legend(facecolor="white", edgecolor="none", framealpha=0.9, fontsize=8.5)
        return figure

    return bytes(rendered(build, format, DPI))
