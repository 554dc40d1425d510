"""Heads that find antecedents as rows."""

from __future__ import annotations

from attnviz.drawing.tables import HEAD, Row, spread, which_head
from attnviz.features.coref.result import Coref

COLUMNS = (
    "kind", *HEAD, "direction", "accuracy", "low", "high", "count", "baseline",
    "baseline_accuracy", "margin", "margin_low", "margin_high",
)  # fmt: skip


def rows(result: Coref) -> list[Row]:
    """A row for each kind of example and head that can be chosen for it, the best first."""
    return [
        {
            "kind": kind.name,
            **which_head(result.layout, head.head),
            "direction": head.direction,
            "accuracy": head.accuracy.value,
            "low": head.accuracy.low,
            "high": head.accuracy.high,
            "count": head.count,
            "baseline": head.baseline,
            "baseline_accuracy": head.baseline_accuracy,
            **spread("margin", head.margin),
        }
        for kind in result.kinds
        for head in kind.ranked
    ]
