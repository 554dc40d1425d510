"""Scores and roles of every head, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.heads.result import Heads


def figures(found: Heads) -> Figures:
    """The mean of every score, and the roles."""
    name = found.layout.name
    return Figures(
        {name(one.head): {key: s.mean for key, s in one.scores.items()} for one in found.heads},
        {name(one.head): frozenset(role.name for role in one.roles) for one in found.heads},
        {"quantity": found.quantity},
    )
