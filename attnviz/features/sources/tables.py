"""Sources as rows: pairs of them for one score, sides for many texts."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.sources.result import Sources, SourceShares


def rows(found: Sources | SourceShares) -> list[Row]:
    """A row for each pair of sources of a score; of many texts, for each source of a side."""
    if isinstance(found, SourceShares):
        return [
            {
                "side": side,
                "source": one.origin.name(found.layout),
                "kind": one.origin.kind,
                "value": one.value,
                "share": one.share,
                "low": one.low,
                "high": one.high,
                "joint_low": one.joint_low,
                "joint_high": one.joint_high,
            }
            for side, shares in (("query", found.by_query), ("key", found.by_key))
            for one in shares
        ]
    return [
        {
            "query_source": query.name(found.layout),
            "query_kind": query.kind,
            "key_source": key.name(found.layout),
            "key_kind": key.kind,
            "value": value,
        }
        for query, values in zip(found.query_origins, found.matrix, strict=True)
        for key, value in zip(found.key_origins, values, strict=True)
    ]
