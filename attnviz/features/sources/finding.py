"""What sources over many texts say of heads, to stand beside them elsewhere."""

from __future__ import annotations

from attnviz.core.findings import Finding, Measure
from attnviz.features.sources import words
from attnviz.features.sources.result import Sources, SourceShares


def finding(result: Sources | SourceShares, name: str) -> Finding | None:
    """Through which earlier heads a head finds its keys; None for a single score."""
    if isinstance(result, Sources):
        return None
    reader = result.name
    shares = {
        result.layout.name(share.origin.head): share for share in result.by_key if share.origin.head
    }
    said: dict[str, tuple[str, ...]] = {
        head: (f"{words.share_of(share)} of what sets the keys of {reader} apart comes through it",)
        for head, share in shares.items()
    }
    said[reader] = (words.shares_sentence(result), *said.get(reader, ()))
    measure = Measure(
        "share",
        f"share of what sets the keys of {reader} apart",
        "",
        words.UP,
        {head: (share.share, share.low, share.high) for head, share in shares.items()},
        ("sets them less apart", "sets them more apart"),
    )
    how = (
        f"{words.rows_of(result)}; the mean score of these keys less that of the others, split "
        "over what earlier parts wrote to the keys, every normalization's scale held."
    )
    return Finding("sources", name, "Where its keys come from", how, said, (measure,))
