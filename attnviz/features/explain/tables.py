"""An explanation as rows: heads for and against the answer, and what was measured of each."""

from __future__ import annotations

from attnviz.drawing.tables import Row, which_head
from attnviz.features.ablation.result import Change
from attnviz.features.explain.result import Explain


def rows(result: Explain) -> list[Row]:
    """A row for each head that is told about, groups of heads, and every part of the lead."""
    listed: list[Row] = []
    for head in result.shown_heads:
        through = head.through
        listed.append(
            {
                "part": "head",
                "heads": head.effect.name,
                **which_head(result.layout, *head.effect.heads),
                "adds": head.vote,
                "through_voters": None,
                "counts": head in result.heads,
                "position": head.position,
                "token": result.tokens[head.position],
                "weight": head.weights[head.position],
                "key_from": through and through.origin.name(result.layout),
                "key_share": through and through.share,
                **_changes(head.effect.by),
            }
        )
    empty: Row = dict.fromkeys(listed[0])
    listed += [
        empty | {"part": "group", "heads": effect.name} | _changes(effect.by)
        for effect in result.groups
    ]
    traced = {f"MLP {share.layer}": share for share in result.mlps}
    for name, value in result.account():
        share = traced.get(name)
        listed.append(
            empty
            | {"part": name, "adds": value, "through_voters": share.together if share else None}
        )
    return listed


def _changes(by: tuple[Change, ...]) -> Row:
    return {f"without_{change.method}": change.change for change in by}
