"""An explanation as rows: heads for and against the answer, and what was measured of each."""

from __future__ import annotations

from attnviz.drawing.tables import Row, which_head
from attnviz.features.ablation.result import Change
from attnviz.features.explain.result import Explain


def rows(result: Explain) -> list[Row]:
    """A row for each head, the group of those for the answer and the head that feeds them."""
    listed: list[Row] = []
    for head in result.shown_heads:
        through = head.through
        listed.append(
            {
                "heads": head.effect.name,
                **which_head(result.layout, *head.effect.heads),
                "vote": head.vote,
                "position": head.position,
                "token": result.tokens[head.position],
                "weight": head.weights[head.position],
                "key_from": through and through.origin.name(result.layout),
                "key_share": through and through.share,
                **_changes(head.effect.by),
            }
        )
    for effect in (result.together, result.feeder):
        if effect is not None:
            listed.append(dict.fromkeys(listed[0]) | {"heads": effect.name} | _changes(effect.by))
    return listed


def _changes(by: tuple[Change, ...]) -> Row:
    return {f"without_{change.method}": change.change for change in by}
