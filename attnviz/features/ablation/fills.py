"""What takes a head's place: nothing, its mean over other texts, or its output on one of them.

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
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, Literal, cast

import numpy as np

from attnviz.attention.interventions import mixed
from attnviz.captures.inputs import prepare_each
from attnviz.captures.trials import PROBE_SEEDS, Activations, Trial, predicted, probe
from attnviz.core import arrays
from attnviz.core.arrays import Array, fetched
from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.core.prompt import Inputs, Prompt, padded
from attnviz.core.source import Rows, Source
from attnviz.core.threads import ASIDE, run_passes
from attnviz.corpus.lines import sentences
from attnviz.corpus.texts import packed
from attnviz.errors import AttnvizError, UsageError
from attnviz.interventions.sweep import filled
from attnviz.models.cache import Cache, pack_arrays, unpack_arrays
from attnviz.scoring.observe import observe
from attnviz.scoring.user_measures import UserFill

Method = str
"""``zero``, ``mean``, ``resample``, or the name of a user's fill."""
MeanOver = Literal["positions", "tokens"]

Fills = Mapping[Site, Array]
"""By layer, [H, d_v] or [B, T, H, d_v], as :class:`~attnviz.core.source.Gate` takes it."""

_PARTS = ("sums", "counts", "norms")
LEAST = 4
"""Means at a position are over so many texts at least; elsewhere stands that over all tokens."""


class HeadOutputs:
    """An observer of z_h = Σ_j α_ij v_j, what every head hands to W_O."""

    def __init__(self, sites: Iterable[Site]) -> None:
        self._parts: dict[Site, list[Array]] = {site: [] for site in sites}

    def observe(self, rows: Rows) -> None:
        """Mix the block's values by its weights."""
        if rows.site not in self._parts:
            return
        self._parts[rows.site].append(mixed(rows).swapaxes(1, 2))

    def values(self) -> dict[Site, Array]:
        """[B, T, H, d_v] by layer."""
        return {
            site: arrays.of(parts[0]).xp.concatenate(parts, 1)
            for site, parts in self._parts.items()
            if parts
        }


