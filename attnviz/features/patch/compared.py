"""Effects of patching, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.patch.result import Patch, PatchEffect, PathEffect


def figures(result: Patch) -> Figures:
    """The share that each head, or group, restores or removes."""
    values: dict[str, dict[str, float | None]] = {}
    for effect in result.effects:
        name = effect.name if effect.position is None else f"{effect.name} at {effect.position}"
        values[name] = _shares(result, effect)
    values |= {edge.name(result.layout): _shares(result, edge) for edge in result.edges}
    settings = {"task": result.task, "metric": result.metric, "component": result.component}
    return Figures(values, {}, settings | {"by": result.by})


def _shares(result: Patch, effect: PatchEffect | PathEffect) -> dict[str, float | None]:
    """By direction."""
    return {
        direction: share.share
        for direction in result.directions
        if (share := effect.of(direction)) is not None
    }
