"""What a film says of every head, to stand beside it elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import Finding, Measure
from attnviz.drawing.labels import counted
from attnviz.features.film.result import Film, HeadFilm
from attnviz.features.film.words import between, heading, meanwhile, spans


def finding(found: Film, name: str) -> Finding:
    """When every head formed.

    Args:
        found: the film, of which the last checkpoint is the model.
        name: of its file.
    """
    heads = {found.layout.name(one.head): one for one in found.heads}
    formed = {
        found.layout.name(one.head): (float(one.step), _float(one.low), _float(one.high))
        for one in reversed(found.formations)
    }
    return Finding(
        "film",
        name,
        "While it was trained",
        f"{heading(found)}, on {counted(found.texts, 'text')}; a head formed at the first "
        "checkpoint at which its score is past the middle of its rise.",
        {head: tuple(life(found, one)) for head, one in heads.items()},
        (Measure("formed", "step at which it formed", "steps", 0, formed),) if formed else (),
    )


def life(film: Film, head: HeadFilm) -> Iterator[str]:
    """When it had which role, and when it formed, line by line."""
    for span in spans(film, head):
        yield f"{span.role}, steps {span.steps}"
    for one in film.formations:
        if one.head == head.head:
            said = meanwhile(one)
            yield (
                f"formed for {one.role} at step {one.step:,}{between(one.low, one.high)}"
                f"{'; ' if said else ''}{said}"
            )
    if not any(head.roles):
        yield "no role at any step"


def _float(value: int | None) -> float | None:
    return None if value is None else float(value)
