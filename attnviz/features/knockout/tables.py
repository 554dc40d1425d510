"""The effects of a knockout as rows."""

from __future__ import annotations

from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.features.knockout.result import CutChange, CutEffect, Knockout

_CHANGE = ("low", "high", "joint_low", "joint_high", "sure", "mean", "mean_low", "mean_high")
COLUMNS = (
    "from", "to", "kind", "heads", *HEAD, "window", "weight", "base", "change", *_CHANGE,
    "control", "matched", "excess", *(f"excess_{name}" for name in _CHANGE), "texts",
)  # fmt: skip


def rows(result: Knockout) -> list[Row]:
    """A row for each cut; None for what is not known."""
    return [_row(result, effect) for effect in result.effects]


def _row(result: Knockout, effect: CutEffect) -> Row:
    row: Row = {"from": effect.rows, "to": effect.keys, "kind": effect.kind, "heads": effect.name}
    row |= which_head(result.layout, *(effect.heads if effect.kind == "heads" else ()))
    row |= {"window": effect.layer, "weight": effect.lost, "base": effect.base}
    row |= {"change": effect.change.value, **_known(effect.change)}
    row |= {"control": effect.control, "matched": effect.matched}
    row |= {"excess": effect.excess and effect.excess.value}
    row |= {f"excess_{name}": value for name, value in _known(effect.excess).items()}
    return row | {"texts": effect.texts}


def _known(change: CutChange | None) -> Row:
    return {name: None if change is None else getattr(change, name) for name in _CHANGE}
