"""What a reader of thoughts must not miss, in full sentences."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.drawing.labels import counted
from attnviz.features.thoughts.result import Thoughts
from attnviz.features.thoughts.scores import LEAST
from attnviz.statistics.clusters import FEW
from attnviz.statistics.clusters import LEAST as LEAST_TRACES


def notes(result: Thoughts) -> tuple[str, ...]:
    """What to say of a result."""
    return tuple(_notes(result))


def _notes(result: Thoughts) -> Iterator[str]:
    if result.texts > result.clusters:
        yield f"{result.texts:,} traces count as {result.clusters:,}: some are word for word alike."
    if result.clusters == 1:
        yield (
            "One trace: which heads are receivers, and which sentences count, may be its own; "
            f"nothing is known about others. Give {FEW} or more for intervals."
        )
    elif result.clusters < LEAST_TRACES:
        yield f"{result.clusters} traces have no interval; give {FEW} or more."
    elif result.clusters < FEW:
        yield f"Intervals from {result.clusters} traces cover less than 95 %; give {FEW} or more."
    short = [t for t in result.traces if len(t.sentences) < result.apart + LEAST]
    if short:
        yield (
            f"{counted(len(short), 'trace')} of fewer than {result.apart + LEAST} sentences: too "
            f"few are read from {result.apart} or more sentences later for a kurtosis."
        )
