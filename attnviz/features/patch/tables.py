"""The effects of patching as rows."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.patch.result import DIRECTIONS, Patch

_SHARE = ("share", "low", "high", "joint_low", "joint_high", "raw")
COLUMNS = (
    "name", "heads", "layer", "position",
    *(f"{direction}_{name}" for direction in DIRECTIONS for name in _SHARE), "estimate",
)  # fmt: skip


def rows(found: Patch) -> list[Row]:
    """A row for each thing that was patched; None for what is not known."""
    made = []
    for effect in found.effects:
        heads = " ".join(found.layout.name(head) for head in effect.heads)
        row: Row = {"name": effect.name, "heads": heads, "layer": effect.layer}
        row["position"] = effect.position
        for direction in DIRECTIONS:
            one = effect.of(direction)
            row |= {
                f"{direction}_{name}": None if one is None else getattr(one, name)
                for name in _SHARE
            }
        made.append(row | {"estimate": effect.estimate})
    return made
