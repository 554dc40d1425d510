"""Sources as rows: pairs of them for one score, sides for many texts."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.sources.result import Sources, SourceShares

_SHARE = ("value", "share", "low", "high", "joint_low", "joint_high", "detectable")


def rows(result: Sources | SourceShares) -> list[Row]:
    """A row for each pair of sources of a score; of many texts, for each source of a side."""
    if isinstance(result, SourceShares):
        return [
            {
                "side": side,
                "source": share.origin.name(result.layout),
                "kind": share.origin.kind,
                **{name: getattr(share, name) for name in _SHARE},
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
