"""Trimmed means of many things over the same texts, judged together.

Effects on texts have tails so heavy that no interval of their mean holds: of the heads of demo-gpt2
on a treebank one sentence in a thousand makes half of the variance, and no sample without it can
know. The mean of the middle texts can be known. Its interval is Tukey & McLaughlin's (1963; Wilcox
2012, Introduction to Robust Estimation, section 4.3); all together hold by the bootstrap-t, which
divides every draw's deviation by the draw's own error (Wilcox, section 4.4.3), and below
:data:`~attnviz.statistics.simultaneous.ENOUGH` texts, where draws of so few say little, by
Bonferroni's correction. Coverage of both: :mod:`attnviz.statistics.coverage`.

Notation in shapes: n texts, K means, R draws.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from attnviz.statistics.clusters import LEAST, LEVEL
from attnviz.statistics.exact import Floats, Integers
from attnviz.statistics.families import POWER
from attnviz.statistics.maximum import ROUNDING, largest, off, width
from attnviz.statistics.robust import TRIMMED, largest_share
from attnviz.statistics.simultaneous import ENOUGH
from attnviz.statistics.student import half_widths

MANY = 500
"""From so many texts on, the bootstrap's width is that of Student's t (1.01 times at 200)."""
DRAWS = 1000
_AT_ONCE = 1 << 22


@dataclass(frozen=True, eq=False, slots=True)
class TrimmedMeans:
    """Trimmed means [K] and their intervals; NaN for what is not known.

    Attributes:
        center: the mean of the middle texts.
        low: of each one's own interval; ``high`` likewise.
        high: the other end.
        joint_low: of the intervals that hold together; ``joint_high`` likewise.
        joint_high: the other end.
        detectable: how far from 0 a mean must be for its joint interval to leave out 0 in 80 % of
            such samples.
        largest: the share of the sum of all texts that the largest makes.
    """

    center: Floats
    low: Floats
    high: Floats
    joint_low: Floats
    joint_high: Floats
    detectable: Floats
    largest: Floats


def trimmed_means(
    values: Floats,
    level: float = LEVEL,
    cut: float = TRIMMED,
    seed: int = 0,
    *,
    joint: bool = True,
    rounding: float = 0.0,
) -> TrimmedMeans:
    """Judge K trimmed means as a family.

    Args:
        values: [n, K], each text's own mean.
        level: of the intervals.
        cut: the share of the texts that goes at each end, below one half.
        seed: of the bootstrap.
        joint: without it each by itself, in a fraction of the time; what holds together is NaN.
        rounding: the error that the rounding of what the values are differences of makes in a
            mean; at least that of the values themselves is reckoned with.
    """
    count = len(values)
    center, error = _estimates(values, cut)
    own = ROUNDING * np.sqrt((values * values).sum(0)) / max(count, 1) / (1 - 2 * cut)
    least = np.maximum(own, rounding)
    error = np.where((count >= LEAST) & (error > least), error, np.nan)
    known = int((~np.isnan(error)).sum())
    freedom = count - 2 * _trimmed(count, cut) - 1
    half = half_widths(freedom, level) * error
    family = max(known, 1) if joint else np.nan
    wide = half_widths(freedom, 1 - (1 - level) / family) * error
    if joint and ENOUGH <= count < MANY and known:
        wide = _widths(values, np.flatnonzero(~np.isnan(error)), least, level, cut, seed) * error
    return TrimmedMeans(
        center, center - half, center + half, center - wide, center + wide,
        wide + POWER * error, largest_share(values),
    )  # fmt: skip


def _trimmed(count: int, cut: float) -> int:
    """How many texts go at each end."""
    return int(cut * count + 1e-9)


def _estimates(values: Floats, cut: float) -> tuple[Floats, Floats]:
    """The trimmed mean and its error over the last axis but one, [..., n, K] -> two [..., K]."""
    count = values.shape[-2]
    away = _trimmed(count, cut)
    ordered = np.sort(values, -2)
    middle = ordered[..., away : count - away, :]
    center = middle.mean(-2)
    # winsorized: the outermost that are left stand for those that went
    apart = ((middle - center[..., None, :]) ** 2).sum(-2)
    low, high = middle[..., 0, :], middle[..., -1, :]
    mean = (middle.sum(-2) + away * (low + high)) / count
    apart = apart + (count - 2 * away) * (center - mean) ** 2
    apart = apart + away * ((low - mean) ** 2 + (high - mean) ** 2)
    spread = np.sqrt(apart / max(count - 1, 1))
    error: Floats = spread / ((1 - 2 * away / count) * np.sqrt(count))
    return center, error


def _widths(
    values: Floats, known: Integers, least: Floats, level: float, cut: float, seed: int
) -> Floats:
    """How many of its own errors every mean stays within, in ``level`` of the draws; NaN for none.

    Args:
        values: [n, K].
        known: the numbers of the means that have an interval.
        least: [K], the error that rounding makes.
        level: see :func:`trimmed_means`.
        cut: likewise.
        seed: likewise.
    """
    count = len(values)
    center, _ = _estimates(values, cut)
    drawn = np.random.default_rng([seed, count]).integers(0, count, (DRAWS, count))

    def votes(some: Integers) -> Floats:
        own = values[:, some]
        at_once = max(1, _AT_ONCE // own.size)
        parts = [_estimates(own[drawn[n : n + at_once]], cut) for n in range(0, DRAWS, at_once)]
        means, errors = (np.concatenate(part) for part in zip(*parts, strict=True))
        return off(np.abs(means - center[some]), errors, least[some])

    most, part = largest(votes, known, level, _AT_ONCE // count)
    widths = np.full(values.shape[1], np.nan)
    widths[part] = width(most, level)
    return widths
