"""A circuit, or the strongest paths, as a graph in layers: places for pictures, and DOT."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from attnviz.core.heads import Head, Layout
from attnviz.drawing.charts import clear_bend
from attnviz.features.patch import words
from attnviz.features.patch.result import Link, Member, Patch, PathEffect

LOGITS = "logits"
COLORS: Mapping[str, str] = {"q": "#2166ac", "k": "#b35806", "v": "#1b7837", LOGITS: "#555555"}
"""Of edges by what they enter; apart in lightness or hue for the colour-blind."""

STEP, RISE, RADIUS = 1.15, 1.1, 0.22
"""Between nodes and between levels, and of a node, in inches; on the page 100 pixels each."""

_CLEAR, _LETTER = 0.08, 0.06
"""Between the middle of an arrow and what it passes, and of a role's letters, in inches."""

_BEND = {"q": 0.16, "k": 0.0, "v": -0.16, LOGITS: 0.0}

FED: Mapping[str, str] = words.SIDES | {LOGITS: "logits"}


@dataclass(frozen=True)
class Node:
    """A head, or the logits."""

    name: str  # as it is shown
    level: int  # from below: layers that have a node, and the logits on top
    x: float  # across, 0 in the middle; a step is 1
    layer: int | None  # its layer; None for the logits
    member: Member | None = None  # of the circuit; None without one


@dataclass(frozen=True)
class Arrow:
    """An edge between two nodes, of which several can go from one to the other."""

    start: str  # name of a node; ``end`` likewise
    end: str
    side: str  # what it enters
    share: float  # restored, or removed where that alone is known
    edge: PathEffect  # all that is known of it
    often: float | None = None  # share of the resamples; None without a circuit
    # how it goes round other nodes, see :func:`attnviz.drawing.charts.clear_bend`
    bend: float = 0.0


@dataclass(frozen=True)
class Graph:
    """Nodes by name, and arrows, the strongest first."""

    nodes: Mapping[str, Node]
    arrows: tuple[Arrow, ...]

    @property
    def most(self) -> float:
        """The largest size of a share."""
        return max((abs(arrow.share) for arrow in self.arrows), default=0.0)


def graph(result: Patch) -> Graph:
    """Return the graph of a result."""
    circuit = result.circuit
    if circuit is None and not result.edges:
        raise words.no_graph()
    layout = result.layout
    members = {} if circuit is None else {member.head: member for member in circuit.members}
    links = circuit.links if circuit is not None else tuple(Link(e, 0.0) for e in result.edges)
    heads: dict[Head, None] = dict.fromkeys(members)
    arrows = []
    for link in links:
        edge = link.edge
        into: list[Head | None] = [
            head for head in edge.receivers if not members or head in members
        ]
        for head in [None] if edge.side == LOGITS else into:
            heads |= dict.fromkeys(end for end in (edge.sender, head) if end is not None)
            end = LOGITS if head is None else layout.name(head)
            arrows.append(
                Arrow(layout.name(edge.sender), end, edge.side, edge.first.share, edge,
                      None if circuit is None else link.often)
            )  # fmt: skip
    arrows.sort(key=lambda arrow: -abs(arrow.share))
    nodes = _placed(list(heads), arrows, layout, members)
    return Graph(nodes, tuple(replace(arrow, bend=_bend(arrow, nodes)) for arrow in arrows))


def place(node: Node) -> tuple[float, float]:
    """Where a node stands in a picture, in inches."""
    return node.x * STEP, node.level * RISE


def _bend(arrow: Arrow, nodes: Mapping[str, Node]) -> float:
    """How an arrow goes round the other nodes and the roles beside any."""
    start, end = nodes[arrow.start], nodes[arrow.end]
    obstacles = [place(node) for node in nodes.values() if node not in (start, end)]
    labels = []
    for node in nodes.values():
        role = "" if node.member is None else node.member.role
        x, y = place(node)
        labels += [(x + RADIUS + 0.1 + _LETTER * n, y) for n in range(0, len(role), 2)]
    room = RADIUS + _CLEAR
    return clear_bend(place(start), place(end), _BEND[arrow.side], room, obstacles, labels)


def _placed(
    heads: Sequence[Head], arrows: Sequence[Arrow], layout: Layout, members: Mapping[Head, Member]
) -> dict[str, Node]:
    """Every node: layers upwards, and across where its neighbours below are."""
    layers = sorted({head.layer for head in heads})
    across: dict[str, float] = {}
    nodes: dict[str, Node] = {}
    for level, layer in enumerate(layers):
        mine = sorted(head for head in heads if head.layer == layer)

        def pulled(head: Head) -> float:
            below = [
                (across[arrow.start], abs(arrow.share))
                for arrow in arrows
                if arrow.end == layout.name(head) and arrow.start in across
            ]
            total = sum(weight for _, weight in below)
            return sum(x * weight for x, weight in below) / total if total else 0.0

        mine.sort(key=lambda head: (pulled(head), head.index))
        for index, head in enumerate(mine):
            name = layout.name(head)
            shift = 0.3 * (level % 2) if len(mine) == 1 and len(layers) > 2 else 0.0
            across[name] = index - (len(mine) - 1) / 2 + shift
            nodes[name] = Node(name, level, across[name], layer, members.get(head))
    if any(arrow.end == LOGITS for arrow in arrows):
        nodes[LOGITS] = Node(LOGITS, len(layers), 0.0, None)
    return nodes


def dot(result: Patch) -> str:
    """Return the graph in the language of Graphviz."""
    diagram = graph(result)
    lines = ["digraph circuit {", "  rankdir=BT;", '  node [shape=circle, fontname="sans-serif"];']
    for node in diagram.nodes.values():
        shape = ", shape=box" if node.name == LOGITS else ""
        role = f"\\n{node.member.role}" if node.member is not None and node.member.role else ""
        lines.append(f'  "{node.name}" [label="{node.name}{role}"{shape}];')
    for level in sorted({node.level for node in diagram.nodes.values()}):
        names = " ".join(
            f'"{node.name}";' for node in diagram.nodes.values() if node.level == level
        )
        lines.append(f"  {{ rank=same; {names} }}")
    for arrow in diagram.arrows:
        width = 0.5 + 4 * abs(arrow.share) / (diagram.most or 1)
        style = ", style=dashed" if arrow.share < 0 else ""
        lines.append(
            f'  "{arrow.start}" -> "{arrow.end}" [color="{COLORS[arrow.side]}", '
            f'penwidth={width:.2f}, label="{arrow.side if arrow.side != LOGITS else ""}", '
            f'tooltip="{arrow.share:+.3f}"{style}];'
        )
    return "\n".join([*lines, "}", ""])