class Means:
    """The mean output of every head over reference texts."""

    def __init__(self, over: MeanOver = "positions", least: int = LEAST) -> None:
        self._over, self._least = over, least
        # sums [T, H, d_v], rows [T] and sums of norms [H]
        self._layers: dict[Site, tuple[Array, Array, Array]] = {}

    def add(self, source: Source, batches: Sequence[Sequence[Inputs]]) -> None:
        """Take in batches of reference texts."""
        measure, largest = partial(self._of_batch, source), max(map(padded, batches), default=0)
        passes = run_passes(measure, batches, source.concurrent, largest, ASIDE * TOKENS)
        with closing(passes):  # those of all batches are too large to be kept
            for layer in chain.from_iterable(passes):
                self._take(*layer)

    @staticmethod
    def _of_batch(
        source: Source, batch: Sequence[Inputs]
    ) -> list[tuple[Site, Array, Array, Array]]:
        """Run a batch, and give what :meth:`_take` takes of each layer."""
        outputs, layers = HeadOutputs(source.layout.sites), []
        observe(source, batch, outputs)
        for site, z in outputs.values().items():
            lengths = np.array([len(item.sides[site.kind].queries) for item in batch])
            inside = np.arange(z.shape[1]) < lengths[:, None]
            exact = arrays.exact(z)
            real = arrays.converted(arrays.array(inside), exact)  # [B, T]
            values = arrays.of(z).xp.where(real[..., None, None], exact, 0.0)
            sums, counts = values.sum(0), real.sum(0)  # [T, H, d_v], [T]
            layers.append((site, sums, counts, arrays.norm(values).sum((0, 1))))
        return layers

    def _take(self, site: Site, sums: Array, counts: Array, norms: Array) -> None:
        """Add to what is known of a layer."""
        if site in self._layers:
            before = self._layers[site]
            sums, counts = _padded_sum(before[0], sums), _padded_sum(before[1], counts)
            norms = before[2] + arrays.converted(norms, before[2])
        self._layers[site] = sums, counts, norms

    def to_arrays(self) -> dict[str, Array]:
        """All that they are made of, by name; :meth:`from_arrays` takes it back."""
        return {
            f"{name} {site.kind} {site.layer}": part
            for site, parts in self._layers.items()
            for name, part in zip(_PARTS, parts, strict=True)
        }

    @classmethod
    def from_arrays(cls, parts: Mapping[str, Array], over: MeanOver) -> Means:
        """Return the means whose :meth:`to_arrays` these are; KeyError for anything else."""
        means = cls(over)
        for name in parts:
            quantity, kind, layer = name.split()
            if quantity == "sums":
                sums, counts, norms = (parts[f"{key} {kind} {layer}"] for key in _PARTS)
                means._take(Site(cast("SiteKind", kind), int(layer)), sums, counts, norms)
        return means

    def fills(
        self, lengths: Mapping[SiteKind, int], sites: Iterable[Site] | None = None
    ) -> dict[Site, Array]:
        """Get the means in float64, [1, T, H, d_v]; a view of one mean where positions share it."""
        means = {}
        for site in self._layers if sites is None else sites:
            sums, counts, _ = self._layers[site]
            overall = sums.sum(0) / counts.sum()
            length, xp = lengths[site.kind], arrays.of(sums).xp
            if self._over == "tokens":
                means[site] = xp.broadcast_to(overall, (1, length, *overall.shape))
                continue
            mean = sums / counts.clip(1)[:, None, None]
            mean = xp.where((counts >= self._least)[:, None, None], mean, overall)
            padding = xp.broadcast_to(overall, (max(0, length - len(mean)), *overall.shape))
            means[site] = xp.concatenate([mean, padding])[None, :length]
        return means

    def reach(self, kind: SiteKind) -> int:
        """How many positions have a mean of their own in layers of a kind."""
        if self._over == "tokens":
            return 0
        counts = next((c for site, (_, c, _) in self._layers.items() if site.kind == kind), None)
        return 0 if counts is None else int((counts >= self._least).sum())

    def merged(self, other: Means) -> Means:
        """Return the means over the texts of both."""
        total = Means(self._over, self._least)
        for means in (self, other):
            for site, parts in means._layers.items():
                total._take(site, *parts)
        return total

    def shares(self, layout: Layout) -> dict[Head, float]:
        """‖mean of z_h‖ / mean of ‖z_h‖ over all tokens: how much of a head's output never changes.

        1 for a head that hands on one vector whatever it reads, a bias; near 0 for one whose
        outputs have no common direction.
        """
        steady = {}
        wholes = {site: fetched([arrays.norm(sums.sum(0)), norms])
                  for site, (sums, _, norms) in self._layers.items()}  # fmt: skip
        for head in layout:
            common, size = (float(norms[head.index]) for norms in wholes[head.site])
            steady[head] = common / size if size > 0 else 0.0
        return steady


def donors(
    texts: Sequence[int],
    lengths: Sequence[int],
    pools: Sequence[Sequence[int]],
    *,
    seed: int,
    draw: int,
) -> list[int]:
    """For each of some texts, the reference text whose head outputs take its place.

    Any that is long enough, chosen by seed, draw and the text's number, so that the choice does not
    depend on the batch; one of the longest where none is long enough.
    """
    chosen = []
    for text, length, pool in zip(texts, lengths, pools, strict=True):
        needed = min(length, max(pool))
        candidates = [n for n, size in enumerate(pool) if size >= needed]
        chosen.append(random.Random(f"{seed}/{draw}/{text}").choice(candidates))
    return chosen


