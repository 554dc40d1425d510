"""Scores and roles of every head over many texts, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.profile.result import Profile


def figures(result: Profile) -> Figures:
    """The mean of every score, and the roles."""
    heads = {result.layout.name(head.head): head for head in result.heads}
    return Figures(
        {name: {key: e.mean for key, e in head.estimates.items()} for name, head in heads.items()},
        {name: frozenset(role.name for role in head.scores.roles) for name, head in heads.items()},
        {"quantity": result.quantity},
    )
