"""What needles say of every head, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.retrieval.result import Retrieval


def figures(result: Retrieval) -> Figures:
    """Both scores of every head."""
    values: dict[str, dict[str, float | None]] = {
        result.layout.name(head.head): {"copied": head.copied.value, "question": head.query.value}
        for head in result.heads
    }
    settings = {
        "task": result.task,
        "lengths": ", ".join(map(str, result.lengths)),
        "depths": ", ".join(f"{depth:g}" for depth in result.depths),
        "seed": str(result.seed),
    }
    return Figures(values, settings=settings)
