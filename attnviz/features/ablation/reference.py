"""Which texts say what takes a head's place: others than those it is measured on.

A text whose heads are filled from itself tells nothing: its own mean at every position is its own
output. So means and donors come from a reference that is disjoint from what is measured: texts that
were given for it; or, of several texts, the half that a text is not in, each half filled from the
other (cross-fitting); or, for a single text, sentences that ship with attnviz.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

import torch

from attnviz.captures.trials import Trial, predicted
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Source
from attnviz.corpus.sentences import sentences
from attnviz.errors import AttnvizError, UsageError
from attnviz.features.ablation.fills import Fills, MeanOver, Means, donors, lengths_of, resampled


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Texts that fill others.

    Attributes:
        texts: as they run, with masks where the texts they fill have some.
        means: over them.
    """

    texts: tuple[Inputs, ...]
    means: Means

    @classmethod
    def of(cls, source: Source, texts: Sequence[Inputs], over: MeanOver) -> Pool:
        """Run the texts and take their means."""
        means = Means(over)
        for inputs in texts:
            means.add(source, [inputs])
        return cls(tuple(texts), means)


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """What fills each text.

    Attributes:
        pools: texts that fill others.
        of: by the number of a text, which pool fills it.
        name: of the reference, in words.
        shares: of each head's output how much is its mean, see :meth:`Means.shares`.
    """

    pools: tuple[Pool, ...]
    of: tuple[int, ...]
    name: str
    shares: dict[Head, float]

    def means(self, batch: Sequence[Trial], sites: Collection[Site] | None = None) -> Fills:
        """The means [1 or B, T, H, d_v] for a batch; of some layers, or of all."""
        lengths = lengths_of([trial.inputs for trial in batch])
        numbers = [self.of[trial.text] for trial in batch]
        found = {number: self.pools[number].means.fills(lengths, sites) for number in set(numbers)}
        if len(found) == 1:
            return found[numbers[0]]
        filled = found[numbers[0]]
        return {site: torch.cat([found[n][site] for n in numbers]) for site in filled}

    def resampled(
        self,
        source: Source,
        batch: Sequence[Trial],
        seed: int,
        draw: int,
        sites: Collection[Site] | None = None,
    ) -> Fills:
        """The outputs [B, T, H, d_v] on another text each; the mean where that is too short."""
        pools = [self.pools[self.of[trial.text]].texts for trial in batch]
        numbers = donors(
            [trial.text for trial in batch],
            [trial.inputs.length for trial in batch],
            [[inputs.length for inputs in pool] for pool in pools],
            seed=seed,
            draw=draw,
        )
        given = [pool[number] for pool, number in zip(pools, numbers, strict=True)]
        return resampled(source, given, self.means(batch, sites))

    def beyond(self, trials: Sequence[Trial]) -> float:
        """The share of positions that too few reference texts reach for a mean of their own."""
        total = short = 0
        for text in {trial.text: trial for trial in trials}.values():
            kind = list(text.inputs.sides)[-1]
            length = len(predicted(text.inputs))
            total += length
            short += max(0, length - self.pools[self.of[text.text]].means.reach(kind))
        return short / total if total else 0.0


def given(
    source: Source, texts: Sequence[Inputs], count: int, over: MeanOver, name: str
) -> Reference:
    """One reference, called ``name``, for all of ``count`` texts."""
    pool = Pool.of(source, texts, over)
    return Reference((pool,), (0,) * count, name, pool.means.shares(source.layout))


def other_half(
    source: Source, texts: Mapping[int, Inputs], fold: Sequence[int], over: MeanOver
) -> Reference:
    """Each half of some texts filled from the other; ``fold`` as :func:`halves` gives it."""
    pools = tuple(
        Pool.of(source, [x for number, x in texts.items() if fold[number] == half], over)
        for half in (0, 1)
    )
    shares = pools[0].means.merged(pools[1].means).shares(source.layout)
    return Reference(pools, tuple(1 - side for side in fold), "the other half of the texts", shares)


def bundled(source: Source, text: Inputs) -> tuple[Inputs, ...]:
    """Sentences that ship with attnviz, as texts that are about as long as one is.

    Text n begins with sentence n and goes on with those after it, so that every position is reached
    by as many texts as there are sentences.

    Raises:
        UsageError: the model cannot take plain text.
    """
    listed = sentences()
    length = len(predicted(text))
    if text.features:  # a picture or a sound
        raise _no_reference()
    found = []
    for start in range(len(listed)):
        words, size = "", 0
        for sentence in (*listed[start:], *listed[:start]):
            words = f"{words} {sentence}".strip()
            size += len(sentence.split())
            if size >= length:
                break
        try:
            found.append(source.prepare(Prompt(words, truncate=True)))
        except AttnvizError as error:
            raise _no_reference() from error
    return tuple(found)


def halves(texts: Mapping[int, Inputs], clusters: Sequence[int], seed: int) -> tuple[int, ...]:
    """By the number of a text, its half, 0 or 1, drawn so that both have about the same lengths.

    Args:
        texts: what is measured, by number.
        clusters: by the number of a text, what it belongs to; all of a cluster are in one half.
        seed: of the draw.

    Returns:
        One for each of ``clusters``; -1 for numbers that are not measured.
    """
    longest: dict[int, int] = {}
    for number, inputs in texts.items():
        cluster = clusters[number]
        longest[cluster] = max(longest.get(cluster, 0), inputs.length)
    draw = random.Random(f"halves/{seed}")
    order = sorted(longest, key=lambda cluster: (-longest[cluster], cluster))
    side: dict[int, int] = {}
    for first in range(0, len(order), 2):
        coin = draw.randrange(2)
        for place, cluster in enumerate(order[first : first + 2]):
            side[cluster] = coin if place == 0 else 1 - coin
    return tuple(side[c] if n in texts else -1 for n, c in enumerate(clusters))


def same_as(inputs: Inputs) -> Hashable:
    """What texts that are the same have in common; None for pictures and sounds."""
    if inputs.features:
        return None
    return tuple((kind, both.queries.ids, both.keys.ids) for kind, both in inputs.sides.items())


def _no_reference() -> UsageError:
    return UsageError(
        "a single input has no other text to take a head's mean or output from; give "
        "{reference}, several inputs, or {method}",
        reference=...,
        method="zero",
    )
