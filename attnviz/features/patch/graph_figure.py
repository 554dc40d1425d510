"""A circuit as a figure: the graph in layers, and how faithful circuits of each size are."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from attnviz.drawing.charts import GREY, INK, open_sides
from attnviz.drawing.headed import HeadedFigure
from attnviz.drawing.palette import ink
from attnviz.features.patch import words
from attnviz.features.patch.graph import (
    COLORS,
    FED,
    LOGITS,
    RADIUS,
    RISE,
    STEP,
    Arrow,
    Graph,
    Node,
    graph,
    place,
)
from attnviz.features.patch.result import Circuit, Patch
from attnviz.scoring.roles import ROLES

_MARGIN = 0.25
_LEFT, _RIGHT, _CURVE = 0.55, 0.5, 2.9
_THINNEST, _THICKEST = 0.7, 5.0
_NONE = "#f2f2f2"
_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8}
_LEAST = 6.4


def build(result: Patch, dpi: float) -> Figure:
    """The figure: heading, what colours mean, the graph, and the curve of a circuit."""
    made = graph(result)
    circuit = result.circuit
    levels = max(node.level for node in made.nodes.values()) + 1
    reach = max(abs(node.x) for node in made.nodes.values())
    graph_wide = max(2 * reach * STEP + 2 * _LEFT, 3.0)
    graph_high = (levels - 1) * RISE + 1.0
    beside = _CURVE + _RIGHT + 0.35 if circuit is not None else 0.0
    wide = max(2 * _MARGIN + _LEFT + graph_wide + beside, _LEAST)
    title = words.title(result)
    below = [words.model_does(result), words.measure(result)]
    if circuit is not None:
        below = [words.quote(result), words.circuit_measure(result)]
    sheet = HeadedFigure(title, below, dpi, margin=_MARGIN)
    sides = [side for side in COLORS if any(arrow.side == side for arrow in made.arrows)]
    top = sheet.begin(wide) + 0.15 + 0.2
    body = max(graph_high, 2.2 if circuit is not None else 0.0)
    high = top + body + _MARGIN + 0.15
    figure = sheet.figure(high)
    _legend(figure, sides, made, top - 0.12)
    graph_wide = wide - 2 * _MARGIN - beside
    box = (_MARGIN / wide, (_MARGIN + 0.1) / high, graph_wide / wide, body / high)
    axes = figure.add_axes(box)
    axes.set_xlim(-graph_wide / 2 - 0.12, graph_wide / 2 - 0.12)
    axes.set_ylim(-0.55, body - 0.55)
    axes.axis("off")
    _graph(axes, made, graph_wide, dpi)
    if circuit is not None:
        curve_high = min(body - 0.7, 2.4)
        place = (
            (wide - _MARGIN - _CURVE) / wide, (_MARGIN + 0.55 + max(body - curve_high - 0.9, 0) / 2)
            / high, _CURVE / wide, curve_high / high,
        )  # fmt: skip
        _curve(figure.add_axes(place), circuit)
    return figure


def _legend(figure: Figure, sides: list[str], made: Graph, y: float) -> None:
    wide, high = figure.get_size_inches()
    x = _MARGIN
    for side in sides:
        text = "to the logits" if side == LOGITS else f"into {FED[side]}"
        figure.text(x / wide, 1 - y / high, text, fontsize=8, fontweight="bold", va="center",
                    color=COLORS[side])  # fmt: skip
        x += 0.075 * len(text) + 0.2
    text = f"thickest {made.most:+.2f}"
    if any(arrow.share < 0 for arrow in made.arrows):
        text += ", dashed: lowers"
    figure.text(x / wide, 1 - y / high, text, fontsize=7.5, va="center", color=GREY)


def _graph(axes: Axes, made: Graph, wide: float, dpi: float) -> None:
    for arrow in reversed(made.arrows):
        _arrow(axes, made, arrow)
    labelled: dict[int, str] = {}
    for node in made.nodes.values():
        if node.layer is not None:
            labelled[node.level] = f"layer {node.layer}"
        _node(axes, node)
    for level, text in labelled.items():
        axes.text(-wide / 2 - 0.12, level * RISE, text, fontsize=7.5, color=GREY, va="center")


def _arrow(axes: Axes, made: Graph, arrow: Arrow) -> None:
    start, end = made.nodes[arrow.start], made.nodes[arrow.end]
    size = abs(arrow.share) / (made.most or 1)
    axes.add_patch(
        FancyArrowPatch(
            place(start), place(end), arrowstyle="-|>", mutation_scale=8 + 5 * size,
            connectionstyle=f"arc3,rad={arrow.bend}", shrinkA=72 * RADIUS, shrinkB=72 * RADIUS,
            color=COLORS[arrow.side], alpha=0.35 + 0.6 * size, zorder=1,
            linewidth=_THINNEST + (_THICKEST - _THINNEST) * size,
            linestyle=(0, (3, 2)) if arrow.share < 0 else "solid",
        )
    )  # fmt: skip


def _node(axes: Axes, node: Node) -> None:
    x, y = place(node)
    if node.name == LOGITS:
        box = FancyBboxPatch((x - 0.32, y - 0.13), 0.64, 0.26, boxstyle="round,pad=0.03",
                             facecolor="#ffffff", edgecolor=GREY, zorder=2)  # fmt: skip
        axes.add_patch(box)
        axes.text(x, y, LOGITS, fontsize=8, ha="center", va="center", zorder=3)
        return
    role = "" if node.member is None else node.member.role
    paint = ROLES[role].color if role in ROLES else _NONE
    axes.add_patch(Circle((x, y), RADIUS, facecolor=paint, edgecolor=INK, linewidth=0.8,
                          zorder=2))  # fmt: skip
    axes.text(x, y, node.name, fontsize=8, fontweight="bold", ha="center", va="center",
              color=ink(paint), zorder=3)  # fmt: skip
    if role:
        axes.text(x + RADIUS + 0.05, y, role, fontsize=6.5, ha="left", va="center",
                  color=INK, zorder=4,
                  bbox=_PAPER)  # fmt: skip


def _curve(axes: Axes, circuit: Circuit) -> None:
    """Faithfulness by size, random circuits of the same size, and the circuit itself."""
    sizes = [point.heads for point in circuit.curve]
    shares = [point.faithful.share for point in circuit.curve]
    if all(point.faithful.low is not None for point in circuit.curve[1:]):
        low = [point.faithful.low or 0.0 for point in circuit.curve]
        high = [point.faithful.high or 0.0 for point in circuit.curve]
        axes.fill_between(sizes, low, high, color=INK, alpha=0.12, linewidth=0)
    axes.plot(sizes, shares, color=INK, linewidth=1.4, label="the most important heads")
    size = len(circuit.members)
    axes.scatter([size] * len(circuit.random), circuit.random, s=9, color="#9aa3ad", linewidths=0,
                 label=f"{len(circuit.random)} random circuits", zorder=2)  # fmt: skip
    axes.scatter([size], [circuit.faithful.share], s=34, color=COLORS["k"], zorder=3,
                 label=f"the circuit: {size} heads")  # fmt: skip
    axes.axhline(1, color=GREY, linewidth=0.5, linestyle="dashed")
    axes.axhline(0, color=GREY, linewidth=0.5)
    axes.set_xlabel("heads that are not corrupted", fontsize=7.5)
    axes.set_title("faithfulness on the other pairs", fontsize=8, color=GREY, loc="left")
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7, frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.4))
    open_sides(axes, "top", "right")
