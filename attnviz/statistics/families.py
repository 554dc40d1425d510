"""What is significant when many questions are asked at once: heads, relations, scores.

:func:`judge` takes the sums of every text and says of each mean whether it differs from a null
value, so that in 95 of 100 samples no sentence of the whole family is wrong. Two methods:

- ``max-t``: the bootstrap-t over texts of :mod:`attnviz.statistics.simultaneous`, which knows that
  heads share their texts. For tests as for intervals; needs 20 texts.
- ``holm``: Student's t for each and Holm's step-down correction (Holm 1979), for any number of
  texts. It errs where a few texts make most of a mean; :mod:`attnviz.statistics.coverage` has how
  often.

A distance (a divergence, a change of states) is never below 0, so its mean differs from 0 for a
random head too: give the difference to a null distance on the same texts, such as that of one
resampling against another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from attnviz.statistics.clusters import LEVEL, ClusterSums
from attnviz.statistics.copies import together
from attnviz.statistics.exact import Floats, Integers
from attnviz.statistics.robust import largest_share
from attnviz.statistics.simultaneous import REPLICATES, Bootstrap
from attnviz.statistics.student import half_widths, p_above

POWER = 0.8416
"""Standard errors that 80 % of the estimates are not below their mean by (Student's t is not
meant: this is said to two digits)."""

Bools = NDArray[np.bool_]
Method = Literal["max-t", "holm"]


@dataclass(frozen=True, eq=False, slots=True)
class Family:
    """What is significant of K means, shaped [K] or as their sums were.

    Attributes:
        mean: the means; NaN without a row.
        error: their standard errors.
        low, high: ends of each one's own interval; NaN where there is none.
        joint_low, joint_high: ends of the intervals that hold for all at once.
        adjusted: p-values for the whole family, two-sided; NaN where nothing can be said.
        significant: whether a mean differs from the null value, in the family.
        relevant: whether it also differs by the smallest effect of interest.
        largest: the share of each sum that its largest text makes.
        detectable: how far from the null value a mean must be to stand in 80 % of such samples:
            so many standard errors as the joint interval has on a side, and 0.84.
        groups: of texts that were counted; identical ones are one.
        method: how it was judged.
    """

    mean: Floats
    error: Floats
    low: Floats
    high: Floats
    joint_low: Floats
    joint_high: Floats
    adjusted: Floats
    significant: Bools
    relevant: Bools
    largest: Floats
    detectable: Floats
    groups: int
    method: Method


def judge(
    a: Floats,
    b: NDArray[np.integer[Any]],
    names: Sequence[str],
    *,
    null: float = 0.0,
    smallest: float = 0.0,
    level: float = LEVEL,
    method: Method = "max-t",
    seed: int = 0,
    replicates: int = REPLICATES,
    rounding: float = 0.0,
) -> Family:
    """Judge means as a family.

    Args:
        a: [texts, ...], the sum of every text for each mean.
        b: [texts] or [texts, ...], numbers of rows.
        names: of the texts, or of the groups that they belong to: equal ones are one group.
        null: the value to differ from.
        smallest: the smallest effect of interest, in the unit of the means.
        level: of the intervals, and one less the chance that any sentence is wrong.
        method: see the module.
        seed: of the bootstrap.
        replicates: of the bootstrap.
        rounding: the error that the rounding of what ``a`` are differences of makes in a mean.
    """
    sums, rows = together(names, a, np.broadcast_to(_wide(b, np.ndim(a)), np.shape(a)))
    unit = _unit(sums)
    clusters = ClusterSums.of(sums / unit, rows)
    mean, error = clusters.mean() * unit, clusters.error() * unit
    freedom = np.where(error > rounding, clusters.freedom(), np.nan)
    if method == "max-t":
        bootstrap = Bootstrap(np.shape(a)[1:], seed, replicates, rounding / unit)
        bootstrap.add(list(dict.fromkeys(names)), sums / unit, rows)
        width = bootstrap.widths(clusters, level)
        adjusted = _max_t(bootstrap, clusters, null / unit, level)
    else:
        questions = max(int((~np.isnan(freedom)).sum()), 1)
        width = half_widths(freedom, 1 - (1 - level) / questions)
        adjusted = holm(two_sided(mean - null, error, freedom))
    half, joint = half_widths(freedom, level) * error, width * error
    significant = np.nan_to_num(adjusted, nan=1.0) <= 1 - level
    return Family(
        mean,
        error,
        mean - half,
        mean + half,
        mean - joint,
        mean + joint,
        adjusted,
        significant,
        significant & (np.abs(np.nan_to_num(mean) - null) >= smallest),
        largest_share(sums),
        joint + POWER * error,
        len(sums),
        method,
    )


def two_sided(apart: ArrayLike, error: ArrayLike, freedom: ArrayLike) -> Floats:
    """P-values of Student's t for means so far from the null value; NaN without freedom."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.abs(np.asarray(apart)) / np.asarray(error)
    p: Floats = np.minimum(2 * p_above(t, freedom), 1)
    return p


def one_sided(apart: ArrayLike, error: ArrayLike, freedom: ArrayLike) -> Floats:
    """P-values of Student's t against "not above"; NaN without freedom."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.asarray(apart) / np.asarray(error)
    p: Floats = np.asarray(p_above(t, freedom), np.float64)
    return p


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


def _unit(sums: Floats) -> Floats:
    """The power of two in which the largest sum of each mean is from 512 to 1024.

    Sums of squares are kept to a number of binary places, which small ones would not have.
    """
    unit: Floats = np.exp2(np.frexp(np.abs(sums).max(0, initial=0))[1] - 10.0)
    return unit


def _max_t(bootstrap: Bootstrap, clusters: ClusterSums, null: Floats, level: float) -> Floats:
    """Adjusted p-values from the largest deviation of every draw, family by family."""
    adjusted = np.full(clusters.count.shape, np.nan)
    families = [part for part in bootstrap.families(clusters) if part.any()]
    for family in families:
        most, part = bootstrap.largest(clusters, family, 1 - (1 - level) / len(families))
        most = np.sort(most)
        t = np.abs(clusters.mean()[part] - null[part]) / clusters.error()[part]
        beyond = len(most) - np.searchsorted(most, t, side="left")
        p = (1 + beyond) / (1 + len(most))
        adjusted[part] = np.minimum(p * len(families), 1)
    return adjusted


def _wide(b: NDArray[Any], axes: int) -> NDArray[Any]:
    """With as many axes as the sums have."""
    rows: Integers = np.asarray(b)
    return rows.reshape(rows.shape + (1,) * (axes - rows.ndim))
