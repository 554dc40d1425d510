"""Ratios of sums, Σa / Σb over clusters, and how sure they are: alone, and many at once.

A normalised effect is such a ratio: of what a change does to what there is to do, both summed over
pairs of prompts. With p = Σa / Σb over G clusters,

    v = G/(G-1) · Σ(a - p b)² / (Σb)²

is its variance (the delta method; Cochran 1977, Sampling Techniques, chapter 6), and p ± t(G-1)·√v
its interval. Intervals that hold for all ratios at once are by the bootstrap-t over clusters, as in
:mod:`attnviz.statistics.simultaneous`: the quantile of the largest |p* - p| / √v*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnviz.statistics.clusters import LEAST, LEVEL
from attnviz.statistics.exact import Floats
from attnviz.statistics.families import POWER
from attnviz.statistics.simultaneous import ENOUGH, REPLICATES, poisson
from attnviz.statistics.student import half_width, half_widths

_SAME = 1e-9
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
    a: Floats, b: Floats, names: Sequence[str], *, seed: int = 0, level: float = LEVEL
) -> Ratios:
    """Judge K ratios with one denominator.

    Args:
        a: [n, K], numerators.
        b: [n], denominators, whose sum is not 0.
        names: [n], of the clusters that they belong to.
        seed: of the bootstrap.
        level: of the intervals.
    """
    a, b = clustered(names, a), clustered(names, b)
    count, total = len(b), float(b.sum())
    value = a.sum(0) / total
    none = np.full(value.shape, np.nan)
    if count < LEAST:
        return Ratios(value, none, none, none, none, none)
    error = _error(((a - value * b[:, None]) ** 2).sum(0), count, total)
    error = np.where(error > _SAME, error, np.nan)
    half = half_width(count - 1, level) * error
    joint = none
    if count >= ENOUGH:
        joint = _width(a, b, value, list(dict.fromkeys(names)), seed, level) * error
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
    known = (counts >= LEAST) & (error > _SAME)
    error = np.where(known, error, np.nan)
    half = half_widths(np.maximum(counts - 1, 1), LEVEL) * error
    return value - half, value + half


def mean(values: Floats, names: Sequence[str]) -> tuple[float, float, float]:
    """The mean over n values and the ends of its 95 % interval; NaN from too few clusters."""
    interval = ratios(values[:, None], np.ones(len(values)), names)
    return float(interval.value[0]), float(interval.low[0]), float(interval.high[0])


def _error(squares: Floats, count: int, total: float) -> Floats:
    error: Floats = np.sqrt(count / (count - 1) * np.maximum(squares, 0)) / abs(total)
    return error


def _width(
    a: Floats, b: Floats, value: Floats, names: Sequence[str], seed: int, level: float
) -> float:
    """How many standard errors all ratios stay within, in ``level`` of the draws; NaN for none."""
    weights = poisson(seed, names, REPLICATES)  # [R, G]
    total, squares = weights @ b, weights @ (b * b)
    count, most = len(b), np.zeros(REPLICATES)
    for first in range(0, a.shape[1], _AT_ONCE):
        some = a[:, first : first + _AT_ONCE]
        with np.errstate(divide="ignore", invalid="ignore"):
            drawn = (weights @ some) / total[:, None]
            spread = weights @ (some * some) - 2 * drawn * (weights @ (some * b[:, None]))
            spread += drawn * drawn * squares[:, None]
            errors = np.sqrt(count / (count - 1) * np.maximum(spread, 0)) / np.abs(total)[:, None]
            apart = np.abs(drawn - value[first : first + _AT_ONCE])
            # where the clusters of a draw do not differ, its ratio is not off, or infinitely far
            off = np.where(apart <= _SAME, 0.0, apart / errors)
        most = np.maximum(most, np.nan_to_num(off, nan=0.0, posinf=np.inf).max(1))
    quantile = float(np.quantile(most, level, method="higher"))
    return quantile if np.isfinite(quantile) else float("nan")
