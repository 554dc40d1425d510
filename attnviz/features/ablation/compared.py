"""Effects and roles of groups of heads, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.ablation.result import Ablation


def figures(result: Ablation) -> Figures:
    """The change of the metric without each group, by the first method."""
    return Figures(
        {effect.name: {"effect": effect.change} for effect in result.effects},
        {
            effect.name: frozenset(filter(None, (effect.does, effect.rests)))
            for effect in result.effects
        },
        {
            "metric": result.metric,
            "methods": ", ".join(result.methods),
            "average": result.average,
            "at": result.at or "all tokens",
        },
    )