def resampled(source: Source, texts: Sequence[Inputs], means: Fills) -> Fills:
    """Return the outputs [B, T, H, d_v] that heads have on other texts at the same positions.

    Where a donor is too short, the mean stays.

    ``means``: of the layers and as many positions as are to be others, [1 or B, T, H, d_v].
    """
    outputs = HeadOutputs(means)
    observe(source, texts, outputs)
    fills = {}
    for site, z in outputs.values().items():
        lib, mean = arrays.of(z), arrays.converted(means[site], z)
        stretched = lib.xp.broadcast_to(lib.cast(mean, z.dtype), (len(texts), *mean.shape[1:]))
        fill = lib.copied(stretched)
        for number, item in enumerate(texts):
            size = min(len(item.sides[site.kind].queries), fill.shape[1])
            fill[number, :size] = z[number, :size]
        fills[site] = fill
    return fills


def users(fill: UserFill, source: Source, batch: Sequence[Inputs], means: Fills) -> Fills:
    """Return what a user's function puts in the place of every head, [B, T, H, d_v].

    ``means``: of the layers that are filled and as many positions as the longest has, [1 or B, T,
    H, d_v].
    """
    activations = Activations(["z", "v", "pattern"], means.keys())
    observe(source, batch, activations, terms=True)
    outputs, values, weights = (activations.values[part] for part in ("z", "v", "pattern"))
    fills = {}
    for site, output in outputs.items():
        z, lib = output.swapaxes(1, 2), arrays.of(output)
        mean = lib.xp.broadcast_to(lib.cast(arrays.converted(means[site], z), z.dtype), z.shape)
        fills[site] = filled(fill, batch, site, z, mean, (weights[site], values[site]))
    return fills


def lengths_of(batch: Sequence[Inputs]) -> dict[SiteKind, int]:
    """Return the number of queries of each kind of layers in the longest item."""
    return {kind: max(len(item.sides[kind].queries) for item in batch) for kind in batch[0].sides}


def _padded_sum(a: Array, b: Array) -> Array:
    """Add two arrays of different length along the first axis, of the first one's kind."""
    b = arrays.converted(b, a)
    longer, shorter = (a, b) if len(a) >= len(b) else (b, a)
    total: Array = arrays.of(longer).copied(longer)
    total[: len(shorter)] += shorter
    return total


UNMATCHED, MATCHED = "unmatched", "matched"
"""References by name: whatever text there is, or texts in the same state alone."""

MEANS_OF = 4
"""Times as many sequences as a probe has are in the means of its reference: the mean of a few still
has something of each, which costs as much as the heads of demo-gpt2's layer 3 do (1.48 nats with
10, 1.04 with 80)."""


LARGEST = 16
"""Trials in a batch at most."""
PADDED = 0.1
"""By how much the longest of a batch is longer than its shortest at most: every head runs padding
as well."""
TOKENS = 512
"""Of reference texts that run at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Texts that fill others."""

    # whose outputs are put in place, as they run, with masks where the texts they fill have some
    texts: tuple[Inputs, ...]
    means: Means  # over these texts, or over others

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
            tokens = 0 if any(inputs.features for inputs in texts) else TOKENS
            parts = batches(lengths, tokens)
            means.add(source, [[texts[number] for number in part] for part in parts])
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
    """What fills each text."""

    pools: tuple[Pool, ...]  # texts that fill others
    of: tuple[int, ...]  # by the number of a text, which pool fills it
    name: str  # of the reference, in words
    # of each head's output how much is its mean, see :meth:`Means.shares`
    shares: dict[Head, float]
    matched: bool = False  # whether every text is filled from texts in the same state
    disjoint: bool = False  # whether means and donors come from different texts
    alone: int = 0  # how many texts have no other in their state, so that any text fills them

    @classmethod
    def over(
        cls, source: Source, pools: Sequence[Pool], of: Iterable[int], name: str, **more: Any
    ) -> Reference:
        """Take pools, with the shares of means in the outputs of all of them together."""
        means = pools[0].means
        for pool in pools[1:]:
            means = means.merged(pool.means)
        return cls(tuple(pools), tuple(of), name, means.shares(source.layout), **more)

    def means(self, batch: Sequence[Trial], sites: Collection[Site] | None = None) -> Fills:
        """Return the means [1 or B, T, H, d_v] for a batch; of some layers, or of all."""
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
        """Get the outputs [B, T, H, d_v] on another text each; the mean where that is too short."""
        pools = [self.pools[self.of[trial.text]].texts for trial in batch]
        numbers = donors(
            [trial.text for trial in batch],
            [trial.inputs.length for trial in batch],
            [[inputs.length for inputs in pool] for pool in pools],
            seed=seed,
            draw=draw,
        )
        texts = [pool[number] for pool, number in zip(pools, numbers, strict=True)]
        return resampled(source, texts, self.means(batch, sites))

    def beyond(self, trials: Sequence[Trial]) -> float:
        """Get the share of positions that too few reference texts reach for a mean of their own."""
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
    return Reference.over(source, [Pool.of(source, texts, over)], [0] * count, name)


