"""Effects and roles of groups of heads, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.ablation.result import Ablation


def figures(found: Ablation) -> Figures:
    """The change of the metric without each group, by the first method."""
    return Figures(
        {one.name: {"effect": one.change} for one in found.effects},
        {one.name: frozenset(filter(None, (one.does, one.rests))) for one in found.effects},
        {
            "metric": found.metric,
            "methods": ", ".join(found.methods),
            "average": found.average,
            "at": found.at or "all tokens",
        },
    )
