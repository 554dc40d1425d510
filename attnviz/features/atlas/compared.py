"""What an atlas knows of every head, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.atlas.result import Atlas, AtlasHead


def figures(atlas: Atlas) -> Figures:
    """The mean of every score, what ablating costs, shares of antecedents, copying; and roles."""
    heads = {atlas.layout.name(head.head): head for head in atlas.heads}
    part = atlas.ablation
    return Figures(
        {name: _of(head) for name, head in heads.items()},
        {name: _roles(head) for name, head in heads.items()},
        {} if part is None else {"metric": part.metric},
    )


def _of(head: AtlasHead) -> dict[str, float | None]:
    values = {score: estimate.mean for score, estimate in head.profile.estimates.items()}
    if head.effect is not None:
        values["effect"] = head.effect.change
    if head.antecedents is not None:
        values["antecedents"] = head.antecedents.accuracy.value
    for name, copying in (("copying plain", head.plain), ("copying first", head.first)):
        if copying is not None:
            values[name] = copying.score
    return values


def _roles(head: AtlasHead) -> frozenset[str]:
    given = [role.title for role, _ in head.annotated]
    return frozenset([*given, *(role.name for role in head.profile.scores.roles)])
