"""Numbers in narrow bins: quantiles of a whole stream, and what goes with each bin.

A bin holds the numbers whose float32 agree in sign, exponent and the first 8 bits of what follows:
it is at most 0.4 % wide. Counts are whole numbers, so that any order of adding gives the same bits.

Sums that do not depend on the order of what is summed.

Floating-point addition rounds, so the last bits of a sum depend on which process added what first.
Here every value is split into a whole number and a fraction in units of 2⁻⁵², both are added as
integers, and integer addition is associative: processes, machines and parts that were merged give
one and the same sum, bit by bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Floats, Integers

_BITS = 52
_UNIT = 1 << _BITS
_AT_ONCE = 1 << 10  # fractions whose sum surely fits into 63 bits


def none_if_nan(value: float) -> float | None:
    """Return a number; None for one that is not known."""
    return float(value) if math.isfinite(value) else None


class FixedPoint:
    """An array of exact sums in fixed point.

    Attributes:
        whole: int64, the whole part of each sum.
        part: int64, its fraction in units of 2 to the power of minus ``bits``, from 0 up to but
            not 1.
    """

    bits: ClassVar[int]

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.whole: Integers = np.zeros(shape, np.int64)
        self.part: Integers = np.zeros(shape, np.int64)

    def merge(self, other: Self) -> None:
        """Add another array of sums."""
        self.whole += other.whole
        self.part += other.part
        self._carry()

    def value(self, index: Any = ...) -> Floats:
        """Return the sums in float64; ``index`` takes some of them."""
        return self.whole[index] + self.part[index] / (1 << self.bits)

    def _carry(self) -> None:
        self.whole += self.part >> self.bits
        self.part &= (1 << self.bits) - 1


class Exact(FixedPoint):
    """An array of exact sums of numbers, to 2⁻⁵²."""

    bits = _BITS

    def add(self, values: NDArray[np.floating[Any]]) -> None:
        """Add every ``values[n]``; values below 2⁶² in size, rounded to 2⁻⁵²."""
        for first in range(0, len(values), _AT_ONCE):
            block = np.asarray(values[first : first + _AT_ONCE], np.float64)
            floor = np.floor(block)
            self.whole += floor.astype(np.int64).sum(0)
            self.part += np.rint((block - floor) * _UNIT).astype(np.int64).sum(0)
            self._carry()


_DROPPED = 15  # bits of a float32 that a bin leaves out
UNIT = 1 << 30
"""Masses are summed in units of 2⁻³⁰."""


def bins(values: NDArray[np.floating[Any]]) -> Integers:
    """Return the bins of some numbers, in their order; 0 and -0 share one."""
    bits = (np.asarray(values, np.float32) + np.float32(0)).view(np.int32)
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return (ordered >> _DROPPED).astype(np.int64)


def lower(numbers: Integers) -> NDArray[np.float64]:
    """Return the smallest number of each bin."""
    ordered = (np.asarray(numbers, np.int64) << _DROPPED).astype(np.int32)
    bits = ordered ^ ((ordered >> 31) & 0x7FFFFFFF)
    return bits.view(np.float32).astype(np.float64)


@dataclass
class Histograms:
    """Several kinds of numbers, each in its bins; sparse."""

    cells: Integers  # int64 [n], kind · 2³² + bin, ascending
    counts: Integers  # int64 [n], how many numbers; ``masses`` what goes with them, in units
    masses: Integers

    @classmethod
    def empty(cls) -> Histograms:
        """None yet."""
        return cls(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64))

    @classmethod
    def of(
        cls, kinds: Integers, values: NDArray[np.floating[Any]], masses: NDArray[np.floating[Any]]
    ) -> Histograms:
        """Of finite numbers [n] of some kinds, from 0, with what goes with each."""
        cells = (kinds << 32) + bins(values)
        units = np.rint(np.asarray(masses, np.float64) * UNIT).astype(np.int64)
        return _summed(cells, np.ones(len(cells), np.int64), units)

    def merge(self, *histograms: Histograms) -> None:
        """Add others."""
        operands = (self, *histograms)
        total = _summed(
            np.concatenate([h.cells for h in operands]),
            np.concatenate([h.counts for h in operands]),
            np.concatenate([h.masses for h in operands]),
        )
        self.cells, self.counts, self.masses = total.cells, total.counts, total.masses

    def kind(self, number: int) -> tuple[Integers, Integers, Integers]:
        """Return the bins of one kind, ascending, with counts and masses."""
        half = 1 << 31  # bins may be below 0
        first, last = np.searchsorted(self.cells, [(number << 32) - half, (number << 32) + half])
        part = slice(first, last)
        return self.cells[part] - (number << 32), self.counts[part], self.masses[part]


def _summed(cells: Integers, counts: Integers, masses: Integers) -> Histograms:
    order = np.argsort(cells, kind="stable")
    ordered = cells[order]
    first = np.flatnonzero(np.diff(ordered, prepend=-1 << 62))
    sums = (np.add.reduceat(x[order], first) if len(x) else x for x in (counts, masses))
    return Histograms(ordered[first], *sums)


@dataclass(frozen=True, eq=False, slots=True)
class Parts:
    """A stream in equal parts by the size of its numbers."""

    # [parts], the smallest number of each, to the width of a bin; ``high`` the largest
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    # [parts], numbers in each, which need not be whole where a bin is divided
    counts: NDArray[np.float64]
    masses: NDArray[np.float64]  # [parts], what goes with them


def parts(bins_: Integers, counts: Integers, masses: Integers, number: int) -> Parts:
    """Equal parts of one kind, from the smallest numbers on.

    A bin across a border is divided, with its mass in proportion.
    """
    upto = np.concatenate([[0], np.cumsum(counts)])
    total = int(upto[-1])
    borders = total * np.arange(number + 1) / number
    mass = np.interp(borders, upto, np.concatenate([[0], np.cumsum(masses)])) / UNIT
    first = np.clip(np.searchsorted(upto, borders[:-1], side="right") - 1, 0, len(bins_) - 1)
    end = np.clip(np.searchsorted(upto, borders[1:], side="left") - 1, 0, len(bins_) - 1)
    return Parts(lower(bins_[first]), lower(bins_[end]), np.diff(borders), np.diff(mass))


def part_of(
    values: NDArray[np.floating[Any]],
    chances: NDArray[np.floating[Any]],
    bins_: Integers,
    counts: Integers,
    number: int,
) -> Integers:
    """In which of the equal parts numbers of the stream are, from 0.

    ``values`` [n], of the stream; ``chances`` [n], 0 to 1, drawn for each: where in its bin it
    stands.
    """
    cell = np.searchsorted(bins_, bins(values))
    below = np.cumsum(counts) - counts
    rank = below[cell] + np.asarray(chances, np.float64) * counts[cell]
    part: Integers = np.floor(rank * number / counts.sum()).astype(np.int64)
    return part.clip(0, number - 1)


BINS = 512
"""Bins of a :class:`Spread`."""


class Spread:
    """How the values of clusters spread, for each of many means.

    ``tops`` [K], the largest value that each can have; larger ones count as that.

    Attributes:
        counts: int32 [K, BINS], how many clusters have a value in each bin.
    """

    def __init__(self, tops: Floats) -> None:
        self.tops = tops
        self.counts = np.zeros((len(tops), BINS), np.int32)

    def add(self, values: Floats) -> None:
        """Add clusters: ``values[n]`` [K] those of cluster n, NaN where it has none."""
        cluster, mean = np.nonzero(~np.isnan(values))
        share = values[cluster, mean] / self.tops[mean]
        cells = np.clip((share * BINS).astype(np.int64), 0, BINS - 1)
        np.add.at(self.counts, (mean, cells), 1)

    def merge(self, other: Spread) -> None:
        """Add the counts of other clusters."""
        self.counts += other.counts

    def quantiles(self, levels: tuple[float, ...] = (0.25, 0.5, 0.75)) -> Floats:
        """[L, K], the middle of the bin that each of L quantiles lies in; NaN without any value."""
        below = self.counts.cumsum(1, dtype=np.int64)
        total = below[:, -1]
        quantiles = np.full((len(levels), len(total)), np.nan)
        for row, share in enumerate(levels):
            rank = np.maximum(np.ceil(share * total), 1)
            cells = (below < rank[:, None]).sum(1)
            quantiles[row] = np.where(total > 0, (cells + 0.5) / BINS * self.tops, np.nan)
        return quantiles


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
    """Return the cells of n things, int64 [DEPTH, n], in the flat memory of one sketch."""
    with np.errstate(over="ignore"):
        hashes = (spread(keys + np.uint64(row + 1) * _ODD) for row in range(DEPTH))
        rows: NDArray[np.int64] = np.stack([h % np.uint64(width) for h in hashes]).astype(np.int64)
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
        return self.counts[kind][cells(keys)].min(0)

    def error(self, kind: int) -> float:
        """By how much a count is too large at most, in all but e^-DEPTH of cases."""
        return math.e / WIDTH * float(self.total[kind])
