"""Patching as a figure: grids and the largest effects; a circuit or paths as a graph in layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyArrowPatch, FancyBboxPatch

from attnviz.drawing import grid_figure
from attnviz.drawing.canvas import rendered
from attnviz.drawing.charts import GREY, INK, MARGIN, HeadedFigure, interval, name_bars, open_sides
from attnviz.drawing.grid import BLUE, NONE, ORANGE, color, signed
from attnviz.drawing.labels import visible
from attnviz.drawing.palette import ink
from attnviz.features.patch import words
from attnviz.features.patch.description import cells, strongest
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
from attnviz.features.patch.result import Circuit, Direction, Patch, PatchEffect
from attnviz.scoring.roles import ROLES

_LISTED = 15
_GAP = 0.75
_BAR, _BARS = 0.21, 2.6
_ROW, _COLUMN = 0.2, 0.42
_ROWS = 48  # rows of a grid by position at most
_FIGURES = 0.4  # cells from so wide on have their figures, in inches
_TITLES: dict[Direction, str] = {"denoise": "denoising: restored", "noise": "noising: removed"}


def draw(result: Patch, format: str = "png", dpi: float = 150) -> Any:
    """Return the picture, in ``png``, ``svg`` or ``pdf``."""
    build = _by_position if result.by == "position" else _by_head
    if result.circuit is not None or result.edges:
        build = _circuit
    return rendered(lambda: build(result, dpi), format, dpi)


def _by_head(result: Patch, dpi: float) -> Figure:
    """Grids side by side, and bars of the largest effects."""
    grids = {direction: result.single(direction) for direction in result.directions}
    has_grids = all(len(values) > 1 for values in grids.values())
    layout = result.layout
    listed = sorted(result.ranked()[:_LISTED], key=lambda effect: -effect.first.share)
    left = 0.3
    grid = grid_figure.signed_size(layout)
    names = max((len(effect.name) for effect in listed), default=0) * 0.075 + 0.35
    width = 2 * MARGIN + names + _BARS
    bars_high = len(listed) * _BAR
    below = len(grids) * (grid[1] + _GAP) - _GAP <= bars_high + 0.6  # one grid below the other
    if has_grids:
        across = 1 if below else len(grids)
        width += across * (left + grid[0]) + (across - 1) * 0.2
    body = max(
        bars_high, (len(grids) if below else 1) * (grid[1] + _GAP) - _GAP if has_grids else 0.0
    )
    sheet = _sheet(result, dpi)
    top = sheet.begin(width) + 0.2
    figure = sheet.figure(top + (body + 0.55) + MARGIN)
    x, y = MARGIN, 0.3
    for direction, shares in grids.items() if has_grids else ():
        axes = sheet.axes(x + left, top + y, *grid)
        values = {head: share.share for head, share in shares.items()}
        bold = {head for head, share in shares.items() if share.sure}
        grid_figure.draw_signed(
            axes, layout, values, words.most(result, direction), orange=1, bold=bold,
            legend=f"head · {_TITLES[direction]}",
        )  # fmt: skip
        x, y = (x, y + grid[1] + _GAP) if below else (x + left + grid[0] + 0.2, y)
    if has_grids and below:
        x += left + grid[0] + 0.2
    bars = sheet.axes(x + names - 0.1, top + 0.3, _BARS, len(listed) * _BAR)
    _bars(bars, result, listed)
    return figure


def _by_position(result: Patch, dpi: float) -> Figure:
    """Return a grid of components and tokens for each direction, one below the other where wide."""
    grids = [(direction, *cells(result, direction)) for direction in result.directions]
    texts = {
        direction: [visible(text.strip()) or "·" for text in words.tokens(result, direction)]
        for direction in result.directions
    }
    tokens = max(texts.values(), key=lambda names: max(map(len, names)))  # they need most room
    listed = strongest(grids[0][1], grids[0][2], _ROWS)
    column = _COLUMN if len(tokens) <= 24 else 0.22
    size = (len(tokens) * column, len(listed) * _ROW)
    left = max(map(len, listed)) * 0.075 + 0.25
    labels = max(map(len, tokens)) * 0.065 + 0.15
    beside = len(grids) > 1 and size[0] < 4.5
    count = len(grids)
    width = 2 * MARGIN + (count if beside else 1) * (left + size[0]) + (0.2 if beside else 0)
    height = size[1] + labels + 0.45
    sheet = _sheet(result, dpi)
    top = sheet.begin(max(width, 5.0)) + 0.2
    figure = sheet.figure(top + (height * (1 if beside else count) + 0.1) + MARGIN)
    for number, (direction, _, values) in enumerate(grids):
        x = MARGIN + left + (number * (left + size[0] + 0.2) if beside else 0)
        y = 0.25 + (0 if beside else number * height)
        axes = sheet.axes(x, top + y, *size)
        _cells(axes, result, listed, values, texts[direction], direction, column)
    return figure


def _cells(
    axes: Axes,
    result: Patch,
    names: Sequence[str],
    values: dict[tuple[str, int], float],
    tokens: Sequence[str],
    direction: Direction,
    column: float,
) -> None:
    end = words.most(result, direction)
    scale = LinearSegmentedColormap.from_list("signed", [BLUE, NONE, ORANGE])
    table = [[values[name, n] for n in range(len(tokens))] for name in names]
    paints = [[_place(value, end) for value in row] for row in table]
    axes.imshow(paints, cmap=scale, vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    if column >= _FIGURES:
        for row, line in enumerate(table):
            for column_number, value in enumerate(line):
                if abs(value) >= 0.005:
                    text = signed(value, 2, 2).replace("0.", ".").replace("-", words.MINUS)
                    axes.text(column_number, row, text, ha="center", va="center", fontsize=5.5,
                              color=ink(color(value, end, 1)))  # fmt: skip
    axes.set_xticks(range(len(tokens)), tokens, rotation=90, fontsize=7)
    axes.set_yticks(range(len(names)), names, fontsize=7)
    axes.set_xticks([n - 0.5 for n in range(len(tokens) + 1)], minor=True)
    axes.set_yticks([n - 0.5 for n in range(len(names) + 1)], minor=True)
    axes.grid(which="minor", color="white", linewidth=0.6)
    axes.tick_params(length=0, which="both")
    axes.set_title(f"{_TITLES[direction]} (full colour at {end:.2g})", fontsize=8, color=GREY,
                   loc="left", pad=4)  # fmt: skip
    open_sides(axes)


def _place(value: float, end: float) -> float:
    """Where a value stands between the ends of the colours; by the square root, as in grids."""
    strength = min(abs(value) / end, 1.0) ** 0.5 if end > 0 else 0.0
    return strength if value > 0 else -strength


def _sheet(result: Patch, dpi: float) -> HeadedFigure:
    """Return a figure with its heading."""
    below = [words.model_does(result), words.measure(result)]
    return HeadedFigure(words.title(result), below, dpi)


def _bars(axes: Axes, result: Patch, listed: Sequence[PatchEffect]) -> None:
    """Draw the largest shares: bars for one direction, dots for the other, intervals as lines."""
    for number, effect in enumerate(listed):
        share = effect.first
        axes.barh(number, share.share, height=0.62, color=ORANGE if share.share > 0 else BLUE)
        low, high = share.low, share.high
        if share.joint_low is not None:
            low, high = share.joint_low, share.joint_high
        interval(axes, (low, high), number)
    if len(result.directions) > 1:
        axes.scatter(
            [effect.noise.share if effect.noise else 0.0 for effect in listed], range(len(listed)),
            s=13, marker="o", facecolors="white", edgecolors=INK, linewidths=0.8, zorder=3,
            label="noising",
        )  # fmt: skip
        axes.legend(fontsize=7, frameon=False, loc="lower right")
    axes.axvline(0, color=GREY, linewidth=0.5)
    joint = listed and listed[0].first.joint_low is not None
    lines = (
        "; lines: typical pair, joint 95 %"
        if joint
        else "; lines: 95 %"
        if listed[0].first.low
        else ""
    )
    names = [visible(effect.name) for effect in listed]
    name_bars(axes, names, f"share ({_TITLES[result.directions[0]]}{lines})")


_MARGIN = 0.25
_LEFT, _RIGHT, _CURVE = 0.55, 0.5, 2.9
_THINNEST, _THICKEST = 0.7, 5.0
_NONE = "#f2f2f2"
_PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.8}
_LEAST = 6.4


def _circuit(result: Patch, dpi: float) -> Figure:
    """Return the figure: heading, what colours mean, the graph, and the curve of a circuit."""
    diagram = graph(result)
    circuit = result.circuit
    levels = max(node.level for node in diagram.nodes.values()) + 1
    reach = max(abs(node.x) for node in diagram.nodes.values())
    graph_width = max(2 * reach * STEP + 2 * _LEFT, 3.0)
    graph_height = (levels - 1) * RISE + 1.0
    beside = _CURVE + _RIGHT + 0.35 if circuit is not None else 0.0
    width = max(2 * _MARGIN + _LEFT + graph_width + beside, _LEAST)
    title = words.title(result)
    below = [words.model_does(result), words.measure(result)]
    if circuit is not None:
        below = [words.quote(result), words.circuit_measure(result)]
    sheet = HeadedFigure(title, below, dpi, margin=_MARGIN)
    sides = [side for side in COLORS if any(arrow.side == side for arrow in diagram.arrows)]
    top = sheet.begin(width) + 0.15 + 0.2
    body = max(graph_height, 2.2 if circuit is not None else 0.0)
    height = top + body + _MARGIN + 0.15
    figure = sheet.figure(height)
    _legend(figure, sides, diagram, top - 0.12)
    graph_width = width - 2 * _MARGIN - beside
    box = (_MARGIN / width, (_MARGIN + 0.1) / height, graph_width / width, body / height)
    axes = figure.add_axes(box)
    axes.set_xlim(-graph_width / 2 - 0.12, graph_width / 2 - 0.12)
    axes.set_ylim(-0.55, body - 0.55)
    axes.axis("off")
    _graph(axes, diagram, graph_width, dpi)
    if circuit is not None:
        curve_high = min(body - 0.7, 2.4)
        x = (width - _MARGIN - _CURVE) / width
        y = (_MARGIN + 0.55 + max(body - curve_high - 0.9, 0) / 2) / height
        _curve(figure.add_axes((x, y, _CURVE / width, curve_high / height)), circuit)
    return figure


def _legend(figure: Figure, sides: list[str], diagram: Graph, y: float) -> None:
    width, height = figure.get_size_inches()
    x = _MARGIN
    for side in sides:
        text = "to the logits" if side == LOGITS else f"into {FED[side]}"
        figure.text(x / width, 1 - y / height, text, fontsize=8, fontweight="bold", va="center",
                    color=COLORS[side])  # fmt: skip
        x += 0.075 * len(text) + 0.2
    text = f"thickest {diagram.most:+.2f}"
    if any(arrow.share < 0 for arrow in diagram.arrows):
        text += ", dashed: lowers"
    figure.text(x / width, 1 - y / height, text, fontsize=7.5, va="center", color=GREY)


def _graph(axes: Axes, diagram: Graph, width: float, dpi: float) -> None:
    for arrow in reversed(diagram.arrows):
        _arrow(axes, diagram, arrow)
    labelled: dict[int, str] = {}
    for node in diagram.nodes.values():
        if node.layer is not None:
            labelled[node.level] = f"layer {node.layer}"
        _node(axes, node)
    for level, text in labelled.items():
        axes.text(-width / 2 - 0.12, level * RISE, text, fontsize=7.5, color=GREY, va="center")


def _arrow(axes: Axes, diagram: Graph, arrow: Arrow) -> None:
    start, end = diagram.nodes[arrow.start], diagram.nodes[arrow.end]
    size = abs(arrow.share) / (diagram.most or 1)
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
