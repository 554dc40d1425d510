"""What sinks say of every head, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.sinks.result import Sinks


def figures(found: Sinks) -> Figures:
    """Weight on the sink, the norm of its value and of the head's output."""
    values: dict[str, dict[str, float | None]] = {
        found.layout.name(one.head): {
            "share": one.share.value,
            "norm": one.norm.value,
            "output": one.output.value,
        }
        for one in found.heads
    }
    return Figures(values, settings={"norms": found.norm_of})
