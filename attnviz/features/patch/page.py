"""A circuit as one offline page: the graph, and what is known of the head or edge pointed at."""

from __future__ import annotations

from typing import Any

from attnviz.drawing.grid import minus
from attnviz.drawing.html import still
from attnviz.drawing.labels import visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors
from attnviz.features.patch import words
from attnviz.features.patch.graph import FED, LOGITS, Graph, graph
from attnviz.features.patch.result import Circuit, Patch, PatchShare
from attnviz.scoring.roles import ROLES
from attnviz.web.page import result_page


def page(result: Patch) -> bytes:
    """Return the whole page, as UTF-8."""
    circuit = result.circuit
    if circuit is None:
        raise words.no_page()
    diagram = graph(result)
    title = words.title(result)
    data = {
        "title": title,
        "headline": words.headline(result),
        "quote": words.quote(result),
        "task": words.model_does(result),
        "measured": words.circuit_measure(result),
        "closing": f"{result.source.model}, {result.source.backend} backend",
        "tokens": [visible(token.strip()) for token in result.example.clean],
        "answer": result.example.answer,
        "at": result.example.position,
        "most": diagram.most,
        "nodes": _nodes(result, diagram),
        "arrows": _arrows(diagram, circuit),
        "levels": _levels(diagram),
        "fed": {side: f"into {name}" for side, name in FED.items()} | {LOGITS: "to the logits"},
        "curve": [[point.heads, point.faithful.share, point.faithful.low, point.faithful.high]
                  for point in circuit.curve],
        "random": list(circuit.random),
        "size": len(circuit.members),
        "faithful": circuit.faithful.share,
        "palette": list(anchors(DEFAULT_PALETTE)),
    }  # fmt: skip
    return result_page(
        __package__,
        result,
        title=title,
        headline=words.headline(result),
        still=still(result),
        data=data,
    )


def _nodes(result: Patch, diagram: Graph) -> list[dict[str, Any]]:
    listed = []
    for node in diagram.nodes.values():
        member = node.member
        entry: dict[str, Any] = {"name": node.name, "x": node.x, "level": node.level}
        if member is not None:
            role = member.role
            entry |= {
                "role": role,
                "color": ROLES[role].color if role in ROLES else "",
                "rows": [
                    ["restores alone", minus(f"{member.denoise:+.3f}")],
                    ["removes alone", minus(f"{member.noise:+.3f}")],
                    ["circuit without it", _less(member.minimal)],
                    ["in resamples", words.percent(member.often)],
                ],
                "pattern": [list(row) for row in member.pattern],
            }
        listed.append(entry)
    return listed


def _less(share: PatchShare) -> str:
    interval = words.interval(share, joint=False)
    return minus(f"{share.share:+.3f} less faithful") + (f" ({interval})" if interval else "")


def _arrows(diagram: Graph, circuit: Circuit) -> list[dict[str, Any]]:
    return [
        {
            "start": arrow.start,
            "end": arrow.end,
            "side": arrow.side,
            "share": arrow.share,
            "bend": round(arrow.bend, 4),
            "numbers": _numbers(arrow.edge.denoise) + _numbers(arrow.edge.noise) + [arrow.often],
            "rows": [
                ["restored", _known(arrow.edge.denoise)],
                ["removed", _known(arrow.edge.noise)],
                ["in resamples", words.percent(arrow.often or 0.0)],
            ],
        }
        for arrow in diagram.arrows
    ]


def _numbers(share: PatchShare | None) -> list[float | None]:
    """Return a share and its joint interval."""
    return [None] * 3 if share is None else [share.share, share.joint_low, share.joint_high]


def _known(share: PatchShare | None) -> str:
    interval = words.interval(share)
    return words.share(share) + (f" ({interval})" if interval else "")


def _levels(diagram: Graph) -> list[str]:
    """Return the name of every level, from below."""
    names: dict[int, str] = {}
    for node in diagram.nodes.values():
        names[node.level] = LOGITS if node.layer is None else f"layer {node.layer}"
    return [names[level] for level in sorted(names)]
