"""Intervals that hold for all heads and scores at once.

A hundred heads times ten scores are a thousand questions, and the best answer of a thousand is good
by chance. The bootstrap over texts draws them anew, each text a Poisson(1) number of times, and
notes by how many standard errors the worst of all means is off (max-T: Westfall & Young 1993,
Resampling-Based Multiple Testing). 95 % of the draws stay within the quantile, so intervals of so
many standard errors hold together.

The errors are each draw's own (the bootstrap-t, Efron & Tibshirani 1993, chapter 12): a draw that
leaves out the text that matters has a wrong mean and a small error, which is what happens to a
sample as well. Divided by the original errors, such intervals held jointly in a fifth of samples of
50 texts.

A score that few texts have, such as one about repeated tokens, is off by many standard errors in
many draws. So scores with rows in fewer than :data:`COMMON` of the texts are a family of their own,
which does not widen the intervals of the others; both hold together with 95 %, each with 97.5 %.

The worst mean of every draw decides how wide the
intervals of all are. Two things must not decide it:

- **Rounding.** Values are differences of what models compute in float32. A mean over n texts has
  no error below ``least``, which rounding alone makes: :data:`ROUNDING` times the numbers that were
  subtracted (root mean square) over √n. A mean whose error is no larger has no interval, and no
  vote.
- **A mean that few texts make.** Draws without these texts are far off and, but for rounding, have
  no error. So such a mean is off by infinitely many errors there: divided by rounding, it would be
  by a million or by a hundred, as the numbers happen to be rounded. Where more draws than one less
  the level are infinite for some mean, the means that are so most often have no joint interval,
  and no vote, until the others have one: what is not known of one says nothing of the others.

A text's weights come from a hash of the seed, the text and the replicate, and sums are integers:
nothing depends on who counted what.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Bools, Floats, Integers
from attnviz.statistics.clusters import LEVEL, ClusterSums, standard_error
from attnviz.statistics.histogram import FixedPoint
from attnviz.statistics.order import ROUNDING

REPLICATES = 1000
ENOUGH = 20
"""Means over fewer texts are left out: their errors are not known well enough to compare with."""
COMMON = 0.75
"""A mean with rows in fewer of the texts than this share belongs to the rare ones."""

_BITS = 24  # fractions are kept in units of 2⁻²⁴
_UNIT = 1 << _BITS
_HALF = 26
_AT_ONCE = 256
_MEANS = 4096
_LIMITS = np.cumsum([2.0**32 * math.exp(-1) / math.factorial(k) for k in range(13)])

Votes = Callable[[Integers], Floats]


def off(distance: Floats, error: Floats, least: Floats) -> Floats:
    """By how many of its own errors each draw's mean is off, [R, K].

    ``distance`` [R, K], how far it is off; ``error`` [R, K], of each draw; NaN where there is none;
    ``least`` [K], the error that rounding alone makes. Where a draw's is below half of that, its
    texts do not differ: its mean is not off by more than rounding, or infinitely far.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = distance / error
    alike = ~(error > least / 2)
    return np.where(alike, np.where(distance > least, np.inf, 0.0), errors)


def largest(votes: Votes, means: Integers, level: float, at_once: int) -> tuple[Floats, Integers]:
    """Return the largest of every draw, [R], and which means take part.

    ``votes``: :func:`off` of some means [n], as [R, n].
    """
    maxima, numbers, far = _most(votes, means, at_once)
    order = np.argsort(far.sum(1), kind="stable")
    lost = np.logical_or.accumulate(far[order]).sum(1)
    # by the quantile that is taken, so many draws may be beyond it
    spare = len(maxima) - 1 - np.ceil(level * (len(maxima) - 1))
    out = numbers[order[lost > spare]]
    if not len(out):
        return maxima, means
    remaining: Integers = np.setdiff1d(means, out)
    return _most(votes, remaining, at_once)[0], remaining


def families(valid: Bools, count: Integers) -> tuple[Bools, Bools]:
    """Which means take part as common ones, and which as rare ones, by how many texts have rows."""
    common = count >= COMMON * count.max(initial=0)
    return valid & common, valid & ~common


def joint_widths(
    votes: Votes, parts: Iterable[Bools], level: float, at_once: int
) -> Iterator[tuple[Integers, Floats, float]]:
    """Yield the means of each family, the largest of every draw, and how many errors all stay in.

    The families hold together in ``level`` of the draws; means are numbered in the flat array.
    """
    present = [part for part in parts if part.any()]
    inside = 1 - (1 - level) / max(len(present), 1)
    for family in present:
        maxima, means = largest(votes, np.flatnonzero(family), inside, at_once)
        quantile = float(np.quantile(maxima, inside, method="higher")) if len(maxima) else np.nan
        yield means, maxima, quantile if np.isfinite(quantile) else np.nan


def _most(votes: Votes, means: Integers, at_once: int) -> tuple[Floats, Integers, Bools]:
    """Find the largest [R]; and the means infinitely far off in some draws, and in which."""
    maxima: Floats = np.zeros(0)
    numbers, far = [], []
    for first in range(0, len(means), at_once):
        block = means[first : first + at_once]
        off_by = votes(block)
        maxima = np.maximum(maxima, off_by.max(1)) if len(maxima) else off_by.max(1)
        beyond = np.isinf(off_by)
        any_ = beyond.any(0)
        numbers.append(block[any_])
        far.append(beyond[:, any_].T)
    return (
        maxima,
        np.concatenate([np.zeros(0, np.int64), *numbers]),
        np.concatenate([np.zeros((0, len(maxima)), np.bool_), *far]),
    )


