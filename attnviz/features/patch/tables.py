"""The effects of patching as rows."""

from __future__ import annotations

from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.features.patch.result import DIRECTIONS, Patch, PatchEffect, PathEffect

_SHARE = ("share", "low", "high", "typical", "joint_low", "joint_high", "raw")
COLUMNS = (
    "name", "heads", *HEAD, "position",
    *(f"{direction}_{name}" for direction in DIRECTIONS for name in _SHARE), "estimate",
)  # fmt: skip


def rows(result: Patch) -> list[Row]:
    """A row for each thing that was patched; None for what is not known."""
    made = [_edge(result, edge) for edge in result.edges]
    for effect in result.effects:
        heads = " ".join(result.layout.name(head) for head in effect.heads)
        row: Row = {"name": effect.name, "heads": heads} | which_head(result.layout, *effect.heads)
        row["layer"] = effect.layer if row["layer"] is None else row["layer"]
        row["position"] = effect.position
        made.append(row | _shares(effect) | {"estimate": effect.estimate})
    return made


def _edge(result: Patch, edge: PathEffect) -> Row:
    """A row of a path: its heads are the sender and the receivers."""
    heads = " ".join(result.layout.name(head) for head in (edge.sender, *edge.receivers))
    row: Row = {"name": edge.name(result.layout), "heads": heads} | which_head(result.layout)
    row["layer"] = edge.sender.layer
    return row | {"position": None} | _shares(edge) | {"estimate": edge.estimate}


def _shares(effect: PatchEffect | PathEffect) -> Row:
    return {
        f"{direction}_{name}": None if share is None else getattr(share, name)
        for direction in DIRECTIONS
        for share in [effect.of(direction)]
        for name in _SHARE
    }
