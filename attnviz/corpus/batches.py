"""Tokenized texts in batches of about the same length.

The plan depends on the texts alone, not on how many processes work on it or what is already done:
texts are put in order of length in windows of :data:`WINDOW` and cut into batches there. So a run
that was interrupted, or split up, forms the same batches again and gets the same weights, bit by
bit, and memory holds one window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from attnviz.core.prompt import Inputs
from attnviz.core.source import Source
from attnviz.corpus.texts import InvalidRecord, Text
from attnviz.errors import InputError, UsageError

WINDOW = 64
"""Texts that are put in order of length together."""
LARGEST_BATCH = 16


@dataclass(frozen=True, eq=False, slots=True)
class Tokenized:
    """A text and what the model makes of it."""

    text: Text
    inputs: Inputs


def tokenize(
    texts: Iterable[Text | InvalidRecord],
    source: Source,
    *,
    special_tokens: bool = True,
    truncate: bool = False,
) -> Iterator[Tokenized | InvalidRecord]:
    """Every text as a model takes it, or why it cannot."""
    for text in texts:
        if isinstance(text, InvalidRecord):
            yield text
            continue
        prompt = replace(text.prompt, special_tokens=special_tokens, truncate=truncate)
        try:
            inputs = source.prepare(prompt)
        except (InputError, UsageError) as error:
            yield InvalidRecord(text.number, text.place, error.message)
        else:
            yield Tokenized(text, inputs)


def batches(
    texts: Iterable[Tokenized | InvalidRecord],
    cost: Callable[[Inputs], int],
    budget: int,
    *,
    window: int = WINDOW,
    largest: int = LARGEST_BATCH,
) -> Iterator[tuple[Tokenized, ...] | InvalidRecord]:
    """Texts in batches, the shortest of a window first."""
    waiting: list[Tokenized] = []
    for text in texts:
        if isinstance(text, InvalidRecord):
            yield text
            continue
        waiting.append(text)
        if len(waiting) == window:
            yield from _cut(waiting, cost, budget, largest)
            waiting = []
    yield from _cut(waiting, cost, budget, largest)


def _cut(
    window: list[Tokenized], cost: Callable[[Inputs], int], budget: int, largest: int
) -> Iterator[tuple[Tokenized, ...]]:
    """The batches of one window."""
    window.sort(key=lambda candidate: (candidate.inputs.length, candidate.text.number))
    costs = [cost(candidate.inputs) for candidate in window]
    for batch in packed(costs, budget, largest):
        yield tuple(window[number] for number in batch)


def packed(costs: Sequence[int], budget: int, largest: int) -> Iterator[list[int]]:
    """Numbers of items in batches, in the order in which they stand, the cheapest first."""
    batch: list[int] = []
    for number, cost in enumerate(costs):
        if batch and (len(batch) == largest or (len(batch) + 1) * cost > budget):
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
