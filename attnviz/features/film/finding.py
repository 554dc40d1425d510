"""What a film says of every head: beside others, and to compare two runs by."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import Figures, Finding, Measure
from attnviz.drawing.labels import counted
from attnviz.features.film.result import Film, HeadFilm
from attnviz.features.film.words import between, heading, meanwhile, spans


def finding(film: Film, name: str) -> Finding:
    """When every head formed."""
    formed = {
        film.layout.name(f.head): (float(f.step), _float(f.low), _float(f.high))
        for f in reversed(film.formations)
    }
    how = (
        f"{heading(film)}, on {counted(film.texts, 'text')}; a head formed at the first "
        "checkpoint at which its score is past the middle of its rise."
    )
    said = {film.layout.name(head.head): life(film, head) for head in film.heads}
    measure = Measure("formed", "step at which it formed", "steps", 0, formed)
    return Finding.of("film", name, "While it was trained", how, said, [measure])


def life(film: Film, head: HeadFilm) -> Iterator[str]:
    """When it had which role, and when it formed, line by line."""
    for span in spans(film, head):
        yield f"{span.role}, steps {span.steps}"
    for formation in film.formations:
        if formation.head == head.head:
            said = meanwhile(formation)
            yield (
                f"formed for {formation.role} at step {formation.step:,}"
                f"{between(formation.low, formation.high)}"
                f"{'; ' if said else ''}{said}"
            )
    if not any(head.roles):
        yield "no role at any step"


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)


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
