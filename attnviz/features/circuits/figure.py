"""The strongest edges as a graph: layers upwards, heads across, arrows from writers to readers."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch

from attnviz.core.heads import Head
from attnviz.drawing.canvas import picture
from attnviz.drawing.charts import GREY, HeadedFigure, clear_bend
from attnviz.drawing.grid import NONE, color
from attnviz.drawing.palette import ink
from attnviz.errors import UsageError
from attnviz.features.circuits import description as words
from attnviz.features.circuits.result import SIDES, Circuits, Edge, Side

COLORS: Mapping[Side, str] = {"Q": "#762a83", "K": "#404040", "V": "#01665e"}
"""Of arrows into queries, keys and values; apart in lightness or hue for the colour-blind."""

_BEND: Mapping[Side, float] = {"Q": -0.18, "K": 0.0, "V": 0.18}
"""Arrows between the same two heads lie side by side."""

_FAINT = "#c8c8c8"
_MARGIN, _LEFT = 0.25, 0.45
_STEP, _RISE = 0.62, 1.15
"""Between heads and between layers, in inches."""
_MANY, _VERY_MANY = 16, 32
"""Heads in a layer, and layers, from which on they stand closer."""
_CLOSE, _LOWEST = 0.2, 0.25
"""Between heads without a number, and the least between layers, in inches."""
_RADIUS = 0.17
_CLEAR = 0.06  # between the middle of an arrow and the rim of a node that it passes, in inches
_THICKEST, _THINNEST = 4.0, 0.6
"""Of an arrow, in points."""
_LEAST = 5.2  # a picture is at least so wide, in inches, for its title


@picture
def draw(report: Circuits, dpi: float, top: int = 10) -> Figure:
    """Draw the figure: a title, what colours mean, and the graph."""
    if not report.edges:
        raise UsageError(f"no edges to draw: {report.reasons.get('edges', 'none were found')}")
    by_side = {side: words.shown(report, side, top) for side in SIDES if report.of(side)}
    sides = [side for side, edges in by_side.items() if edges]
    edges = [edge for of_side in by_side.values() for edge in of_side]
    (kind,) = report.layout.kinds
    counts = report.layout.heads[kind]
    step = _STEP if max(counts) <= _MANY else _STEP / 2
    step = _CLOSE if max(counts) > _VERY_MANY else step
    rise = max(_RISE * min(1, _MANY / len(counts)), _LOWEST)
    width = max(_LEAST, 2 * _MARGIN + _LEFT + max(counts) * step)
    title, notes = words.title(report), [words.edges_title(report)]
    if report.plain:
        notes.append("Heads: blue where they copy what they read, orange where they lower it.")
    sheet = HeadedFigure(title, notes, dpi, margin=_MARGIN)
    y = sheet.begin(width)
    body = len(counts) * rise
    high = y + 0.15 * len(sides) + body + _MARGIN
    figure = sheet.figure(high)
    for side in sides:
        text = f"into {words.FED[side]}, up to {report.of(side)[0].excess:+.3f}"
        figure.text(_MARGIN / width, 1 - (y + 0.1) / high, text, fontsize=8, va="top",
                    color=COLORS[side], fontweight="bold", family=sheet.families)  # fmt: skip
        y += 0.15
    axes = figure.add_axes((0, 0, 1, body / high + _MARGIN / high))
    axes.set_xlim(0, width)
    axes.set_ylim(0, body + _MARGIN)
    axes.set_axis_off()
    _draw(axes, report, edges, (step, rise), width)
    return figure


def _draw(
    axes: Axes, report: Circuits, edges: list[Edge], spacing: tuple[float, float], width: float
) -> None:
    """Nodes and arrows, in inches; ``spacing`` from head to head and from layer to layer."""
    step, rise = spacing
    places: dict[Head, tuple[float, float]] = {}
    (kind,) = report.layout.kinds
    widest = max(report.layout.heads[kind])
    left = (width - _LEFT - widest * step) / 2 + _LEFT
    for head in report.layout:
        places[head] = left + (head.index + 0.5) * step, _MARGIN + (head.layer + 0.5) * rise
    for layer in range(report.layout.layers(kind)):
        axes.text(left - 0.12, _MARGIN + (layer + 0.5) * rise, f"layer {layer}", fontsize=7.5,
                  color=GREY, ha="right", va="center")  # fmt: skip
    radius = min(_RADIUS, 0.42 * step)
    largest = max((edge.excess for edge in edges), default=0.0)
    for edge in reversed(edges):
        share = edge.excess / largest
        axes.add_patch(
            FancyArrowPatch(
                places[edge.writer], places[edge.reader], arrowstyle="-|>",
                connectionstyle=f"arc3,rad={_bend(edge, places, radius)}", shrinkA=radius * 72,
                shrinkB=radius * 72, mutation_scale=9, color=COLORS[edge.side], alpha=0.8,
                linewidth=_THINNEST + (_THICKEST - _THINNEST) * share, zorder=1,
            )
        )  # fmt: skip
    connected = {head for edge in edges for head in (edge.writer, edge.reader)}
    scores = report.copying()
    for head, position in places.items():
        paint = color(scores[head].score, 1.0, words.UP) if head in scores else NONE
        rim = GREY if head in connected else _FAINT
        axes.add_patch(Circle(position, radius, facecolor=paint, edgecolor=rim, zorder=2))
        if step > _CLOSE:
            axes.text(*position, str(head.index), fontsize=7 if step == _STEP else 5, ha="center",
                      va="center", color=ink(paint), zorder=3)  # fmt: skip


def _bend(edge: Edge, places: Mapping[Head, tuple[float, float]], radius: float) -> float:
    """How an arrow is bent: by its side, and round other heads."""
    ends = (edge.writer, edge.reader)
    start, end = (places[head] for head in ends)
    obstacles = [position for head, position in places.items() if head not in ends]
    return clear_bend(start, end, _BEND[edge.side], radius + _CLEAR, obstacles)
