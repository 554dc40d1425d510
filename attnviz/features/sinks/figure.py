"""Sinks as a figure: the grid of heads, what their sinks add, and the states after every layer."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import INK, MARGIN, HeadedFigure, name_axes
from attnviz.drawing.console import COLOR
from attnviz.drawing.grid_figure import draw_grid, size
from attnviz.drawing.labels import model_name, tick_step
from attnviz.features.sinks.description import activation_line, measured, norms, sink_tiles, summary
from attnviz.features.sinks.result import MASSIVE, Sinks

_GAP, _PANEL, _LEAST, _TALL = 0.75, 2.4, 2.2, 6.0
_NUMBERED = 13  # layers that have a number each below their states
_DARK, _GREY, _DORMANT = INK, "#909090", "#c4500a"


@picture
def draw(result: Sinks, dpi: float) -> Figure:
    """Return the figure: heads to the left, their sinks in the middle, the states to the right."""
    title = f"{model_name(result.source)}: attention sinks"
    below = [summary(result), *filter(None, [activation_line(result)]), measured(result)]
    sheet = HeadedFigure(title, below, dpi, [head.token for head in result.heads])
    wide_1, high_1 = size(result.layout)
    left = 0.35
    panels = 2 if result.layers else 1
    width = 2 * MARGIN + left + wide_1 + panels * (_GAP + _PANEL)
    top = sheet.begin(width) + 0.5
    height = min(max(high_1, _LEAST), _TALL)
    figure = sheet.figure(top + max(high_1, height) + 0.55 + MARGIN)
    tiles = sink_tiles(result, sheet.text)
    draw_grid(sheet.axes(MARGIN + left, top, wide_1, high_1), result.layout, tiles,
              "the key with the most weight; colour: its mean weight")  # fmt: skip
    x = MARGIN + left + wide_1 + _GAP
    _sinks(sheet.axes(x, top, _PANEL, height), result)
    if result.layers:
        _states(sheet.axes(x + _PANEL + _GAP, top, _PANEL, height), result)
    return figure


def _sinks(axes: Axes, result: Sinks) -> None:
    """Every head: the weight on its sink, and the sink's share of what is written."""
    for dormant, color, label in ((False, COLOR, "heads"), (True, _DORMANT, "dormant heads")):
        heads = [head for head in result.heads if result.is_dormant(head) is dormant]
        points = [
            (head.weight.value, head.written.value)
            for head in heads
            if head.weight.value is not None and head.written.value is not None
        ]
        if points:
            axes.plot(*zip(*points, strict=True), "o", color=color, markersize=4, alpha=0.7,
                      label=label)  # fmt: skip
    axes.plot([0, 1], [0, 1], color=_GREY, linewidth=0.8, linestyle="dotted")
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)
    written = f"share of what is written ({norms(result)})\nbelow the line: a no-op"
    name_axes(axes, "share of the weight on the sink", written, loc="upper left")


def _states(axes: Axes, result: Sinks) -> None:
    """Draw the largest activation after every layer, and the median."""
    layers = [layer.layer for layer in result.layers]
    axes.semilogy(layers, [max(abs(layer.value), 1e-6) for layer in result.layers], "o-",
                  color=_DARK, markersize=3.5, linewidth=1, label="largest")  # fmt: skip
    axes.semilogy(layers, [max(layer.median, 1e-6) for layer in result.layers], "o-", color=_GREY,
                  markersize=3.5, linewidth=1, label="median")  # fmt: skip
    peaks = [(layer.layer, abs(layer.value)) for layer in result.massive]
    if peaks:
        axes.semilogy(*zip(*peaks, strict=True), "o", color=_DORMANT, markersize=5, label="massive")
    axes.axhline(MASSIVE, color=_GREY, linewidth=0.8, linestyle="dotted")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    ticks = layers[:: tick_step(-(-len(layers) // _NUMBERED))]
    axes.set_xticks(ticks, ["emb." if n < 0 else str(n) for n in ticks])
    name_axes(axes, "after layer", f"magnitude of the states; dotted: {MASSIVE:g}")
