"""The effects of an ablation as rows."""

from __future__ import annotations

from attnviz.drawing.tables import Row, which_head
from attnviz.features.ablation.result import Ablation, Change, Effect

_CHANGE = (
    "low",
    "high",
    "joint_low",
    "joint_high",
    "worse",
    "sure",
    "largest",
    "mean",
    "mean_low",
    "mean_high",
)
_OFTEN = ("often_worse", "often_better")
_EFFECT = ("mean_share", "gradient", "signed", "does", "rests", "members")


def rows(result: Ablation) -> list[Row]:
    """A row for each group of heads; None for what is not known."""
    return [_row(result, effect) for effect in result.effects]


def _row(result: Ablation, effect: Effect) -> Row:
    heads = " ".join(result.layout.name(head) for head in effect.heads)
    row: Row = {"name": effect.name, "heads": heads, **which_head(result.layout, *effect.heads)}
    row |= {"rank": effect.rank, "verdict": effect.verdict}
    row |= {"effect": effect.change}
    row |= {name: getattr(effect.first, name) for name in _CHANGE}
    for name in _OFTEN:
        found = getattr(effect.first, name)
        row |= {name: found and found.texts, f"{name}_least": found and found.least}
    row |= {name: getattr(effect, name) for name in _EFFECT}
    for change in effect.by:
        row |= {f"{change.method}_{name}": value for name, value in _by(change).items()}
    return row


def _by(change: Change) -> Row:
    """What one method says."""
    joint = {name: getattr(change, name) for name in ("joint_low", "joint_high")}
    return {"effect": change.change, **joint}
