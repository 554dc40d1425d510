"""Where the weight of a batch goes: sums over keys and distances, as rows go by.

Rows count as they do for scores: the query is no special token and has at least two keys to choose
from. Notation in shapes: B batch, H heads of the layer, A is H or 1, r rows and s keys of a block,
S keys of the longest item.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, to_numpy
from attnviz.core.heads import Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows

FARTHEST = 32
"""Distances beyond it are counted together."""
DISTANCES = 2 * FARTHEST + 3
"""Farther back than -32, then -32 to +32, then farther ahead."""


@dataclass(frozen=True, eq=False, slots=True)
class Passed:
    """What passed in one layer for one item, beside what uniform attention would have sent.

    Attributes:
        keys: float64 [H, S], weight on each key, summed over the rows.
        distances: float64 [H, DISTANCES], by position of the key less that of the query; zero in
            cross-attention.
        uniform_keys, uniform_distances: float64 [S] and [DISTANCES], the mean over heads of the
            same under uniform attention over the allowed keys.
    """

    keys: NDArray[np.float64]
    distances: NDArray[np.float64]
    uniform_keys: NDArray[np.float64]
    uniform_distances: NDArray[np.float64]


class Passing:
    """Watches a batch."""

    def __init__(self, batch: Sequence[Inputs], layout: Layout) -> None:
        self._batch, self._layout = tuple(batch), layout
        self._counts: dict[SiteKind, Array] = {}
        self._totals: dict[Site, tuple[_Sums, _Sums]] = {}

    def observe(self, rows: Rows) -> None:
        """Add one block of rows; changes nothing in it."""
        weights, site = rows.weights, rows.site
        _, _, r, s = weights.shape
        counts = self._counted(site.kind, weights)[:, None, rows.start : rows.start + r]
        uniform = arrays.of(weights).cast(self._allowed(rows), weights.dtype)  # [B, A, r, s]
        choices = uniform.sum(-1)
        counts = counts & (choices >= 2)  # [B, A, r]
        uniform = uniform * (counts / choices.clip(1))[..., None]
        selected = weights if counts.all() else weights * counts[..., None]
        keys = slice(rows.key_start, rows.key_start + s)
        own, chance = self._sums(site, weights)
        own.keys[..., keys] += to_numpy(selected.sum(2))
        chance.keys[..., keys] += _mean(to_numpy(uniform.sum(2)))
        if site.kind != "cross":
            back = rows.start + r - 1 - rows.key_start
            own.distances[:] += _binned(_diagonals(selected), back)
            chance.distances[:] += _mean(_binned(_diagonals(uniform), back))

    def passed(self, item: int) -> dict[Site, Passed]:
        """What went by for one item, by site in the layout's order."""
        passed = {}
        for site in self._layout.sites:
            if site in self._totals:
                length = len(self._batch[item].sides[site.kind].keys)
                own, chance = self._totals[site]
                passed[site] = Passed(
                    own.keys[item, :, :length],
                    own.distances[item],
                    chance.keys[item, 0, :length],
                    chance.distances[item, 0],
                )
        return passed

    def _counted(self, kind: SiteKind, like: Array) -> Array:
        """Bool [B, T], False for special tokens and padding."""
        if kind not in self._counts:
            queries = [item.sides[kind].queries for item in self._batch]
            counts = np.zeros((len(queries), max(map(len, queries))), np.bool_)
            for row, tokens in zip(counts, queries, strict=True):
                row[: len(tokens)] = ~np.array(tokens.special)
            self._counts[kind] = arrays.converted(arrays.array(counts), like)
        return self._counts[kind]

    def _allowed(self, rows: Rows) -> Array:
        """Bool [B, A, r, s], without padding."""
        batch, _, r, s = rows.weights.shape
        lengths = [len(item.sides[rows.site.kind].keys) for item in self._batch]
        there = np.arange(rows.key_start, rows.key_start + s) < np.array(lengths)[:, None]
        real = arrays.converted(arrays.array(there), rows.weights)[:, None, None, :]
        if rows.allowed is None:
            everywhere: Array = arrays.of(real).xp.broadcast_to(real, (batch, 1, r, s))
            return everywhere
        return rows.allowed[(None,) * (4 - rows.allowed.ndim)] & real

    def _sums(self, site: Site, like: Array) -> tuple[_Sums, _Sums]:
        """The sums of a layer: those of its heads, and those of uniform attention."""
        if site not in self._totals:
            keys = max(len(item.sides[site.kind].keys) for item in self._batch)
            batch, heads = like.shape[:2]
            self._totals[site] = (_Sums.zero(batch, heads, keys), _Sums.zero(batch, 1, keys))
        return self._totals[site]


class _Sums(NamedTuple):
    """By key [B, H, S] and by distance [B, H, DISTANCES], in float64."""

    keys: NDArray[np.float64]
    distances: NDArray[np.float64]

    @classmethod
    def zero(cls, batch: int, heads: int, keys: int) -> _Sums:
        return cls(np.zeros((batch, heads, keys)), np.zeros((batch, heads, DISTANCES)))


def _mean(sums: NDArray[Any]) -> NDArray[np.float64]:
    """[B, A, n] -> [B, 1, n] in float64."""
    mean: NDArray[np.float64] = sums.mean(1, keepdims=True, dtype=np.float64)
    return mean


def _diagonals(x: Array) -> Array:
    """[..., r, s] -> [..., r + s - 1], sums along diagonals, the one from the last row first."""
    r, s = x.shape[-2:]
    on = arrays.of(x)
    padded = on.padded_keys(on.xp.flip(x, (-2,)), 0, r).reshape(*x.shape[:-2], r * (r + s))
    sums: Array = padded[..., : r * (r + s - 1)].reshape(*x.shape[:-2], r, r + s - 1).sum(-2)
    return sums


def _binned(diagonals: Array, back: int) -> NDArray[np.float64]:
    """[..., n] from distance ``-back`` on -> [..., DISTANCES] in float64."""
    sums = to_numpy(diagonals).astype(np.float64)
    bins = np.clip(np.arange(sums.shape[-1]) - back, -FARTHEST - 1, FARTHEST + 1) + FARTHEST + 1
    first = np.flatnonzero(np.diff(bins, prepend=-1))
    out = np.zeros((*sums.shape[:-1], DISTANCES))
    out[..., bins[first]] = np.add.reduceat(sums, first, axis=-1)
    return out
