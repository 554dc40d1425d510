"""Heads as rows."""

from __future__ import annotations

from attnviz.drawing.tables import Row, spread, which_head
from attnviz.features.retrieval.result import Retrieval


def rows(result: Retrieval) -> list[Row]:
    """A row for each head, the first of the ranking first."""
    return [
        {
            **which_head(result.layout, head.head),
            **spread("copied", head.copied),
            "copied_all": head.copied_all.value,
            **spread("query", head.query),
            "weight": head.weight.value,
            "where_chosen": head.where_chosen,
        }
        for head in result.heads
    ]
