"""Scores and roles of every head at the last step, to compare two films by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.film.result import Film


def figures(film: Film) -> Figures:
    """The mean of every score at the last step, and the roles there."""
    heads = {film.layout.name(head.head): head for head in film.heads}
    return Figures(
        {
            name: {key: curve.mean[-1] for key, curve in head.scores.items()}
            for name, head in heads.items()
        },
        {name: frozenset(head.roles[-1]) for name, head in heads.items()},
        {"steps": f"{film.steps[0]} to {film.steps[-1]}"},
    )