def poisson(seed: int, names: Sequence[str], replicates: int = REPLICATES) -> Floats:
    """How often each cluster is drawn, [replicates, n].

    SHAKE-128 of seed and name gives 32 bits for each replicate, which the Poisson(1) distribution
    function turns into a number from 0 to 13.
    """
    counts = np.empty((replicates, len(names)))
    for n, name in enumerate(names):
        stream = hashlib.shake_128(f"{seed}\0{name}".encode("utf-8", "surrogatepass"))
        draws = np.frombuffer(stream.digest(4 * replicates), "<u4")
        counts[:, n] = np.searchsorted(_LIMITS, draws, side="right")
    return counts


class DrawnSums(FixedPoint):
    """An array of exact weighted sums, to 2⁻²⁴."""

    bits = _BITS

    def add(self, weights: Floats, values: Floats) -> None:
        """Add Σ_n weights[r, n] · values[n, ...] for every r."""
        floor = np.floor(values)
        high = np.floor(floor / (1 << _HALF))
        # sums of products below 2⁵³ are exact in float64, whoever multiplies
        self.part += _product(weights, np.rint((values - floor) * _UNIT))
        self.whole += _product(weights, floor - high * (1 << _HALF))
        if high.any():
            self.whole += _product(weights, high) << _HALF
        self._carry()


class Bootstrap:
    """The sums of every replicate; names as in :class:`~attnviz.statistics.clusters.ClusterSums`.

    Attributes:
        a, aa, ab: exact sums [R, ...].
        b, bb: int64 [R, ...].
    """

    def __init__(self, shape: tuple[int, ...], seed: int, replicates: int = REPLICATES) -> None:
        self.seed, self.replicates = seed, replicates
        self.a, self.aa, self.ab = (DrawnSums((replicates, *shape)) for _ in range(3))
        self.b = np.zeros((replicates, *shape), np.int64)
        self.bb = np.zeros((replicates, *shape), np.int64)

    def add(self, names: Sequence[str], a: Floats, b: NDArray[np.integer[Any]]) -> None:
        """Add clusters, as :meth:`ClusterSums.add`; ``names[n]`` tells cluster n from others."""
        for first in range(0, len(names), _AT_ONCE):
            block = slice(first, first + _AT_ONCE)
            weights = poisson(self.seed, names[block], self.replicates)
            values, rows = np.asarray(a[block], np.float64), np.asarray(b[block], np.float64)
            self.a.add(weights, values)
            self.aa.add(weights, values * values)
            self.ab.add(weights, values * rows)
            self.b += _product(weights, rows)
            self.bb += _product(weights, rows * rows)

    def merge(self, other: Bootstrap) -> None:
        """Add the sums of other clusters."""
        for mine, theirs in ((self.a, other.a), (self.aa, other.aa), (self.ab, other.ab)):
            mine.merge(theirs)
        self.b += other.b
        self.bb += other.bb

    def means(self, index: Any = ...) -> Floats:
        """[R, ...], the mean of every replicate; NaN where none of its clusters has a row."""
        rows = self.b[:, index] if index is not ... else self.b
        sums = self.a.value((slice(None), index) if index is not ... else ...)
        return sums / np.where(rows > 0, rows, np.nan)

    def off(self, sums: ClusterSums, mask: Bools) -> Floats:
        """[R, n], by how many of its own standard errors each replicate's mean is off."""
        part = (slice(None), mask)
        mean, rows, count = self.means(mask), self.b[part], sums.count[mask]
        squares = self.aa.value(part) - 2 * mean * self.ab.value(part) + mean * mean * self.bb[part]
        errors = standard_error(squares, count, rows)
        return off(np.abs(mean - sums.mean()[mask]), errors, self.least(sums)[mask])

    def least(self, sums: ClusterSums) -> Floats:
        """Give the error that rounding makes: of the values, and of their squares to 2⁻²⁴ here."""
        squares = ROUNDING**2 * sums.aa.value() + sums.count / _UNIT
        return standard_error(squares, sums.count, sums.b)

    def widths(self, sums: ClusterSums, copies: float = 1.0) -> Floats:
        """How many standard errors all means together stay within, in 95 % of the draws."""
        widths = np.full(sums.count.shape, np.nan)

        def votes(means: Integers) -> Floats:
            mask = np.zeros(widths.shape, np.bool_)
            mask.flat[means] = True
            return self.off(sums, mask)

        for means, _, width in joint_widths(votes, self.families(sums, copies), LEVEL, _MEANS):
            widths.flat[means] = width
        return widths

    def families(self, sums: ClusterSums, copies: float = 1.0) -> tuple[Bools, Bools]:
        """Which means take part as common ones, and which as rare ones."""
        differ = np.nan_to_num(sums.error()) > np.nan_to_num(self.least(sums))
        valid = sums.known(copies) & differ & (sums.count / copies >= ENOUGH)
        return families(valid, sums.count)


def _product(weights: Floats, values: Floats) -> Integers:
    """Σ_n weights[r, n] · values[n, ...] of whole numbers."""
    flat = values.reshape(len(values), -1)
    return (weights @ flat).astype(np.int64).reshape(len(weights), *values.shape[1:])
