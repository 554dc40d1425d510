"""Heads as rows."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.retrieval.result import Retrieval

COLUMNS = (
    "head", "copied", "copied_low", "copied_high", "copied_all", "query", "query_low",
    "query_high", "weight", "where_chosen",
)  # fmt: skip


def rows(found: Retrieval) -> list[Row]:
    """A row for each head, the first of the ranking first."""
    return [
        {
            "head": found.layout.name(one.head),
            "copied": one.copied.value,
            "copied_low": one.copied.low,
            "copied_high": one.copied.high,
            "copied_all": one.copied_all.value,
            "query": one.query.value,
            "query_low": one.query.low,
            "query_high": one.query.high,
            "weight": one.weight.value,
            "where_chosen": one.where_chosen,
        }
        for one in found.heads
    ]
