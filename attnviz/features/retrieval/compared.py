"""What needles say of every head, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.retrieval.result import Retrieval


def figures(found: Retrieval) -> Figures:
    """Both scores of every head."""
    values: dict[str, dict[str, float | None]] = {
        found.layout.name(one.head): {"copied": one.copied.value, "question": one.query.value}
        for one in found.heads
    }
    settings = {
        "task": found.task,
        "lengths": ", ".join(map(str, found.lengths)),
        "depths": ", ".join(f"{depth:g}" for depth in found.depths),
        "seed": str(found.seed),
    }
    return Figures(values, settings=settings)
