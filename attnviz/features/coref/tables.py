"""Heads that find antecedents as rows."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.coref.result import Coref

COLUMNS = (
    "kind", "head", "direction", "accuracy", "low", "high", "count", "baseline",
    "baseline_accuracy", "margin", "margin_low", "margin_high",
)  # fmt: skip


def rows(found: Coref) -> list[Row]:
    """A row for each kind of example and head that can be chosen for it, the best first."""
    return [
        {
            "kind": kind.name,
            "head": found.layout.name(one.head),
            "direction": one.direction,
            "accuracy": one.accuracy.value,
            "low": one.accuracy.low,
            "high": one.accuracy.high,
            "count": one.count,
            "baseline": one.baseline,
            "baseline_accuracy": one.baseline_accuracy,
            "margin": one.margin.value,
            "margin_low": one.margin.low,
            "margin_high": one.margin.high,
        }
        for kind in found.kinds
        for one in kind.ranked
    ]
