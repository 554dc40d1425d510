"""What every head writes, in figures, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.lens.result import Lens


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
