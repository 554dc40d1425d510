"""Sources as rows: pairs of them for one score, sides for many texts."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.sources.result import Sources, SourceShares


def rows(result: Sources | SourceShares) -> list[Row]:
    """A row for each pair of sources of a score; of many texts, for each source of a side."""
    if isinstance(result, SourceShares):
        return [
            {
                "side": side,
                "source": share.origin.name(result.layout),
                "kind": share.origin.kind,
                "value": share.value,
                "share": share.share,
                "low": share.low,
                "high": share.high,
                "joint_low": share.joint_low,
                "joint_high": share.joint_high,
            }
            for side, shares in (("query", result.by_query), ("key", result.by_key))
            for share in shares
        ]
    return [
        {
            "query_source": query.name(result.layout),
            "query_kind": query.kind,
            "key_source": key.name(result.layout),
            "key_kind": key.kind,
            "value": value,
        }
        for query, values in zip(result.query_origins, result.matrix, strict=True)
        for key, value in zip(result.key_origins, values, strict=True)
    ]
