"""What the typical text does: medians, trimmed means, and in how many texts a thing happens.

Effects on texts have tails so heavy that no interval of their mean holds: of the heads of demo-gpt2
on a treebank one sentence in a thousand makes half of the variance, and no sample without it can
know. The median of the texts' own means can be known from any population: the k-th smallest and the
k-th largest of n texts enclose it with 1 - 2 P(Bin(n, ½) < k) (Conover 1999, Practical
Nonparametric Statistics, section 3.2), and between two k the ends are interpolated (Hettmansperger
& Sheather 1986), though not across a gap of more than half of the width. With 0.05 / K for each of
K questions the intervals hold for all of them at once (Bonferroni); nothing is drawn at random, no
column touches another, and the order of texts and columns changes no bit. Below
:func:`texts_needed` texts there is no such interval.

What happens in fewer than half of the texts no median shows: :func:`shares` says in how many, and
in how large a share of all texts at least (Clopper & Pearson 1934). A trimmed mean
(:func:`trimmed_means`) has an interval of its own alone (Tukey & McLaughlin 1963).

Notation in shapes: n texts, K columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Floats, Integers
from attnviz.statistics.clusters import LEAST, LEVEL, POWER, half_widths
from attnviz.statistics.distributions import beta_quantile, binomial_below

TRIMMED = 0.1
"""The share of texts that is cut off at each end of a trimmed mean."""
ROUNDING = 64 * float(np.finfo(np.float32).eps)
"""A share of the numbers that float32 rounds: to tell a realistic error, take the root of the
number of roundings (Wilkinson's rule; Higham 2002, Accuracy and Stability of Numerical Algorithms,
section 2.8), here of some 4,000 terms, as many as the sums of a feed-forward part have."""


class Between(NamedTuple):
    """Estimates [...] and the ends of their intervals, NaN where there is none."""

    value: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, eq=False, slots=True)
class Medians:
    """Medians [K] and their intervals; NaN for what is not known."""

    center: Floats  # the middle text: half of the texts have less, half have more
    low: Floats  # of each one's own interval; ``high`` likewise
    high: Floats  # the other end
    joint_low: Floats  # of the intervals that hold together; ``joint_high`` likewise
    joint_high: Floats  # the other end
    # how far from 0 a median must be for its joint interval to leave out 0 in 80 % of such samples
    detectable: Floats

    @property
    def sure(self) -> NDArray[np.bool_]:
        """[K], whether the joint interval leaves out 0."""
        return (self.joint_low > 0) | (self.joint_high < 0)


def medians(
    values: Floats, *, rounding: Floats | float = 0.0, questions: int | None = None
) -> Medians:
    """Judge K medians as a family.

    ``values`` [n, K], each text's own value; NaN where it has none; ``rounding``: the size of a
    value that rounding alone makes, [K] or one for all: intervals are wider by as much on either
    side.
    """
    columns = np.sort(np.asarray(values, np.float64), 0)
    family = questions or columns.shape[1] or 1
    single = _enclosed(columns, 1 - LEVEL, rounding)
    joint = _enclosed(columns, (1 - LEVEL) / family, rounding)
    side = np.maximum(single.value - joint.low, joint.high - single.value)
    z = NormalDist().inv_cdf(1 - (1 - LEVEL) / family / 2)
    return Medians(*single, joint.low, joint.high, side * (1 + POWER / z))


def texts_needed(questions: int) -> int:
    """How many texts it takes to say anything of so many medians at once."""
    return math.ceil(1 + math.log2(max(questions, 1) / (1 - LEVEL)) - 1e-12)


def too_few(texts: int, questions: int, of: str, unit: str = "texts") -> str | None:
    """Why no joint interval is there, in a sentence; None where there is one."""
    enough = texts_needed(questions)
    if texts >= enough or texts < 2:
        return None
    return f"{texts} {unit} cannot say anything of {questions:,} {of} at once; {enough} can."


class Occurrences(NamedTuple):
    """In how many texts a value is as large as asked, [K] each, for either sign."""

    above: Integers  # texts with a value of that size or more; ``below`` with minus that or less
    below: Integers
    # the share of all texts in which it is so, at least, with the level for all columns and both
    # signs at once; ``least_below`` likewise
    least_above: Floats
    least_below: Floats


def shares(values: Floats, smallest: Floats | float, level: float = LEVEL) -> Occurrences:
    """Count the texts whose value is of a size of interest, above 0 and below.

    ``values`` [n, K]; NaN where a text has none; ``smallest``: [K], or one for all.
    """
    count, columns = (~np.isnan(values)).sum(0), max(values.shape[1], 1)
    above, below = (values >= smallest).sum(0), (values <= -smallest).sum(0)
    level_each = (1 - level) / (2 * columns)
    least = [
        np.where(hits > 0, beta_quantile(level_each, np.maximum(hits, 1), count - hits + 1), 0.0)
        if hits.any()
        else np.zeros(hits.shape)
        for hits in (above, below)
    ]
    return Occurrences(above, below, *least)


def share_between(hits: float, count: int) -> tuple[float, float, float]:
    """Return a share of independent cases and the ends of its interval (Clopper & Pearson 1934)."""
    from scipy.special import betaincinv

    outside, misses = (1 - LEVEL) / 2, count - hits
    low = float(betaincinv(hits, misses + 1, outside)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, misses, 1 - outside)) if misses > 0 else 1.0
    return hits / count, low, high


def trimmed_means(values: Floats) -> Between:
    """Trimmed means [K] with intervals of their own.

    ``values`` [n, K], each text's own mean.
    """
    count = len(values)
    trim = int(TRIMMED * count + 1e-9)
    ordered = np.sort(values, 0)
    middle = ordered[trim : count - trim]
    center = middle.mean(0)
    winsorized = np.clip(ordered, middle[:1].min(0), middle[-1:].max(0)) if count else ordered
    spread = winsorized.std(0, ddof=1) if count > 1 else np.full(center.shape, np.nan)
    error = spread / ((1 - 2 * trim / max(count, 1)) * math.sqrt(max(count, 1)))
    rounding = ROUNDING * np.sqrt((values * values).sum(0)) / max(count, 1) / (1 - 2 * TRIMMED)
    error = np.where((count >= LEAST) & (error > rounding), error, np.nan)
    half = half_widths(count - 2 * trim - 1) * error
    return Between(center, center - half, center + half)


def per_text(a: Floats, b: NDArray[np.integer[Any]]) -> Floats:
    """[texts, ...], the mean of every text over its own rows; NaN without a row."""
    rows = np.asarray(b)
    rows = rows.reshape(rows.shape + (1,) * (np.ndim(a) - rows.ndim))
    return np.asarray(a) / np.where(rows > 0, rows, np.nan)


def largest_share(a: Floats) -> Floats:
    """Return the share of every sum that its largest text makes; above 1 where others take away."""
    total = np.abs(a.sum(0))
    return np.abs(a).max(0, initial=0) / np.where(total > 0, total, np.nan)


def most_moved(
    center: Callable[[Sequence[int]], Floats], count: int
) -> tuple[list[int], list[float]]:
    """Find of every estimate the text without which it is farthest from what it is (Tukey 1958).

    ``center``: the estimates [K] of some texts, by their places.
    """
    full = center(range(count))
    left_out = np.stack(
        [center([n for n in range(count) if n != omitted]) for omitted in range(count)]
    )
    places = np.abs(np.nan_to_num(left_out - full)).argmax(0)
    return places.tolist(), np.take_along_axis(left_out, places[None], 0)[0].tolist()


def spearman(a: Floats, b: Floats) -> float | None:
    """Spearman's rank correlation, ties sharing their mean rank; None where it is not defined.

    ``a`` [n]; ``b`` [n], of the same things.
    """
    if len(a) < 3:
        return None
    x, y = ranks(a), ranks(b)
    x, y = x - x.mean(), y - y.mean()
    size = float(np.sqrt((x * x).sum() * (y * y).sum()))
    return float((x * y).sum()) / size if size > 0 else None


def ranks(values: Floats) -> Floats:
    """Ranks from 1, equal values at the mean of theirs."""
    _, indices, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum()
    return (last - (counts - 1) / 2)[indices]


def _enclosed(columns: Floats, outside: float, rounding: Floats | float) -> Between:
    """Enclose the medians of sorted columns [n, K], NaN last, with 1 - ``outside`` each."""
    counts = (~np.isnan(columns)).sum(0)
    bounds = np.full((3, columns.shape[1]), np.nan)
    for count in np.unique(counts[counts > 0]).tolist():
        chosen = counts == count
        ordered = columns[:count, chosen]
        bounds[0, chosen] = np.median(ordered, 0)
        rank, step = _rank(count, outside)
        if not rank:
            continue
        low, high = ordered[rank - 1], ordered[count - rank]
        inner_low, inner_high = (ordered[rank], ordered[count - 1 - rank]) if step else (low, high)
        half = (high - low) / 2
        bounds[1, chosen] = np.where(inner_low - low <= half, low + step * (inner_low - low), low)
        bounds[2, chosen] = np.where(
            high - inner_high <= half, high - step * (high - inner_high), high
        )
    return Between(bounds[0], bounds[1] - rounding, bounds[2] + rounding)


@lru_cache(maxsize=1 << 10)
def _rank(count: int, outside: float) -> tuple[int, float]:
    """Which order statistic ends an interval, from 1 (0: none does), and how far inside of it."""
    missed = 2 * binomial_below(np.arange(count // 2 + 1), count)  # with the k + 1st at either end
    rank = int((missed <= outside * (1 + 1e-12)).sum())
    if not rank or 2 * rank >= count:
        return rank, 0.0
    miss, beyond = float(missed[rank - 1]), float(missed[rank])
    part = max(outside - miss, 0.0) / (beyond - miss)
    return rank, (count - rank) * part / (rank + (count - 2 * rank) * part)
