"""Which texts say what takes a head's place: others than those it is measured on.

A text whose heads are filled from itself tells nothing: its own mean at every position is its own
output. So means and donors come from a reference that is disjoint from what is measured: texts that
were given for it; or, of several texts, the half that a text is not in, each half filled from the
other (cross-fitting); or, for a single text, sentences that ship with attnviz.

Where texts have a structure, a reference matches: what stands for a head's output at a position
comes from texts that are in the same state there. Repeated random tokens are filled from others of
the same length, texts with groups from their own.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from attnviz.captures.inputs import prepare_each
from attnviz.captures.trials import PROBE_SEEDS, Trial, predicted, probe
from attnviz.core import arrays
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Source
from attnviz.corpus.batches import packed
from attnviz.corpus.lines import sentences
from attnviz.errors import AttnvizError, UsageError
from attnviz.features.ablation.fills import (
    LEAST,
    Fills,
    MeanOver,
    Means,
    donors,
    lengths_of,
    resampled,
)
from attnviz.models.cache import Cache, pack_arrays, unpack_arrays

UNMATCHED, MATCHED = "unmatched", "matched"
"""References by name: whatever text there is, or texts in the same state alone."""

MEANS_OF = 4
"""Times as many sequences as a probe has are in the means of its reference: the mean of a few still
has something of each, which costs as much as the heads of demo-gpt2's layer 3 do (1.48 nats with
10, 1.04 with 80)."""


LARGEST = 16
"""Trials in a batch at most."""
TOKENS = 512
"""Of reference texts that run at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Texts that fill others.

    Attributes:
        texts: whose outputs are put in place, as they run, with masks where the texts they fill
            have some.
        means: over these texts, or over others.
    """

    texts: tuple[Inputs, ...]
    means: Means

    @classmethod
    def of(
        cls,
        source: Source,
        texts: Sequence[Inputs],
        over: MeanOver,
        donors: Sequence[Inputs] | None = None,
    ) -> Pool:
        """Run the texts and take their means; ``donors`` are the same texts unless given."""

        def make(texts: Sequence[Inputs], over: MeanOver) -> Means:
            means = Means(over)
            lengths = [inputs.length for inputs in texts]
            most = 0 if any(inputs.features for inputs in texts) else TOKENS
            for batch in batches(lengths, most):
                means.add(source, [texts[number] for number in batch])
            return means

        means = Cache(source).recall(
            "mean outputs of heads",
            (texts, over),
            make,
            lambda means: pack_arrays(means.to_arrays()),
            lambda data: Means.from_arrays(unpack_arrays(data), over),
        )
        return cls(tuple(texts if donors is None else donors), means)


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """What fills each text.

    Attributes:
        pools: texts that fill others.
        of: by the number of a text, which pool fills it.
        name: of the reference, in words.
        shares: of each head's output how much is its mean, see :meth:`Means.shares`.
        matched: whether every text is filled from texts in the same state.
        disjoint: whether means and donors come from different texts.
        alone: how many texts have no other in their state, so that any text fills them.
    """

    pools: tuple[Pool, ...]
    of: tuple[int, ...]
    name: str
    shares: dict[Head, float]
    matched: bool = False
    disjoint: bool = False
    alone: int = 0

    def means(self, batch: Sequence[Trial], sites: Collection[Site] | None = None) -> Fills:
        """The means [1 or B, T, H, d_v] for a batch; of some layers, or of all."""
        lengths = lengths_of([trial.inputs for trial in batch])
        numbers = [self.of[trial.text] for trial in batch]
        fills = {number: self.pools[number].means.fills(lengths, sites) for number in set(numbers)}
        if len(fills) == 1:
            return fills[numbers[0]]
        return {
            site: arrays.of(like).xp.concatenate(
                [arrays.converted(fills[n][site], like) for n in numbers]
            )
            for site, like in fills[numbers[0]].items()
        }

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
    pools = _both_halves(source, texts, fold, over)
    of = tuple(1 - side for side in fold)
    return Reference(pools, of, "the other half of the texts", _shares(source, pools))


def probed(source: Source, tested: Sequence[Trial], over: MeanOver) -> Reference:
    """Repeated random tokens filled from others of the same length, drawn for nothing else.

    What a head hands on where tokens repeat and where they do not are two states, and at one
    position sequences of different lengths are in both: a mean over all of them is in neither.
    Means and donors are of different sequences, so that the two methods do not err together.
    """
    donors, *rest = (list(probe(source, n * PROBE_SEEDS)) for n in range(1, 2 + MEANS_OF))
    lengths = list(dict.fromkeys(trial.inputs.length for trial in tested))

    def of_length(length: int, drawn: Iterable[Trial]) -> list[Inputs]:
        return [trial.inputs for trial in drawn if trial.inputs.length == length]

    pools = tuple(
        Pool.of(source, of_length(n, chain(*rest)), over, of_length(n, donors)) for n in lengths
    )
    count = len(of_length(lengths[0], chain(*rest)))
    return Reference(
        pools,
        tuple(lengths.index(trial.inputs.length) for trial in tested),
        f"other random sequences of the same length ({count} for the mean, others to resample)",
        _shares(source, pools),
        matched=True,
        disjoint=True,
    )


def same_group(
    source: Source,
    texts: Mapping[int, Inputs],
    groups: Sequence[str | None],
    copies: Sequence[int],
    fold: Sequence[int],
    over: MeanOver,
    seed: int,
) -> Reference | None:
    """Each text filled from texts of its group alone, one half of a group from the other.

    A group of fewer than two times :data:`~attnviz.features.ablation.fills.LEAST` different texts
    is filled from any text.

    Returns None where no group is large enough.
    """
    members: dict[str, dict[int, Inputs]] = {}
    for number, inputs in texts.items():
        if (name := groups[number]) is not None:
            members.setdefault(name, {})[number] = inputs
    pools: list[Pool] = []
    of = [-1] * len(fold)
    for some in members.values():
        if len({copies[number] for number in some}) < 2 * LEAST:
            continue
        sides = halves(some, copies, seed)
        for number in some:
            of[number] = len(pools) + 1 - sides[number]
        pools += _both_halves(source, some, sides, over)
    if not pools:
        return None
    alone = [number for number in texts if of[number] < 0]
    if alone:
        for number in alone:
            of[number] = len(pools) + 1 - fold[number]
        pools += _both_halves(source, texts, fold, over)
    name = "other texts of the same group"
    return Reference(
        tuple(pools), tuple(of), name, _shares(source, pools), matched=not alone, alone=len(alone)
    )


def _both_halves(
    source: Source, texts: Mapping[int, Inputs], fold: Sequence[int], over: MeanOver
) -> tuple[Pool, Pool]:
    """The pools of both halves."""
    first, second = (
        Pool.of(source, [x for number, x in texts.items() if fold[number] == half], over)
        for half in (0, 1)
    )
    return first, second


def _shares(source: Source, pools: Sequence[Pool]) -> dict[Head, float]:
    """The shares of means in the outputs of all pools together."""
    means = pools[0].means
    for pool in pools[1:]:
        means = means.merged(pool.means)
    return means.shares(source.layout)


def bundled(source: Source, text: Inputs) -> tuple[Inputs, ...]:
    """Sentences that ship with attnviz, as texts that are about as long as one is.

    Text n begins with sentence n and goes on with those after it, so that every position is reached
    by as many texts as there are sentences.
    """
    listed = sentences()
    length = len(predicted(text))
    if text.features:  # a picture or a sound
        raise _no_reference()
    prompts = []
    for start in range(len(listed)):
        words, size = "", 0
        for sentence in (*listed[start:], *listed[:start]):
            words = f"{words} {sentence}".strip()
            size += len(sentence.split())
            if size >= length:
                break
        prompts.append(Prompt(words, truncate=True))
    try:
        return tuple(prepare_each(source, prompts))
    except AttnvizError as error:
        raise _no_reference() from error


def batches(lengths: Sequence[int], tokens: int) -> list[tuple[int, ...]]:
    """Numbers of trials or texts in batches of about the same length, by their lengths alone."""
    order = sorted(range(len(lengths)), key=lambda n: (lengths[n], n))
    parts = packed([lengths[number] for number in order], tokens, LARGEST)
    return [tuple(order[place] for place in part) for part in parts]


def halves(texts: Mapping[int, Inputs], clusters: Sequence[int], seed: int) -> tuple[int, ...]:
    """By the number of a text, its half, 0 or 1, drawn so that both have about the same lengths."""
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


def _no_reference() -> UsageError:
    return UsageError(
        "a single input has no other text to take a head's mean or output from; give "
        "{reference}, several inputs, or {method}",
        reference=...,
        method="zero",
    )
