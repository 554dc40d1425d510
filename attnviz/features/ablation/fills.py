"""What takes a head's place: nothing, its mean over other texts, or its output on one of them."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from attnviz.attention.donors import mixed
from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows, Source
from attnviz.scoring.passes import observe
from attnviz.scoring.user_measures import Outputs, UserFill

Method = str
"""``zero``, ``mean``, ``resample``, or the name of a user's fill."""
MeanOver = Literal["positions", "tokens"]

Fills = Mapping[Site, Tensor]
"""By layer, [H, d_v] or [B, T, H, d_v], as :class:`~attnviz.core.source.Gate` takes it."""

LEAST = 4
"""Means at a position are over so many texts at least; elsewhere stands that over all tokens."""


class HeadOutputs:
    """An observer of z_h = Σ_j α_ij v_j, what every head hands to W_O.

    Args:
        sites: the layers to keep.
    """

    def __init__(self, sites: Iterable[Site]) -> None:
        self._parts: dict[Site, list[Tensor]] = {site: [] for site in sites}

    def observe(self, rows: Rows) -> None:
        """Mix the block's values by its weights."""
        if rows.site not in self._parts:
            return
        self._parts[rows.site].append(mixed(rows).transpose(1, 2))

    def values(self) -> dict[Site, Tensor]:
        """[B, T, H, d_v] by layer."""
        return {site: torch.cat(parts, 1) for site, parts in self._parts.items() if parts}


class Means:
    """The mean output of every head over reference texts.

    Args:
        over: ``positions`` for a mean at every position by itself, ``tokens`` for one over all.
        least: at a position that fewer reference texts reach, the mean over all tokens stands.
    """

    def __init__(self, over: MeanOver = "positions", least: int = LEAST) -> None:
        self._over, self._least = over, least
        self._sums: dict[Site, Tensor] = {}
        self._counts: dict[Site, Tensor] = {}
        self._norms: dict[Site, Tensor] = {}

    def add(self, source: Source, batch: Sequence[Inputs]) -> None:
        """Take in a batch of reference texts."""
        outputs = HeadOutputs(source.layout.sites)
        observe(source, batch, outputs)
        for site, z in outputs.values().items():
            lengths = torch.tensor([len(item.sides[site.kind].queries) for item in batch])
            real = (torch.arange(z.shape[1]) < lengths[:, None]).to(z.device)  # [B, T]
            values = z.double().masked_fill(~real[..., None, None], 0)
            sums, counts = values.sum(0), real.sum(0)  # [T, H, d_v], [T]
            norms = values.norm(dim=-1).sum((0, 1))  # [H]
            if site in self._sums:
                sums, counts = _longer(sums, self._sums[site]), _longer(counts, self._counts[site])
                norms = norms + self._norms[site]
            self._sums[site], self._counts[site], self._norms[site] = sums, counts, norms

    def fills(
        self, lengths: Mapping[SiteKind, int], sites: Iterable[Site] | None = None
    ) -> dict[Site, Tensor]:
        """The means in float64, [1, T, H, d_v]; a view of one mean where positions share it.

        Args:
            lengths: the number of positions T of each kind of layers.
            sites: the layers that are filled; all by default.
        """
        means = {}
        for site in self._sums if sites is None else sites:
            sums = self._sums[site]
            counts = self._counts[site]
            overall = sums.sum(0) / counts.sum()
            length = lengths[site.kind]
            if self._over == "tokens":
                means[site] = overall.expand(1, length, *overall.shape)
                continue
            own = sums / counts.clamp(min=1)[:, None, None]
            own = torch.where((counts >= self._least)[:, None, None], own, overall)
            more = overall.expand(max(0, length - len(own)), *overall.shape)
            means[site] = torch.cat([own, more])[None, :length]
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
        for site in self._sums:
            both._sums[site] = _longer(self._sums[site].clone(), other._sums[site].clone())
            both._counts[site] = _longer(self._counts[site].clone(), other._counts[site].clone())
            both._norms[site] = self._norms[site] + other._norms[site]
        return both

    def shares(self, layout: Layout) -> dict[Head, float]:
        """‖mean of z_h‖ / mean of ‖z_h‖ over all tokens: how much of a head's output never changes.

        1 for a head that hands on one vector whatever it reads, a bias; near 0 for one whose
        outputs have no common direction.
        """
        steady = {}
        for head in layout:
            sums, norms = self._sums[head.site], self._norms[head.site]
            size = float(norms[head.index])
            steady[head] = float(sums.sum(0)[head.index].norm()) / size if size > 0 else 0.0
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

    Args:
        texts: numbers of texts.
        lengths: the number of tokens of each of these.
        pools: for each of these, the lengths of the reference texts to choose from.
        seed: of the choice.
        draw: counts the draws.

    Returns:
        A place in each pool.
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

    Args:
        source: the model.
        given: as many donors as there are texts.
        means: of the layers and as many positions as are to be filled, [1 or B, T, H, d_v].
    """
    outputs = HeadOutputs(means)
    observe(source, given, outputs)
    fills = {}
    for site, z in outputs.values().items():
        mean = means[site]
        filled = mean.to(z.dtype).expand(len(given), *mean.shape[1:]).clone()
        for number, item in enumerate(given):
            size = min(len(item.sides[site.kind].queries), filled.shape[1])
            filled[number, :size] = z[number, :size]
        fills[site] = filled
    return fills


def users(fill: UserFill, source: Source, batch: Sequence[Inputs], means: Fills) -> Fills:
    """What a user's function puts in the place of every head, [B, T, H, d_v].

    Args:
        fill: the function.
        source: the model.
        batch: the texts.
        means: of the layers that are filled and as many positions as the longest has,
            [1 or B, T, H, d_v].
    """
    outputs = HeadOutputs(means)
    observe(source, batch, outputs)
    fills = {}
    for site, z in outputs.values().items():
        mean = means[site].to(z.dtype).expand(z.shape)
        filled = z.clone()
        for number, item in enumerate(batch):
            tokens = item.sides[site.kind].queries
            own = slice(0, len(tokens))
            seen = Outputs(z[number, own].clone(), mean[number, own].clone(), site, tokens)
            filled[number, own] = fill.at(seen)
        fills[site] = filled
    return fills


def lengths_of(batch: Sequence[Inputs]) -> dict[SiteKind, int]:
    """The number of queries of each kind of layers in the longest item."""
    return {kind: max(len(item.sides[kind].queries) for item in batch) for kind in batch[0].sides}


def _longer(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two tensors of different length along the first axis."""
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    long[: len(short)] += short
    return long
