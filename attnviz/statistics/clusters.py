"""A mean over the rows of many texts, and how sure it is.

Rows of one text are not independent, texts are. With a_g the sum of a score over the rows of text g
and b_g their number, the mean is the ratio p = Σa / Σb, and over the G texts with b > 0

    v = G/(G-1) · (Σa² - 2pΣab + p²Σb²) / (Σb)²

is the variance of a ratio estimate from clusters (Cochran 1977, Sampling Techniques, chapter 6);
the interval is p ± t(G-1)·√v. Below :data:`FEW` texts it covers too little, and from fewer than
:data:`LEAST`, or where no text differs from another, there is none: such spread says nothing.

Identical texts say the same thing once. Where the n texts have n_d copies of each distinct one,
they count as n²/Σn_d² texts, and the variance grows by the same factor.

What is surely so when many questions are asked at once: Student's t and Holm's correction.

In 95 of 100 samples no sentence of a whole family is wrong where every p-value is corrected for all
of them (Holm 1979). Where all clusters say the same their spread is 0, and still they are few: of G
clusters with one and the same value, other clusters may differ. With q the share of clusters that
have this value, all G have it with probability q^G, so q is at least (α/2)^(1/G) with 1 - α/2
(Clopper & Pearson 1934), and what the rest can do is to lie at the ends of the scale.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnviz.core.arrays import Floats, Integers
from attnviz.statistics.distributions import student_above, student_within
from attnviz.statistics.histogram import Exact

LEVEL = 0.95
POWER = 0.8416
"""Standard errors that 80 % of the estimates are not below their mean by (Student's t is not
meant: this is said to two digits)."""


def half_width(freedom: float, level: float = LEVEL) -> float:
    """Return the t with P(|T| <= t) = ``level``."""
    if not freedom >= 1 or not 0 < level < 1:
        raise ValueError(f"freedom {freedom} and level {level} have no quantile")
    return float(half_widths(freedom, level))


def half_widths(freedom: ArrayLike, level: float = LEVEL) -> Floats:
    """Return the same of an array; NaN where there is less than one degree of freedom."""
    return student_within(level, freedom)


def two_sided(offset: ArrayLike, error: ArrayLike, freedom: ArrayLike) -> Floats:
    """P-values of Student's t for means so far from the null value; NaN without freedom."""
    return np.minimum(2 * one_sided(np.abs(offset), error, freedom), 1)


def one_sided(offset: ArrayLike, error: ArrayLike, freedom: ArrayLike) -> Floats:
    """P-values of Student's t against "not above"; NaN without freedom."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.asarray(offset) / np.asarray(error)
    return student_above(t, freedom)


def holm(p: ArrayLike) -> Floats:
    """Holm's adjusted p-values of a family, in any shape; NaN is not of the family.

    Source:
        Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    values = np.asarray(p, np.float64)
    corrected = np.full(values.shape, np.nan)
    valid = ~np.isnan(values)
    family = values[valid]
    order = np.argsort(family, kind="stable")
    steps = family[order] * np.arange(len(family), 0, -1)
    adjusted = np.empty_like(family)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1) if len(family) else steps
    corrected[valid] = adjusted
    return corrected


def agreed_ends(value: float, clusters: int, bottom: float, top: float) -> tuple[float, float]:
    """Return the interval of a mean that all clusters agree on."""
    share = ((1 - LEVEL) / 2) ** (1 / clusters)
    return share * value + (1 - share) * bottom, share * value + (1 - share) * top


def p_agreed(value: float, clusters: int, least: float) -> float:
    """How likely all clusters agree on a value above 0, if the mean is not above 0."""
    if value <= 0:
        return 1.0
    return float((-least / (value - least)) ** clusters)


LEAST = 5
"""From fewer texts there is no interval."""

FEW = 50
"""Below so many texts an interval covers less than it says."""

_LARGEST = 2.0**62  # exact sums stay below this

_SAME = 1e-6  # standard errors below this share of the mean are rounding: the texts do not differ


