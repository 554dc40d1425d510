"""What every head gives to named parts, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.core.spans import ELSEWHERE
from attnviz.features.spans.result import Spans


def figures(result: Spans) -> Figures:
    """Shares by span of the same name, and how often the right document is found."""
    name = result.layout.name
    values: dict[str, dict[str, float | None]] = {
        name(head.head): {
            span: share.mean
            for span, share in zip(result.names, head.shares, strict=True)
            if span != ELSEWHERE  # what the others leave
        }
        for head in result.heads
    }
    if result.documents is not None:
        for head in result.documents.ranked:
            values[name(head.head)]["right document"] = head.accuracy.value
    settings = {"rows": result.rows, "quantity": result.quantity}
    return Figures(values, settings=settings)
