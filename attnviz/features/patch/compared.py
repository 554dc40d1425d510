"""Effects of patching, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.patch.result import Patch, PatchEffect, PathEffect


def figures(found: Patch) -> Figures:
    """The share that each head, or group, restores or removes."""
    values: dict[str, dict[str, float | None]] = {}
    for one in found.effects:
        name = one.name if one.position is None else f"{one.name} at {one.position}"
        values[name] = _shares(found, one)
    values |= {edge.name(found.layout): _shares(found, edge) for edge in found.edges}
    settings = {"task": found.task, "metric": found.metric, "component": found.component}
    return Figures(values, {}, settings | {"by": found.by})


def _shares(found: Patch, one: PatchEffect | PathEffect) -> dict[str, float | None]:
    """By direction."""
    return {
        direction: share.share
        for direction in found.directions
        if (share := one.of(direction)) is not None
    }
