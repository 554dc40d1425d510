"""What takes a head's place: nothing, its mean over a reference, or its output on another text."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from attnviz.ablation.trials import predicted
from attnviz.passes import Rows, Source
from attnviz.records import Inputs, Site

Method = Literal["zero", "mean", "resample"]
MeanOver = Literal["positions", "tokens"]

Fills = Mapping[Site, Tensor]
"""By layer, [H, d_v] or [B, T, H, d_v], as :class:`~attnviz.passes.Gate` takes it."""


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
        assert rows.values is not None, "every backend that can be gated hands its values out"
        batch, heads, count, keys = rows.weights.shape
        groups = rows.values.shape[1]
        weights = rows.weights.reshape(batch, groups, -1, keys).to(rows.values.dtype)
        mixed = (weights @ rows.values).view(batch, heads, count, -1)  # [B, H, r, d_v]
        self._parts[rows.site].append(mixed.transpose(1, 2))

    def found(self) -> dict[Site, Tensor]:
        """[B, T, H, d_v] by layer."""
        return {site: torch.cat(parts, 1) for site, parts in self._parts.items() if parts}


class Means:
    """The mean output of every head over reference texts.

    Args:
        over: ``positions`` for a mean at every position by itself, ``tokens`` for one over all.
    """

    def __init__(self, over: MeanOver = "positions") -> None:
        self._over = over
        self._sums: dict[Site, Tensor] = {}
        self._counts: dict[Site, Tensor] = {}

    def add(self, source: Source, batch: Sequence[Inputs]) -> None:
        """Take in a batch of reference texts."""
        outputs = HeadOutputs(source.layout.sites)
        source.forward(batch, [outputs], hidden=False)
        for site, z in outputs.found().items():
            lengths = torch.tensor([len(item.sides[site.kind].queries) for item in batch])
            real = (torch.arange(z.shape[1]) < lengths[:, None]).to(z.device)  # [B, T]
            sums = z.double().masked_fill(~real[..., None, None], 0).sum(0)  # [T, H, d_v]
            counts = real.sum(0)
            if site in self._sums:
                sums, counts = _longer(sums, self._sums[site]), _longer(counts, self._counts[site])
            self._sums[site], self._counts[site] = sums, counts

    def fills(self, length: int) -> Fills:
        """The means in float64: [H, d_v], or [1, length, H, d_v] with one for every position.

        Positions beyond the longest reference text get the mean over all positions.
        """
        found = {}
        for site, sums in self._sums.items():
            counts = self._counts[site]
            overall = sums.sum(0) / counts.sum()
            if self._over == "tokens":
                found[site] = overall
                continue
            own = sums / counts[:, None, None]
            more = overall.expand(max(0, length - len(own)), *overall.shape)
            found[site] = torch.cat([own, more])[None, :length]
        return found


def donors(batch: Sequence[int], lengths: Sequence[int], *, seed: int, draw: int) -> list[int]:
    """For each text of a batch, the text whose head outputs take its place.

    Any other text that is long enough, chosen by seed, draw and the text's number, so that the
    choice does not depend on the batch; the longest other one where none is long enough.

    Args:
        batch: numbers of texts.
        lengths: the number of tokens of every text.
        seed: of the choice.
        draw: counts the draws.
    """
    chosen = []
    for text in batch:
        others = [n for n in range(len(lengths)) if n != text]
        enough = [n for n in others if lengths[n] >= lengths[text]]
        pool = enough or [max(others, key=lambda n: lengths[n], default=text)]
        chosen.append(random.Random(f"{seed}/{draw}/{text}").choice(pool))
    return chosen


def resampled(source: Source, batch: Sequence[Inputs], given: Sequence[Inputs]) -> Fills:
    """The outputs [B, T, H, d_v] that heads have on other texts at the same positions.

    Where a donor is too short, the text's own output stays.

    Args:
        source: the model.
        batch: the texts.
        given: as many donors.
    """
    own, others = HeadOutputs(source.layout.sites), HeadOutputs(source.layout.sites)
    source.forward(batch, [own], hidden=False)
    source.forward(given, [others], hidden=False)
    fills = own.found()
    for site, z in others.found().items():
        for number, item in enumerate(given):
            size = min(len(item.sides[site.kind].queries), fills[site].shape[1])
            fills[site][number, :size] = z[number, :size]
    return fills


def longest(batch: Sequence[Inputs]) -> int:
    """The number of positions that are predicted in the longest item."""
    return max(len(predicted(item)) for item in batch)


def _longer(a: Tensor, b: Tensor) -> Tensor:
    """The sum of two tensors of different length along the first axis."""
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    long[: len(short)] += short
    return long
