"""An explanation as rows: the heads that count most, and what was measured of each."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.ablation.result import Change
from attnviz.features.explain.result import Explain


def rows(found: Explain) -> list[Row]:
    """A row for each of the heads, their group and the head that feeds them."""
    listed: list[Row] = []
    for one in found.heads:
        through = one.through
        listed.append(
            {
                "heads": one.effect.name,
                "vote": one.vote,
                "position": one.position,
                "token": found.tokens[one.position],
                "weight": one.weights[one.position],
                "key_from": through and through.origin.name(found.layout),
                "key_share": through and through.share,
                **_changes(one.effect.by),
            }
        )
    for effect in (found.together, found.feeder):
        if effect is not None:
            listed.append(dict.fromkeys(listed[0]) | {"heads": effect.name} | _changes(effect.by))
    return listed


def _changes(by: tuple[Change, ...]) -> Row:
    return {f"without_{one.method}": one.change for one in by}
