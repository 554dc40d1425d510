"""Reports on gold annotation as JSON and rows; schemas are docs/syntax.schema.json and the like."""

from __future__ import annotations

import json

from attnviz.annotated import SyntaxReport
from attnviz.annotated.coref import CorefReport
from attnviz.render.tables import Row


def annotated_json(report: SyntaxReport | CorefReport) -> str:
    """JSON text."""
    return json.dumps(report.to_json(), ensure_ascii=False, indent=2, allow_nan=False)


_BEST = (
    "head", "direction", "accuracy", "low", "high", "held_out", "offset", "offset_accuracy",
    "margin", "margin_low", "margin_high", "role",
)  # fmt: skip


def relation_rows(report: SyntaxReport) -> list[Row]:
    """A row for each relation: ``count`` cases in all, ``held_out`` those that are measured on."""
    sure = {(role.head, role.relation) for role in report.roles}
    rows: list[Row] = []
    for relation in report.relations:
        row: Row = {"relation": relation.name, "count": relation.count, **dict.fromkeys(_BEST)}
        if best := relation.best:
            row |= {
                "head": report.layout.name(best.head),
                "direction": best.direction,
                "accuracy": best.accuracy.value,
                "low": best.accuracy.low,
                "high": best.accuracy.high,
                "held_out": best.count,
                "offset": best.offset,
                "offset_accuracy": best.offset_accuracy,
                **best.margin.to_json("margin"),
                "role": (best.head, relation.name) in sure,
            }
        rows.append(row)
    return rows


def coref_rows(report: CorefReport) -> list[Row]:
    """A row for each kind of example and head that can be chosen for it, the best first."""
    return [
        {"kind": kind.name, **found.to_json(report.layout)}
        for kind in report.kinds
        for found in kind.ranked
    ]