def other_half(
    source: Source, texts: Mapping[int, Inputs], fold: Sequence[int], over: MeanOver
) -> Reference:
    """Each half of some texts filled from the other; ``fold`` as :func:`halves` gives it."""
    pools = _both_halves(source, texts, fold, over)
    return Reference.over(source, pools, (1 - side for side in fold), "the other half of the texts")


def probed(source: Source, tested: Sequence[Trial], over: MeanOver) -> Reference:
    """Repeated random tokens filled from others of the same length, drawn for nothing else.

    What a head hands on where tokens repeat and where they do not are two states, and at one
    position sequences of different lengths are in both: a mean over all of them is in neither.
    Means and donors are of different sequences, so that the two methods do not err together.
    """
    donors, *trials = (list(probe(source, n * PROBE_SEEDS)) for n in range(1, 2 + MEANS_OF))
    lengths = list(dict.fromkeys(trial.inputs.length for trial in tested))

    def of_length(length: int, candidates: Iterable[Trial]) -> list[Inputs]:
        return [trial.inputs for trial in candidates if trial.inputs.length == length]

    pools = tuple(
        Pool.of(source, of_length(n, chain(*trials)), over, of_length(n, donors)) for n in lengths
    )
    count = len(of_length(lengths[0], chain(*trials)))
    return Reference.over(
        source,
        pools,
        (lengths.index(trial.inputs.length) for trial in tested),
        f"other random sequences of the same length ({count} for the mean, others to resample)",
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
    for group in members.values():
        if len({copies[number] for number in group}) < 2 * LEAST:
            continue
        sides = halves(group, copies, seed)
        for number in group:
            of[number] = len(pools) + 1 - sides[number]
        pools += _both_halves(source, group, sides, over)
    if not pools:
        return None
    lone = [number for number in texts if of[number] < 0]
    if lone:
        for number in lone:
            of[number] = len(pools) + 1 - fold[number]
        pools += _both_halves(source, texts, fold, over)
    name = "other texts of the same group"
    return Reference.over(source, pools, of, name, matched=not lone, alone=len(lone))


def _both_halves(
    source: Source, texts: Mapping[int, Inputs], fold: Sequence[int], over: MeanOver
) -> tuple[Pool, Pool]:
    """Return the pools of both halves."""
    first, second = (
        Pool.of(source, [x for number, x in texts.items() if fold[number] == half], over)
        for half in (0, 1)
    )
    return first, second


def bundled(source: Source, text: Inputs) -> tuple[Inputs, ...]:
    """Take texts of about one length: sentence n of attnviz's own and those after it."""
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
    parts, first = [], 0
    while first < len(order):
        longest = lengths[order[first]] * (1 + PADDED)
        alike = [number for number in order[first:] if lengths[number] <= longest]
        packs = packed([lengths[number] for number in alike], tokens, LARGEST)
        parts += [tuple(alike[index] for index in pack) for pack in packs]
        first += len(alike)
    return parts


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
        for index, cluster in enumerate(order[first : first + 2]):
            side[cluster] = coin if index == 0 else 1 - coin
    return tuple(side[c] if n in texts else -1 for n, c in enumerate(clusters))


def _no_reference() -> UsageError:
    return UsageError(
        "a single input has no other text to take a head's mean or output from; give "
        "{reference}, several inputs, or {method}",
        reference=...,
        method="zero",
    )
