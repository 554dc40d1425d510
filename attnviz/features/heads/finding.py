"""Scores and roles of every head, to compare two runs by."""

from __future__ import annotations

from attnviz.core.findings import Figures
from attnviz.features.heads.result import Heads


def figures(result: Heads) -> Figures:
    """The mean of every score, and the roles."""
    name = result.layout.name
    return Figures(
        {name(head.head): {key: s.mean for key, s in head.scores.items()} for head in result.heads},
        {name(head.head): frozenset(role.name for role in head.roles) for head in result.heads},
        {"quantity": result.quantity},
    )
