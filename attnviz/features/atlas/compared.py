"""What an atlas knows of every head, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.atlas.result import Atlas, AtlasHead


def figures(atlas: Atlas) -> Figures:
    """The mean of every score, what ablating costs, shares of antecedents, copying; and roles."""
    heads = {atlas.layout.name(one.head): one for one in atlas.heads}
    part = atlas.ablation
    return Figures(
        {name: _of(one) for name, one in heads.items()},
        {name: _roles(one) for name, one in heads.items()},
        {} if part is None else {"metric": part.metric},
    )


def _of(one: AtlasHead) -> dict[str, float | None]:
    values = {score: estimate.mean for score, estimate in one.profile.estimates.items()}
    if one.effect is not None:
        values["effect"] = one.effect.change
    if one.antecedents is not None:
        values["antecedents"] = one.antecedents.accuracy.value
    for name, found in (("copying plain", one.plain), ("copying first", one.first)):
        if found is not None:
            values[name] = found.score
    return values


def _roles(one: AtlasHead) -> frozenset[str]:
    given = [role.title for role, _ in one.annotated]
    return frozenset([*given, *(role.name for role in one.profile.scores.roles)])
