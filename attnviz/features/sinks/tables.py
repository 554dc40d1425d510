"""Heads as rows."""

from __future__ import annotations

from attnviz.drawing.tables import Row, spread, which_head
from attnviz.features.sinks.result import GATE_CLASSES, GateByToken, Sinks


def rows(result: Sinks) -> list[Row]:
    """A row for each head."""
    return [
        {
            **which_head(result.layout, head.head),
            "position": head.position,
            "token": head.token,
            "texts": head.texts,
            **spread("share", head.share),
            "chance": head.chance,
            "weight": head.weight.value,
            "norm": head.norm.value,
            "written": head.written.value,
            "learned": head.learned.value,
            "output": head.output.value,
            **spread("gate", head.gate),
            **_by_token(head.gates),
            "dormant": result.is_dormant(head),
            **spread("without", head.without),
            **spread("without_sink", head.without_sink),
        }
        for head in result.heads
    ]


def _by_token(gates: GateByToken | None) -> Row:
    """How far a gate is open at tokens of every class, empty without one."""
    row: Row = {}
    for name in GATE_CLASSES:
        row |= spread(f"gate_{name}", None if gates is None else getattr(gates, name))
    return row
