"""What sources over many texts say of heads, to stand beside them elsewhere."""

from __future__ import annotations

from attnviz.core.findings import Finding, Measure
from attnviz.features.sources import words
from attnviz.features.sources.result import Sources, SourceShares


def finding(found: Sources | SourceShares, name: str) -> Finding | None:
    """Through which earlier heads a head finds its keys; None for a single score.

    Args:
        found: the result.
        name: of its file.
    """
    if isinstance(found, Sources):
        return None
    reader = found.name
    shares = {found.layout.name(one.origin.head): one for one in found.by_key if one.origin.head}
    said: dict[str, tuple[str, ...]] = {
        head: (f"{words.share_of(one)} of what sets the keys of {reader} apart comes through it",)
        for head, one in shares.items()
    }
    said[reader] = (words.shares_sentence(found), *said.get(reader, ()))
    measure = Measure(
        "share",
        f"share of what sets the keys of {reader} apart",
        "",
        words.UP,
        {head: (one.share, one.low, one.high) for head, one in shares.items()},
    )
    how = (
        f"{words.rows_of(found)}; the mean score of these keys less that of the others, split over "
        "what earlier parts wrote to the keys, every normalization's scale held."
    )
    return Finding("sources", name, "Where its keys come from", how, said, (measure,))
