"""Ratios of sums, Σa / Σb over clusters, and how sure they are: alone, and many at once.

A normalised effect is such a ratio: of what a change does to what there is to do, both summed over
pairs of prompts. With p = Σa / Σb over G clusters,

    v = G/(G-1) · Σ(a - p b)² / (Σb)²

is its variance (the delta method; Cochran 1977, Sampling Techniques, chapter 6), and p ± t(G-1)·√v
its interval. Intervals that hold for all ratios at once are by the bootstrap-t over clusters, as in
:mod:`attnviz.statistics.simultaneous`: the quantile of the largest |p* - p| / √v*. What varies no
more than rounding has no interval (:mod:`attnviz.statistics.maximum`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnviz.statistics.clusters import LEAST, LEVEL
from attnviz.statistics.exact import Floats, Integers
from attnviz.statistics.families import POWER
from attnviz.statistics.maximum import ROUNDING, largest, off, width
from attnviz.statistics.simultaneous import ENOUGH, REPLICATES, poisson
from attnviz.statistics.student import half_width, half_widths

_AT_ONCE = 2048


@dataclass(frozen=True, eq=False, slots=True)
class Ratios:
    """Ratios and their intervals, [K]; NaN where there is none.

    Attributes:
        value: p.
        low, high: ends of each one's own 95 % interval; from :data:`LEAST` clusters.
        joint_low, joint_high: ends of the intervals that hold for all at once; from
            :data:`ENOUGH` clusters.
        detectable: how far from 0 a ratio must be to stand in 80 % of such samples: by the interval
            that holds for all at once where there is one.
    """

    value: Floats
    low: Floats
    high: Floats
    joint_low: Floats
    joint_high: Floats
    detectable: Floats


def clustered(names: Sequence[str], values: Floats) -> Floats:
    """Sums over the clusters, in the order of their first members: [n, ...] -> [G, ...]."""
    places: dict[str, int] = {}
    where = np.array([places.setdefault(name, len(places)) for name in names], np.int64)
    sums = np.zeros((len(places), *values.shape[1:]))
    np.add.at(sums, where, values)
    return sums


def ratios(
    a: Floats,
    b: Floats,
    names: Sequence[str],
    *,
    seed: int = 0,
    level: float = LEVEL,
    size: Floats | None = None,
) -> Ratios:
    """Judge K ratios with one denominator.

    Args:
        a: [n, K], numerators.
        b: [n], denominators, whose sum is not 0.
        names: [n], of the clusters that they belong to.
        seed: of the bootstrap.
        level: of the intervals.
        size: [n], of the numbers that numerators are differences of, which have been rounded; the
            denominators', unless given, as these are differences of such numbers themselves.
    """
    sizes = clustered(names, np.abs(b if size is None else size))
    a, b = clustered(names, a), clustered(names, b)
    count, total = len(b), float(b.sum())
    value = a.sum(0) / total
    none = np.full(value.shape, np.nan)
    if count < LEAST:
        return Ratios(value, none, none, none, none, none)
    error = _error(((a - value * b[:, None]) ** 2).sum(0), count, total)
    least = ROUNDING * _error((sizes**2).sum(), count, total)
    error = np.where(error > least, error, np.nan)
    half = half_width(count - 1, level) * error
    joint = none
    if count >= ENOUGH:
        known = np.flatnonzero(~np.isnan(error))
        joint = _widths(a, b, known, least, list(dict.fromkeys(names)), seed, level) * error
    apart = np.where(np.isnan(joint), half, joint) + POWER * error
    return Ratios(value, value - half, value + half, value - joint, value + joint, apart)


def own_intervals(a: Floats, b: Floats, names: Sequence[str]) -> tuple[Floats, Floats]:
    """Each one's own interval of K ratios with denominators of their own.

    Args:
        a: [n, K], numerators.
        b: [n, K], denominators.
        names: [n], of the clusters that they belong to.

    Returns:
        Both ends, [K]; NaN from fewer than :data:`LEAST` clusters with a denominator, or where
        their ratios do not differ.
    """
    a, b = clustered(names, a), clustered(names, b)
    counts, total = (b > 0).sum(0), b.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = a.sum(0) / total
        squares = ((a - value * b) ** 2).sum(0)
        error = np.sqrt(counts / (counts - 1) * squares) / total
        least = ROUNDING * np.sqrt(counts / (counts - 1) * (b * b).sum(0)) / total
    known = (counts >= LEAST) & (error > least)
    error = np.where(known, error, np.nan)
    half = half_widths(np.maximum(counts - 1, 1), LEVEL) * error
    return value - half, value + half


def mean(values: Floats, names: Sequence[str]) -> tuple[float, float, float]:
    """The mean over n values and the ends of its 95 % interval; NaN from too few clusters."""
    interval = ratios(values[:, None], np.ones(len(values)), names, size=values)
    return float(interval.value[0]), float(interval.low[0]), float(interval.high[0])


def _error(squares: Floats, count: int, total: Floats | float) -> Floats:
    error: Floats = np.sqrt(count / (count - 1) * np.maximum(squares, 0)) / np.abs(total)
    return error


def _widths(
    a: Floats,
    b: Floats,
    known: Integers,
    least: Floats,
    names: Sequence[str],
    seed: int,
    level: float,
) -> Floats:
    """How many standard errors all ratios stay within, in ``level`` of the draws; NaN for none.

    Args:
        a: [G, K], sums over clusters.
        b: [G], likewise.
        known: the numbers of the ratios with an interval.
        least: the error that rounding makes.
        names: [G].
        seed: see :func:`ratios`.
        level: likewise.
    """
    weights = poisson(seed, names, REPLICATES)  # [R, G]
    total, squares, count = weights @ b, weights @ (b * b), len(b)
    apart = a - a.sum(0) / b.sum() * b[:, None]  # so that what follows subtracts nothing large

    def votes(some: Integers) -> Floats:
        own = apart[:, some]
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = (weights @ own) / total[:, None]
            spread = weights @ (own * own) - 2 * moved * (weights @ (own * b[:, None]))
            spread += moved * moved * squares[:, None]
            return off(np.abs(moved), _error(spread, count, total[:, None]), least)

    most, part = largest(votes, known, level, _AT_ONCE)
    widths = np.full(a.shape[1], np.nan)
    widths[part] = width(most, level)
    return widths
