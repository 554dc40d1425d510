"""Intervals that hold for all heads and scores at once.

A hundred heads times ten scores are a thousand questions, and the best answer of a thousand is good
by chance. The bootstrap over texts draws them anew, each text a Poisson(1) number of times, and
notes by how many standard errors the worst of all means is off (max-T: Westfall & Young 1993,
Resampling-Based Multiple Testing). 95 % of the draws stay within the quantile, so intervals of so
many standard errors hold together.

A text's weights come from a hash of the seed, the text and the replicate, and sums are integers:
nothing depends on who counted what.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.statistics.clusters import LEVEL, ClusterSums
from attnviz.statistics.exact import Floats

REPLICATES = 1000
ENOUGH = 20
"""Means over fewer texts are left out: their errors are not known well enough to compare with."""

_BITS = 24
"""Sums are kept in units of 2⁻²⁴; they stay below 2³⁹, which a billion rows reach."""
_HALF = 26
_AT_ONCE = 64
_LIMITS = np.cumsum([2.0**32 * math.exp(-1) / math.factorial(k) for k in range(13)])


def poisson(seed: int, names: Sequence[str], replicates: int = REPLICATES) -> Floats:
    """How often each cluster is drawn, [replicates, n].

    SHAKE-128 of seed and name gives 32 bits for each replicate, which the Poisson(1) distribution
    function turns into a number from 0 to 13.
    """
    found = np.empty((replicates, len(names)))
    for place, name in enumerate(names):
        stream = hashlib.shake_128(f"{seed}\0{name}".encode("utf-8", "surrogatepass"))
        draws = np.frombuffer(stream.digest(4 * replicates), "<u4")
        found[:, place] = np.searchsorted(_LIMITS, draws, side="right")
    return found


class Bootstrap:
    """The sums of every replicate.

    Args:
        shape: of the array of means.
        seed: another one draws otherwise.
        replicates: how many draws R.

    Attributes:
        a: int64 [R, ...], sums of the scores in units of 2⁻²⁴.
        b: int64 [R, ...], numbers of rows.
    """

    def __init__(self, shape: tuple[int, ...], seed: int, replicates: int = REPLICATES) -> None:
        self.seed, self.replicates = seed, replicates
        self.a = np.zeros((replicates, *shape), np.int64)
        self.b = np.zeros((replicates, *shape), np.int64)

    def add(self, names: Sequence[str], a: Floats, b: NDArray[np.integer[Any]]) -> None:
        """Add clusters, as :meth:`ClusterSums.add`; ``names[n]`` tells cluster n from others."""
        for first in range(0, len(names), _AT_ONCE):
            some = slice(first, first + _AT_ONCE)
            weights = poisson(self.seed, names[some], self.replicates)
            units = np.rint(a[some] * (1 << _BITS)).astype(np.int64)
            # sums of products below 2⁵³ are exact in float64, whoever multiplies
            self.a += _product(weights, units >> _HALF) << _HALF
            self.a += _product(weights, units & ((1 << _HALF) - 1))
            self.b += _product(weights, b[some])

    def merge(self, other: Bootstrap) -> None:
        """Add the sums of other clusters."""
        self.a += other.a
        self.b += other.b

    def quantile(self, sums: ClusterSums, level: float = LEVEL) -> float:
        """How many standard errors all means together stay within, in ``level`` of the draws.

        Args:
            sums: of the same clusters; only means over :data:`ENOUGH` of them take part.
            level: the probability that all intervals hold.

        Returns:
            The quantile; NaN if no mean takes part.
        """
        error = sums.error()
        part = (sums.count >= ENOUGH) & (error > 0)
        if not part.any():
            return math.nan
        rows = np.where(self.b > 0, self.b, np.nan)[:, part]
        drawn = self.a[:, part] / (rows * float(1 << _BITS))
        off = np.abs(drawn - sums.mean()[part]) / error[part]
        return float(np.quantile(np.nan_to_num(off).max(1), level, method="higher"))


def _product(weights: Floats, values: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Σ_n weights[r, n] · values[n, ...] of whole numbers."""
    flat = values.reshape(len(values), -1).astype(np.float64)
    return (weights @ flat).astype(np.int64).reshape(len(weights), *values.shape[1:])
