"""What takes a head's place: nothing, its mean over other texts, or its output on one of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, cast

import numpy as np

from attnviz.attention.donors import mixed
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows, Source
from attnviz.scoring.passes import observe
from attnviz.scoring.user_measures import Outputs, UserFill

Method = str
"""``zero``, ``mean``, ``resample``, or the name of a user's fill."""
MeanOver = Literal["positions", "tokens"]

Fills = Mapping[Site, Array]
"""By layer, [H, d_v] or [B, T, H, d_v], as :class:`~attnviz.core.source.Gate` takes it."""

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
        self._sums: dict[Site, Array] = {}
        self._counts: dict[Site, Array] = {}
        self._norms: dict[Site, Array] = {}

    def add(self, source: Source, batch: Sequence[Inputs]) -> None:
        """Take in a batch of reference texts."""
        outputs = HeadOutputs(source.layout.sites)
        observe(source, batch, outputs)
        for site, z in outputs.values().items():
            lengths = np.array([len(item.sides[site.kind].queries) for item in batch])
            there = np.arange(z.shape[1]) < lengths[:, None]
            exact = arrays.exact(z)
            real = arrays.converted(arrays.array(there), exact)  # [B, T]
            values = arrays.of(z).xp.where(real[..., None, None], exact, 0.0)
            sums, counts = values.sum(0), real.sum(0)  # [T, H, d_v], [T]
            self._take(site, sums, counts, arrays.norm(values).sum((0, 1)))

    def _take(self, site: Site, sums: Array, counts: Array, norms: Array) -> None:
        """Add to a layer's sums [T, H, d_v], rows [T] and sums of norms [H]."""
        if site in self._sums:
            sums = _longer(self._sums[site], sums)
            counts = _longer(self._counts[site], counts)
            norms = self._norms[site] + arrays.converted(norms, self._norms[site])
        self._sums[site], self._counts[site], self._norms[site] = sums, counts, norms

    def to_arrays(self) -> dict[str, Array]:
        """All that they are made of, by name; :meth:`from_arrays` takes it back."""
        parts = {"sums": self._sums, "counts": self._counts, "norms": self._norms}
        return {
            f"{what} {site.kind} {site.layer}": part
            for what, by_site in parts.items()
            for site, part in by_site.items()
        }

    @classmethod
    def from_arrays(cls, parts: Mapping[str, Array], over: MeanOver) -> Means:
        """The means whose :meth:`to_arrays` these are; KeyError for anything else."""
        means = cls(over)
        for name in parts:
            what, kind, layer = name.split()
            if what == "sums":
                site = Site(cast("SiteKind", kind), int(layer))
                counts, norms = (parts[f"{other} {kind} {layer}"] for other in ("counts", "norms"))
                means._take(site, parts[name], counts, norms)
        return means

    def fills(
        self, lengths: Mapping[SiteKind, int], sites: Iterable[Site] | None = None
    ) -> dict[Site, Array]:
        """The means in float64, [1, T, H, d_v]; a view of one mean where positions share it."""
        means = {}
        for site in self._sums if sites is None else sites:
            sums = self._sums[site]
            counts = self._counts[site]
            overall = sums.sum(0) / counts.sum()
            length, xp = lengths[site.kind], arrays.of(sums).xp
            if self._over == "tokens":
                means[site] = xp.broadcast_to(overall, (1, length, *overall.shape))
                continue
            own = sums / counts.clip(1)[:, None, None]
            own = xp.where((counts >= self._least)[:, None, None], own, overall)
            more = xp.broadcast_to(overall, (max(0, length - len(own)), *overall.shape))
            means[site] = xp.concatenate([own, more])[None, :length]
        return means

    def reach(self, kind: SiteKind) -> int:
        """How many positions have a mean of their own in layers of a kind."""
        if self._over == "tokens":
            return 0
        counts = next((c for site, c in self._counts.items() if site.kind == kind), None)
        return 0 if counts is None else int((counts >= self._least).sum())

    def merged(self, other: Means) -> Means:
        """The means over the texts of both."""
        both = Means(self._over, self._least)
        for means in (self, other):
            for site, sums in means._sums.items():
                both._take(site, sums, means._counts[site], means._norms[site])
        return both

    def shares(self, layout: Layout) -> dict[Head, float]:
        """‖mean of z_h‖ / mean of ‖z_h‖ over all tokens: how much of a head's output never changes.

        1 for a head that hands on one vector whatever it reads, a bias; near 0 for one whose
        outputs have no common direction.
        """
        steady = {}
        wholes = {site: arrays.norm(sums.sum(0)) for site, sums in self._sums.items()}
        for head in layout:
            size = float(self._norms[head.site][head.index])
            steady[head] = float(wholes[head.site][head.index]) / size if size > 0 else 0.0
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
        most = min(length, max(pool))
        enough = [n for n, other in enumerate(pool) if other >= most]
        chosen.append(random.Random(f"{seed}/{draw}/{text}").choice(enough))
    return chosen


def resampled(source: Source, given: Sequence[Inputs], means: Fills) -> Fills:
    """The outputs [B, T, H, d_v] that heads have on other texts at the same positions.

    Where a donor is too short, the mean stays.

    ``means``: of the layers and as many positions as are to be filled, [1 or B, T, H, d_v].
    """
    outputs = HeadOutputs(means)
    observe(source, given, outputs)
    fills = {}
    for site, z in outputs.values().items():
        on, mean = arrays.of(z), arrays.converted(means[site], z)
        every = on.xp.broadcast_to(on.cast(mean, z.dtype), (len(given), *mean.shape[1:]))
        filled = on.copied(every)
        for number, item in enumerate(given):
            size = min(len(item.sides[site.kind].queries), filled.shape[1])
            filled[number, :size] = z[number, :size]
        fills[site] = filled
    return fills


def users(fill: UserFill, source: Source, batch: Sequence[Inputs], means: Fills) -> Fills:
    """What a user's function puts in the place of every head, [B, T, H, d_v].

    ``means``: of the layers that are filled and as many positions as the longest has, [1 or B, T,
    H, d_v].
    """
    outputs = HeadOutputs(means)
    observe(source, batch, outputs)
    fills = {}
    for site, z in outputs.values().items():
        on = arrays.of(z)
        mean = on.xp.broadcast_to(on.cast(arrays.converted(means[site], z), z.dtype), z.shape)
        filled = on.copied(z)
        for number, item in enumerate(batch):
            tokens = item.sides[site.kind].queries
            own = slice(0, len(tokens))
            outputs_of, other = (
                arrays.to_torch(on.copied(part[number, own])) for part in (z, mean)
            )
            seen = Outputs(outputs_of, other, site, tokens)
            filled[number, own] = arrays.converted(fill.at(seen), filled)
        fills[site] = filled
    return fills


def lengths_of(batch: Sequence[Inputs]) -> dict[SiteKind, int]:
    """The number of queries of each kind of layers in the longest item."""
    return {kind: max(len(item.sides[kind].queries) for item in batch) for kind in batch[0].sides}


def _longer(a: Array, b: Array) -> Array:
    """The sum of two arrays of different length along the first axis, of the first one's kind."""
    b = arrays.converted(b, a)
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    both: Array = arrays.of(long).copied(long)
    both[: len(short)] += short
    return both
