"""Heads as rows."""

from __future__ import annotations

from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.features.retrieval.result import Retrieval

COLUMNS = (
    *HEAD, "copied", "copied_low", "copied_high", "copied_all", "query", "query_low",
    "query_high", "weight", "where_chosen",
)  # fmt: skip


def rows(result: Retrieval) -> list[Row]:
    """A row for each head, the first of the ranking first."""
    return [
        {
            **which_head(result.layout, head.head),
            "copied": head.copied.value,
            "copied_low": head.copied.low,
            "copied_high": head.copied.high,
            "copied_all": head.copied_all.value,
            "query": head.query.value,
            "query_low": head.query.low,
            "query_high": head.query.high,
            "weight": head.weight.value,
            "where_chosen": head.where_chosen,
        }
        for head in result.heads
    ]