def standard_error(squares: Floats, count: Any, total: Any, copies: float = 1.0) -> Floats:
    """√v of ratios Σa / Σb, by Σ(a - p b)², the number of clusters and Σb."""
    with np.errstate(divide="ignore", invalid="ignore"):
        scaled: Floats = np.sqrt(copies * count / (count - 1) * np.maximum(squares, 0))
        return scaled / total


class ClusterSums:
    """Five sums and a count for each of many means; all of them add up.

    Attributes:
        a, aa, ab: exact sums Σa, Σa², Σab.
        b, bb: int64 sums Σb, Σb².
        count: int64, G: clusters with b > 0.
    """

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.a, self.aa, self.ab = Exact(shape), Exact(shape), Exact(shape)
        self.b, self.bb, self.count = (np.zeros(shape, np.int64) for _ in range(3))

    @classmethod
    def of(cls, a: Floats, b: NDArray[np.integer[Any]]) -> ClusterSums:
        """Give the sums of all clusters ``a[n]``, ``b[n]``; ``b`` may lack axes that ``a`` has."""
        sums = cls(np.shape(a)[1:])
        rows = np.asarray(b)
        aligned = rows.reshape(rows.shape + (1,) * (np.ndim(a) - rows.ndim))
        sums.add(a, np.broadcast_to(aligned, np.shape(a)))
        return sums

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

    def error(self, copies: float = 1.0) -> Floats:
        """√v, the standard error of p; NaN from fewer than two clusters."""
        p, count = self.mean(), np.where(self.count > 1, self.count, np.nan)
        squares = self.aa.value() - 2 * p * self.ab.value() + p * p * self.bb
        return standard_error(squares, count, np.where(self.b > 0, self.b, np.nan), copies)

    def known(self, copies: float = 1.0) -> NDArray[np.bool_]:
        """Where there can be an interval: from :data:`LEAST` clusters that are not all alike."""
        error = np.nan_to_num(self.error())
        differ = error > _SAME * np.abs(np.nan_to_num(self.mean()))
        return (self.count / copies >= LEAST) & differ

    def freedom(self, copies: float = 1.0) -> Floats:
        """Degrees of freedom of the errors, NaN where :meth:`known` says no."""
        return np.where(self.known(copies), self.count / copies - 1, np.nan)

    def half(self, copies: float = 1.0) -> Floats:
        """Half the width of each interval, t(G-1)·√v; NaN where there is none."""
        return half_widths(self.freedom(copies)) * self.error(copies)


def summable(a: Floats, b: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Where the sums of clusters can be added exactly, [...]: numbers, and not too large."""
    with np.errstate(over="ignore", invalid="ignore"):
        largest = np.maximum((a * a).sum(-1), (np.abs(a) * np.maximum(b, 1)).sum(-1))
    return largest < _LARGEST


def few_groups(groups: float, unit: str = "texts") -> str | None:
    """Why there is no interval, in a sentence; None where there are groups enough."""
    if groups >= LEAST:
        return None
    have = f"{unit.removesuffix('s')} is" if groups == 1 else f"{unit} are"
    return (
        f"No intervals: {groups:.3g} independent {have} too few to tell how much {unit} "
        f"differ, {LEAST} are needed."
    )


def merge_copies(names: Sequence[Hashable], *values: NDArray[Any]) -> list[NDArray[Any]]:
    """Add up what texts with the same name have, in the order of their first ones.

    ``names`` [n], what tells texts apart: their words, or the groups that they belong to.
    """
    places: dict[Hashable, int] = {}
    indices = np.array([places.setdefault(name, len(places)) for name in names], np.int64)
    merged = []
    for value in map(np.asarray, values):
        sums = np.zeros((len(places), *value.shape[1:]), value.dtype)
        np.add.at(sums, indices, value)
        merged.append(sums)
    return merged


def factor(counts: Sequence[int] | NDArray[np.integer[Any]]) -> float:
    """By what copies make texts fewer, and variances larger: Σn² / Σn over the distinct texts.

    It is exact where how often a text is there says nothing about what it says, and the only thing
    that adds up for texts whose sums were not kept.
    """
    copies = np.asarray(counts, np.float64)
    return float((copies * copies).sum() / copies.sum()) if len(copies) else 1.0
