"""What a reader of a knockout must not miss, in full sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnviz.features.knockout import words
from attnviz.features.knockout.result import CutEffect, Knockout
from attnviz.features.knockout.writing import MOST
from attnviz.statistics.clusters import FEW, LEAST
from attnviz.statistics.order import too_few

LITTLE = 0.8
"""A control that takes less of the weight deserves a word."""


def notes(result: Knockout) -> tuple[str, ...]:
    """What to say of a result."""
    return tuple(_notes(result))


def _some(result: Knockout, some: Sequence[CutEffect], one: str, several: str) -> str:
    """So many of all cuts have something."""
    if len(result.effects) == 1:
        return f"The cut has {one}"
    if len(some) == len(result.effects):
        return f"All {len(some)} cuts have {several}"
    return f"{len(some)} of {len(result.effects)} cuts {'has' if len(some) == 1 else 'have'} " + (
        one if len(some) == 1 else several
    )


def _notes(result: Knockout) -> Iterator[str]:
    if result.texts > result.clusters:
        yield f"{result.texts:,} texts count as {result.clusters:,}: some are word for word alike."
    if result.clusters < LEAST:
        texts = "One text has" if result.clusters == 1 else f"{result.clusters} texts have"
        yield f"{texts} no interval: nothing is known about others; give {FEW} or more."
    elif said := too_few(result.clusters, result.family, "changes"):
        yield said
    weak = [e for e in result.effects if e.control is not None and (e.matched or 0.0) < LITTLE]
    if weak:
        least = min(weak, key=lambda effect: effect.matched or 0.0)
        yield (
            f"{_some(result, weak, 'a control that takes', 'controls that take')} less weight than "
            f"the cut, since rows have less elsewhere: {words.taken(least)} of it from "
            f"{least.rows} to {least.keys} ({least.name})."
        )
    without = [e for e in result.effects if e.matched is not None and e.control is None]
    if without:
        yield (
            f"{_some(result, without, 'no control', 'no controls')}, which would have to take as "
            "much of the rows from other keys; what they change is judged against 0."
        )
    if result.draws and result.metric == "kl":
        yield "KL is never below 0: what counts is how far it is above that of the control."
    if result.written and len([e for e in result.effects if e.kind != "window"]) > MOST:
        yield f"Texts were written with the first {MOST} cuts alone."
