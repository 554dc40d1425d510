"""Ratios of sums, Σa / Σb over clusters, and how sure they are: alone, and many at once.

A normalised effect is such a ratio: of what a change does to what there is to do, both summed over
pairs of prompts; so is a mean over the rows of texts. With p = Σa / Σb over G clusters with b > 0,

    v = G/(G-1) · Σ(a - p b)² / (Σb)²

is its variance (the delta method; Cochran 1977, Sampling Techniques, chapter 6), and p ± t(G-1)·√v
its interval. Intervals that hold for all ratios at once are by the bootstrap-t over clusters, as in
:mod:`attnviz.statistics.clusters`: the quantile of the largest |p* - p| / √v*, with ratios of
few clusters for a family of their own. What varies no more than rounding has no interval.

A distance (a divergence, a change of states) is never below 0, so its mean differs from 0 for a
random head too: give the difference to a null distance on the same texts, such as that of one
resampling against another.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Floats, Integers
from attnviz.statistics.clusters import (
    LEAST,
    LEVEL,
    POWER,
    half_widths,
    holm,
    merge_copies,
    standard_error,
    two_sided,
)
from attnviz.statistics.order import ROUNDING
from attnviz.statistics.simultaneous import ENOUGH, REPLICATES, families, joint_widths, off, poisson

_AT_ONCE = 2048


@dataclass(frozen=True, eq=False, slots=True)
class Ratios:
    """Ratios and their intervals, shaped as their numerators were; NaN where there is none."""

    value: Floats  # p
    low: Floats  # low, high: ends of each one's own 95 % interval; from :data:`LEAST` clusters
    high: Floats
    # joint_low, joint_high: ends of the intervals that hold for all at once; from :data:`ENOUGH`
    # clusters
    joint_low: Floats
    joint_high: Floats
    # how far from 0 a ratio must be to stand in 80 % of such samples: by the interval that holds
    # for all at once where there is one
    detectable: Floats
    adjusted: Floats  # p-values against 0 for the whole family, two-sided


def ratios(
    a: Floats,
    b: NDArray[Any],
    names: Sequence[str],
    *,
    seed: int = 0,
    level: float = LEVEL,
    size: Floats | None = None,
    rounding: float = 0.0,
    joint: bool = True,
    few: bool = False,
) -> Ratios:
    """Judge ratios as a family.

    ``b`` [n] or as ``a``, denominators; ``names`` [n], of the clusters that they belong to.
    """
    shape = np.shape(a)[1:]
    columns = [_columns(x) for x in (a, b, np.abs(b if size is None else size))]
    a, b, sizes = merge_copies(names, *columns)
    count, total = (b != 0).sum(0), b.sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        value = a.sum(0) / total
        error = standard_error(((a - value * b) ** 2).sum(0), count, np.abs(total))
        least = ROUNDING * standard_error((sizes**2).sum(0), count, np.abs(total))
        least = np.maximum(least, rounding)
    valid = (count >= LEAST) & (error > least)
    error, freedom = np.where(valid, error, np.nan), np.where(valid, count - 1, np.nan)
    half, joined = half_widths(freedom, level) * error, np.full(value.shape, np.nan)
    adjusted = joined.copy()
    if joint and len(a) >= ENOUGH:
        weights = poisson(seed, list(dict.fromkeys(names)), REPLICATES)  # [R, G]
        least = np.broadcast_to(least, value.shape)
        joined, adjusted = _judged(a, b, weights, valid & (count >= ENOUGH), error, least, level)
    elif joint and few:
        joined = half_widths(freedom, 1 - (1 - level) / max(int(valid.sum()), 1))
        adjusted = holm(two_sided(value, error, freedom))
    joined = joined * error
    reach = np.where(np.isnan(joined), half, joined) + POWER * error
    ends = value, value - half, value + half, value - joined, value + joined, reach, adjusted
    return Ratios(*(end.reshape(shape) for end in ends))


def fieller(a: Floats, b: Floats) -> tuple[float, float]:
    """Get the interval of Σa / Σb where b itself may be near 0; NaN where its own interval holds 0.

    ``a``, ``b`` [G], of independent clusters. The ends are the ratios at which Σ(a - r b) does not
    differ from 0 (Fieller 1954).
    """
    count = len(a)
    if count < LEAST:
        return math.nan, math.nan
    (aa, ab), (_, bb) = np.cov(a, b) / count
    top, bottom = a.mean(), b.mean()
    t = float(half_widths(count - 1))
    square = bottom**2 - t**2 * bb
    if square <= 0:
        return math.nan, math.nan
    middle = top * bottom - t**2 * ab
    half = math.sqrt(max(middle**2 - square * (top**2 - t**2 * aa), 0.0))
    return (middle - half) / square, (middle + half) / square


def mean(values: Floats, names: Sequence[str]) -> tuple[float, float, float]:
    """Give the mean over n values and the ends of its 95 % interval; NaN from too few clusters."""
    result = ratios(values, np.ones(len(values)), names, size=values, joint=False)
    return float(result.value), float(result.low), float(result.high)


def _columns(values: NDArray[Any]) -> Floats:
    """[n, K], one column for what all share."""
    return np.asarray(values, np.float64).reshape(len(values), -1)


def _judged(
    a: Floats,
    b: Floats,
    weights: Floats,
    valid: NDArray[np.bool_],
    errors: Floats,
    least: Floats,
    level: float,
) -> tuple[Floats, Floats]:
    """How many errors all ratios stay within in ``level`` of the draws, and p-values; [K] each.

    ``a`` [G, K], sums over clusters; ``b`` [G, K] or [G, 1]; ``weights`` [R, G], how often each
    cluster is drawn; ``valid`` [K], which ratios have an interval; ``errors`` [K]; ``least`` [K],
    those that rounding makes.
    """
    value, count = a.sum(0) / b.sum(0), np.broadcast_to((b != 0).sum(0), valid.shape)
    residuals = a - value * b  # so that what follows subtracts nothing large

    def votes(indices: Integers) -> Floats:
        part, base = residuals[:, indices], b if b.shape[1] == 1 else b[:, indices]
        with np.errstate(divide="ignore", invalid="ignore"):
            total = weights @ base
            moved = (weights @ part) / total
            spread = weights @ (part * part) - 2 * moved * (weights @ (part * base))
            spread += moved * moved * (weights @ (base * base))
            error = standard_error(spread, count[indices], np.abs(total))
            return off(np.abs(moved), error, least[indices])

    widths, adjusted = np.full((2, len(valid)), np.nan)
    joint = list(joint_widths(votes, families(valid, count), level, _AT_ONCE))
    for part, maxima, width in joint:
        widths[part] = width
        beyond = len(maxima) - np.searchsorted(np.sort(maxima), np.abs(value[part]) / errors[part])
        adjusted[part] = np.minimum((1 + beyond) / (1 + len(maxima)) * len(joint), 1)
    return widths, adjusted
