"""Relations as rows."""

from __future__ import annotations

from attnviz.drawing.tables import Row, spread, which_head
from attnviz.features.syntax.result import Syntax

_BEST = (
    "direction", "accuracy", "low", "high", "held_out", "offset", "offset_accuracy",
    "margin", "margin_low", "margin_high", "role",
)  # fmt: skip


def rows(result: Syntax) -> list[Row]:
    """A row for each relation: ``count`` cases in all, ``held_out`` those that are measured on."""
    sure = {(role.head, role.relation) for role in result.roles}
    listed: list[Row] = []
    for relation in result.relations:
        row: Row = {"relation": relation.name, "count": relation.count}
        row |= which_head(result.layout) | dict.fromkeys(_BEST)
        if best := relation.best:
            row |= {
                **which_head(result.layout, best.head),
                "direction": best.direction,
                "accuracy": best.accuracy.value,
                "low": best.accuracy.low,
                "high": best.accuracy.high,
                "held_out": best.count,
                "offset": best.offset,
                "offset_accuracy": best.offset_accuracy,
                **spread("margin", best.margin),
                "role": (best.head, relation.name) in sure,
            }
        listed.append(row)
    return listed
