"""Scores and roles of every head at the last step, to compare two films by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.film.result import Film


def figures(found: Film) -> Figures:
    """The mean of every score at the last step, and the roles there."""
    heads = {found.layout.name(one.head): one for one in found.heads}
    return Figures(
        {name: {key: c.mean[-1] for key, c in one.scores.items()} for name, one in heads.items()},
        {name: frozenset(one.roles[-1]) for name, one in heads.items()},
        {"steps": f"{found.steps[0]} to {found.steps[-1]}"},
    )
