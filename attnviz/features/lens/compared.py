"""What every head writes, in figures, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.lens.result import Lens


def figures(found: Lens) -> Figures:
    """The norm of what each head writes, and how often the word it raises stands in the text."""
    return Figures(
        {
            found.layout.name(one.head): {
                "norm": one.norm,
                "in text": None if one.in_text is None else one.in_text.share,
            }
            for one in found.heads
        }
    )
