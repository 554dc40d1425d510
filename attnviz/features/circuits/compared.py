"""What weights say of every head, to compare two models by."""

from __future__ import annotations

from dataclasses import asdict

from attnviz.core.compared import Figures
from attnviz.core.heads import Head
from attnviz.features.circuits.result import Circuits


def figures(result: Circuits) -> Figures:
    """Copying, where positions send a head, and its strongest edges as writer and as reader."""
    return Figures({result.layout.name(head): _of(result, head) for head in result.layout})


def _of(result: Circuits, head: Head) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for name, scores in (("copying plain", result.plain), ("copying first", result.first)):
        if head in scores:
            values[name] = scores[head].score
    if head in result.by_position:
        means = asdict(result.by_position[head])
        values |= {f"{place} by position": weight for place, weight in means.items()}
    written = [edge.excess for edge in result.edges if edge.writer == head]
    read = [edge.excess for edge in result.edges if edge.reader == head]
    values["strongest edge out"] = max(written, default=None)
    values["strongest edge in"] = max(read, default=None)
    return values
