"""How often each of very many things comes, in little memory: a count-min sketch.

Cormode & Muthukrishnan 2005 ("An improved data stream summary"): every thing has a cell in each of
``DEPTH`` rows of counters, and its count is the smallest of these. A count is never too small; it
is too large by more than e/``width`` of all that was counted with a chance of e^-``DEPTH`` at most.
Counters are whole numbers that add up, so that any order of adding gives the same bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

DEPTH = 4
WIDTH = 1 << 13

_ODD = np.uint64(0x9E3779B97F4A7C15)

Keys = NDArray[np.uint64]


def spread(keys: Keys) -> Keys:
    """Well mixed bits of some keys: the finalizer of SplitMix64 (Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = keys * _ODD
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def cells(keys: Keys, width: int = WIDTH) -> NDArray[np.int64]:
    """The cells of n things, int64 [DEPTH, n], in the flat memory of one sketch."""
    with np.errstate(over="ignore"):
        own = [spread(keys + np.uint64(row + 1) * _ODD) % np.uint64(width) for row in range(DEPTH)]
    rows: NDArray[np.int64] = np.stack(own).astype(np.int64)
    return rows + width * np.arange(DEPTH)[:, None]


class Sketch:
    """Counts of several kinds, n sketches over the same things.

    Attributes:
        counts: int64 [n, DEPTH · WIDTH].
        total: int64 [n], all that was counted.
    """

    def __init__(self, kinds: int) -> None:
        self.counts = np.zeros((kinds, DEPTH * WIDTH), np.int64)
        self.total = np.zeros(kinds, np.int64)

    def add(self, kind: int, keys: Keys, amounts: NDArray[np.integer[Any]]) -> None:
        """Count things, [n] each; of a thing that comes again its amounts add up."""
        for row in cells(keys):
            np.add.at(self.counts[kind], row, amounts)
        self.total[kind] += amounts.sum()

    def merge(self, other: Sketch) -> None:
        """Add what others counted."""
        self.counts += other.counts
        self.total += other.total

    def count(self, kind: int, keys: Keys) -> NDArray[np.int64]:
        """How often things came, [n], or a little more."""
        smallest: NDArray[np.int64] = self.counts[kind][cells(keys)].min(0)
        return smallest

    def error(self, kind: int) -> float:
        """By how much a count is too large at most, in all but e^-DEPTH of cases."""
        return math.e / WIDTH * float(self.total[kind])
