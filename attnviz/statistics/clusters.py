"""A mean over the rows of many texts, and how sure it is.

Rows of one text are not independent, texts are. With a_g the sum of a score over the rows of text g
and b_g their number, the mean is the ratio p = Σa / Σb, and over the G texts with b > 0

    v = G/(G-1) · (Σa² - 2pΣab + p²Σb²) / (Σb)²

is the variance of a ratio estimate from clusters (Cochran 1977, Sampling Techniques, chapter 6);
the interval is p ± t(G-1)·√v. Below :data:`FEW` texts it covers too little.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.statistics.exact import Exact, Floats, Integers
from attnviz.statistics.student import half_width

FEW = 50
"""Below so many texts an interval covers less than it says."""

LEVEL = 0.95


class ClusterSums:
    """Five sums and a count for each of many means; all of them add up.

    Args:
        shape: of the array of means.

    Attributes:
        a, aa, ab: exact sums Σa, Σa², Σab.
        b, bb: int64 sums Σb, Σb².
        count: int64, G: clusters with b > 0.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.a, self.aa, self.ab = Exact(shape), Exact(shape), Exact(shape)
        self.b, self.bb, self.count = (np.zeros(shape, np.int64) for _ in range(3))

    def add(self, a: Floats, b: NDArray[np.integer[Any]]) -> None:
        """Add clusters: ``a[n]`` the sums of cluster n, ``b[n]`` its numbers of rows."""
        rows: Integers = np.asarray(b, np.int64)
        self.a.add(a)
        self.aa.add(a * a)
        self.ab.add(a * rows)
        self.b += rows.sum(0)
        self.bb += (rows * rows).sum(0)
        self.count += (rows > 0).sum(0)

    def merge(self, other: ClusterSums) -> None:
        """Add the sums of other clusters."""
        for mine, theirs in ((self.a, other.a), (self.aa, other.aa), (self.ab, other.ab)):
            mine.merge(theirs)
        self.b += other.b
        self.bb += other.bb
        self.count += other.count

    def mean(self) -> Floats:
        """p; NaN where there is no row."""
        return self.a.value() / np.where(self.b > 0, self.b, np.nan)

    def error(self) -> Floats:
        """√v, the standard error of p; NaN from fewer than two clusters."""
        p, count = self.mean(), self.count
        squares = self.aa.value() - 2 * p * self.ab.value() + p * p * self.bb
        many = np.where(count > 1, count, np.nan)
        scaled: Floats = np.sqrt(many / (many - 1) * np.maximum(squares, 0))
        return scaled / np.where(self.b > 0, self.b, np.nan)

    def half(self, level: float = LEVEL) -> Floats:
        """Half the width of each interval, t(G-1)·√v; NaN from fewer than two clusters."""
        used, where = np.unique(self.count, return_inverse=True)
        quantiles = [half_width(int(g) - 1, level) if g > 1 else np.nan for g in used]
        return np.array(quantiles)[where].reshape(self.count.shape) * self.error()
