"""What a reader of thoughts must not miss, in full sentences."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.drawing.labels import counted, quoted, shorten, visible
from attnviz.features.thoughts.result import Thoughts
from attnviz.features.thoughts.scores import LEAST
from attnviz.features.thoughts.words import nobody
from attnviz.statistics.clusters import FEW
from attnviz.statistics.clusters import LEAST as LEAST_TRACES

_QUOTED = 60


def notes(result: Thoughts) -> tuple[str, ...]:
    """What to say of a result."""
    return tuple(_notes(result))


def _notes(result: Thoughts) -> Iterator[str]:
    if result.texts > result.clusters:
        yield f"{result.texts:,} traces count as {result.clusters:,}: some are word for word alike."
    if result.clusters == 1:
        yield (
            "One trace: which heads return to few sentences, and which sentences count, may be its "
            f"own; nothing is known about others. Give {FEW} or more for intervals."
        )
    if len(result.traces) == 1 and (said := nobody(result)):
        yield said
    if result.resampled:
        yield from _resampled(result)
    short = [t for t in result.traces if len(t.sentences) < result.apart + LEAST]
    if short:
        yield (
            f"{counted(len(short), 'trace')} of fewer than {result.apart + LEAST} sentences: too "
            f"few are read from {result.apart} or more sentences later for a kurtosis."
        )


def _resampled(result: Thoughts) -> Iterator[str]:
    """Of sentences that were written anew."""
    trace = result.traces[0]
    answer = quoted(shorten(visible(trace.answer), _QUOTED))
    of = " of the first trace" * (len(result.traces) > 1)
    yield f"The answer{of} that sentences are written anew for is {answer}"
    if result.resampled < LEAST_TRACES:
        count = counted(result.resampled, "continuation")
        yield f"{count} of each sentence have no interval; ask for {LEAST_TRACES} or more."
    anew = [row for trace in result.traces for row in trace.resampled]
    if any(not row.continuations for row in anew):
        yield "A sentence with nothing before it cannot be written anew."
    drawn = [continuation for row in anew for continuation in row.continuations]
    same = sum(continuation.same for continuation in drawn)
    if same:
        count = counted(len(drawn), "continuation")
        yield f"Of {count}, {same:,} begin with the very sentence that they replace."
