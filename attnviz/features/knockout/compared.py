"""Effects of cuts, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.knockout.result import Knockout


def figures(result: Knockout) -> Figures:
    """The change by each cut, under the name of its heads and its pair."""
    values: dict[str, dict[str, float | None]] = {}
    for effect in result.effects:
        pair = f"{effect.rows} to {effect.keys}"
        values.setdefault(effect.name, {})[pair] = effect.change.value
    return Figures(values, settings={"metric": result.metric, "method": result.method})
