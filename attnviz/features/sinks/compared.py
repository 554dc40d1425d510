"""What sinks say of every head, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.sinks.result import Sinks


def figures(result: Sinks) -> Figures:
    """Weight on the sink, the norm of its value and of the head's output."""
    values: dict[str, dict[str, float | None]] = {
        result.layout.name(head.head): {
            "share": head.share.value,
            "norm": head.norm.value,
            "output": head.output.value,
        }
        for head in result.heads
    }
    return Figures(values, settings={"norms": result.norm_of})
