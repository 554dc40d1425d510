"""What circuits say of every head: beside others, and to compare two runs by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from attnviz.core.findings import COPYING, Figures, Finding, Measure, bare
from attnviz.core.heads import Head
from attnviz.drawing.labels import number
from attnviz.features.circuits import words
from attnviz.features.circuits.result import SIDES, Circuits

_NAMED = 3
"""Edges of each side that a head is told of, in and out."""


def finding(result: Circuits, name: str) -> Finding:
    """What each head copies, where positions alone send it, and which heads feed it."""
    layout = result.layout
    scores = result.copying()
    strongest = {
        layout.name(head): max(of)
        for head in layout
        if (of := [edge.excess for edge in result.edges if edge.writer == head])
    }
    copied = bare({layout.name(head): copying.score for head, copying in scores.items()})
    before = bare({layout.name(head): p.previous for head, p in result.by_position.items()})
    edge = "strongest edge into a later head, above random matrices"
    measures = (
        Measure("copying", "copying score", "", words.UP, copied, COPYING),
        Measure("previous", "weight on the position before, by positions alone", "", 0, before),
        Measure("writes", edge, "", 0, bare(strongest)),
    )
    how = (
        "From weights alone, no text: how much of what it writes later heads read, above random "
        "matrices of the same shapes; whether it raises the tokens that it reads (copying, -1 to "
        "1); and where it would look if position embeddings were all there is."
    )
    missing = [reason for what, reason in result.reasons.items() if what != "Q and K"]
    if missing:
        how += f" Not all of it is known: {'; '.join(missing)}."
    said = {layout.name(head): _lines(result, head) for head in layout}
    return Finding.of("circuits", name, "What its weights allow", how, said, measures)


def _lines(result: Circuits, head: Head) -> Iterator[str]:
    copying, places = result.copying().get(head), result.by_position.get(head)
    if copying is not None:
        yield f"copying score {copying.score:+.2f}"
    if places is not None and result.uniform is not None:
        place, weight = places.strongest()
        even = getattr(result.uniform, place)
        yield (
            f"by positions alone most weight on {words.PLACES[place]}: {number(weight)} "
            f"(uniform {number(even)})"
        )
    name = result.layout.name
    for side in SIDES if result.edges else ():
        edges = words.shown(result, side, len(result.edges))
        into = [f"{name(e.writer)} ({e.excess:+.3f})" for e in edges if e.reader == head][:_NAMED]
        out = [f"{name(e.reader)} ({e.excess:+.3f})" for e in edges if e.writer == head][:_NAMED]
        if into:
            yield f"its {words.FED[side]} can be fed by {', '.join(into)}"
        if out:
            yield f"it can feed the {words.FED[side]} of {', '.join(out)}"


def figures(result: Circuits) -> Figures:
    """Copying, where positions send a head, and its strongest edges as writer and as reader."""
    return Figures({result.layout.name(head): _of(result, head) for head in result.layout})


def _of(result: Circuits, head: Head) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for name, scores in (("copying plain", result.plain), ("copying first", result.first)):
        if head in scores:
            values[name] = scores[head].score
    if head in result.by_position:
        means = asdict(result.by_position[head])
        values |= {f"{place} by position": weight for place, weight in means.items()}
    written = [edge.excess for edge in result.edges if edge.writer == head]
    read = [edge.excess for edge in result.edges if edge.reader == head]
    values["strongest edge out"] = max(written, default=None)
    values["strongest edge in"] = max(read, default=None)
    return values
