"""Effects of patching, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.patch.result import Patch


def figures(found: Patch) -> Figures:
    """The share that each head, or group, restores or removes."""
    return Figures(
        {
            one.name if one.position is None else f"{one.name} at {one.position}": {
                direction: share.share
                for direction in found.directions
                if (share := one.of(direction)) is not None
            }
            for one in found.effects
        }
        | {
            one.name(found.layout): {
                direction: share.share
                for direction in found.directions
                if (share := one.of(direction)) is not None
            }
            for one in found.edges
        },
        {},
        {"task": found.task, "metric": found.metric, "component": found.component, "by": found.by},
    )
