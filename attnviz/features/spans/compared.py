"""What every head gives to named parts, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.core.spans import ELSEWHERE
from attnviz.features.spans.result import Spans


def figures(found: Spans) -> Figures:
    """Shares by span of the same name, and how often the right document is found."""
    name = found.layout.name
    values: dict[str, dict[str, float | None]] = {
        name(one.head): {
            span: share.mean
            for span, share in zip(found.names, one.shares, strict=True)
            if span != ELSEWHERE  # what the others leave
        }
        for one in found.heads
    }
    if found.documents is not None:
        for one in found.documents.ranked:
            values[name(one.head)]["right document"] = one.accuracy.value
    settings = {"rows": found.rows, "quantity": found.quantity}
    return Figures(values, settings=settings)
