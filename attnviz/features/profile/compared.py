"""Scores and roles of every head over many texts, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.profile.result import Profile


def figures(found: Profile) -> Figures:
    """The mean of every score, and the roles."""
    heads = {found.layout.name(one.head): one for one in found.heads}
    return Figures(
        {name: {key: e.mean for key, e in one.estimates.items()} for name, one in heads.items()},
        {name: frozenset(role.name for role in one.scores.roles) for name, one in heads.items()},
        {"quantity": found.quantity},
    )
