"""How much of a mean is the doing of one text, and what the other texts say.

A mean over texts can be made by one of them. Beside it stand the share of its largest text, and two
estimates of the typical text, which no single one can move far: the trimmed mean of the texts' own
means (:mod:`attnviz.statistics.trimmed`), and their median, with the interval between two order
statistics that needs no assumption on the distribution (Conover 1999, Practical Nonparametric
Statistics, section 3.2).

These estimate other things than the mean does where texts are skewed: the typical text, each
counting once, whatever its rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.statistics.clusters import LEAST, LEVEL
from attnviz.statistics.exact import Floats

TRIMMED = 0.1
"""The share of texts that is cut off at each end."""

LARGE = 0.2
"""One text that makes more than this share of an effect is worth a warning."""


class Between(NamedTuple):
    """Estimates [...] and the ends of their intervals, NaN where there is none."""

    value: Floats
    low: Floats
    high: Floats


def largest_share(a: Floats) -> Floats:
    """The share of every sum that its largest text makes; above 1 where others take away from it.

    Args:
        a: [texts, ...], sums of every text.

    Returns:
        [...]; NaN where the sum is 0.
    """
    total = np.abs(a.sum(0))
    share: NDArray[np.float64] = np.abs(a).max(0, initial=0) / np.where(total > 0, total, np.nan)
    return share


def per_text(a: Floats, b: NDArray[np.integer[Any]]) -> Floats:
    """[texts, ...], the mean of every text over its own rows; NaN without a row."""
    rows = np.asarray(b)
    rows = rows.reshape(rows.shape + (1,) * (np.ndim(a) - rows.ndim))
    return np.asarray(a) / np.where(rows > 0, rows, np.nan)


def median(values: Floats, level: float = LEVEL) -> Between:
    """The middle text: half of the texts have a lower mean, half a higher one.

    The ends are the k-th smallest and the k-th largest text, with the largest k for which the
    binomial probability that the median lies between is at least ``level``; from five texts or
    fewer there is no such k for 95 %.

    Args:
        values: [texts, ...], each text's mean; NaN where it has none.
        level: of the interval.
    """
    flat = np.asarray(values, np.float64).reshape(len(values), -1)
    bounds = np.full((3, flat.shape[1]), np.nan)
    for place, column in enumerate(flat.T):
        some = np.sort(column[~np.isnan(column)])
        if len(some):
            bounds[:, place] = _median(some, level)
    return Between(*bounds.reshape(3, *np.shape(values)[1:]))


def _median(some: Floats, level: float) -> tuple[float, float, float]:
    from scipy.special import bdtr

    n, value = len(some), float(np.median(some))
    below = bdtr(np.arange(n), n, 0.5)  # P(at most k of n texts lie below the median)
    outside = np.flatnonzero(2 * below <= 1 - level)
    if n < LEAST or not len(outside):
        return value, np.nan, np.nan
    k = int(outside[-1])
    if some[k] == some[n - 1 - k]:
        return value, np.nan, np.nan
    return value, float(some[k]), float(some[n - 1 - k])
