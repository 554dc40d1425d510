"""What a lens on heads says of each of them: beside others, and to compare two runs by."""

from __future__ import annotations

from attnviz.core.findings import Figures, Finding, Measure
from attnviz.features.lens import words
from attnviz.features.lens.result import Lens


def finding(result: Lens, name: str) -> Finding | None:
    """The words that every head raises and lowers; None where states were read."""
    if not result.heads:
        return None
    said, shares = {}, {}
    for writes in result.heads:
        lines = [words.said(writes)]
        if writes.in_text is not None:
            lines.append(f"the word that it raises most stands in the text: "
                         f"{words.share(writes.in_text)} of the rows")  # fmt: skip
            shares[result.layout.name(writes.head)] = (
                writes.in_text.share, writes.in_text.low, writes.in_text.high,
            )  # fmt: skip
        said[result.layout.name(writes.head)] = lines
    how = (
        f"{words.title(result)}: what it adds to the residual stream, through the last "
        "normalization with its scale, and the LM head; against the mean of the vocabulary."
    )
    measure = Measure(
        "in text", "rows in which the word it raises most stands in the text", "", 0, shares
    )
    return Finding.of("lens", name, "What it writes", how, said, [measure])


def figures(result: Lens) -> Figures:
    """The norm of what each head writes, and how often the word it raises stands in the text."""
    return Figures(
        {
            result.layout.name(writes.head): {
                "norm": writes.norm,
                "in text": None if writes.in_text is None else writes.in_text.share,
            }
            for writes in result.heads
        }
    )
