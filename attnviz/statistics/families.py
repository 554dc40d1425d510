"""What is surely so when many questions are asked at once: Student's t and Holm's correction.

In 95 of 100 samples no sentence of a whole family is wrong where every p-value is corrected for all
of them (Holm 1979). Where all clusters say the same their spread is 0, and still they are few: of G
clusters with one and the same value, other clusters may differ. With q the share of clusters that
have this value, all G have it with probability q^G, so q is at least (α/2)^(1/G) with 1 - α/2
(Clopper & Pearson 1934), and what the rest can do is to lie at the ends of the scale.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from attnviz.statistics.distributions import student_above, student_within
from attnviz.statistics.exact import Floats

LEVEL = 0.95
POWER = 0.8416
"""Standard errors that 80 % of the estimates are not below their mean by (Student's t is not
meant: this is said to two digits)."""


def half_width(freedom: float, level: float = LEVEL) -> float:
    """The t with P(|T| <= t) = ``level``."""
    if not freedom >= 1 or not 0 < level < 1:
        raise ValueError(f"freedom {freedom} and level {level} have no quantile")
    return float(half_widths(freedom, level))


def half_widths(freedom: ArrayLike, level: float = LEVEL) -> Floats:
    """The same of an array; NaN where there is less than one degree of freedom."""
    return student_within(level, freedom)


def two_sided(apart: ArrayLike, error: ArrayLike, freedom: ArrayLike) -> Floats:
    """P-values of Student's t for means so far from the null value; NaN without freedom."""
    return np.minimum(2 * one_sided(np.abs(apart), error, freedom), 1)


def one_sided(apart: ArrayLike, error: ArrayLike, freedom: ArrayLike) -> Floats:
    """P-values of Student's t against "not above"; NaN without freedom."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.asarray(apart) / np.asarray(error)
    return student_above(t, freedom)


def holm(p: ArrayLike) -> Floats:
    """Holm's adjusted p-values of a family, in any shape; NaN is not of the family.

    Source:
        Holm 1979, A simple sequentially rejective multiple test procedure.
    """
    values = np.asarray(p, np.float64)
    corrected = np.full(values.shape, np.nan)
    there = ~np.isnan(values)
    some = values[there]
    order = np.argsort(some, kind="stable")
    steps = some[order] * np.arange(len(some), 0, -1)
    adjusted = np.empty_like(some)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1) if len(some) else steps
    corrected[there] = adjusted
    return corrected


def agreed_ends(
    value: float, clusters: int, least: float, most: float, level: float = LEVEL
) -> tuple[float, float]:
    """The interval of a mean that all clusters agree on."""
    share = ((1 - level) / 2) ** (1 / clusters)
    return share * value + (1 - share) * least, share * value + (1 - share) * most


def p_agreed(value: float, clusters: int, least: float) -> float:
    """How likely all clusters agree on a value above 0, if the mean is not above 0."""
    if value <= 0:
        return 1.0
    return float((-least / (value - least)) ** clusters)
