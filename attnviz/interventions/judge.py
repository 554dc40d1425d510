"""How sure effects are: one family of intervals for all interventions of a result.

Of every effect the typical text, with an interval of its own and one that holds together with all
others (:mod:`attnviz.statistics.order`), and the ratio of sums over all texts, with an interval of
its own (:mod:`attnviz.statistics.ratios`). What one text's change is a share of, its rows or what
there is to change, is what it is divided by.

Notation in shapes: n texts, K effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Floats
from attnviz.statistics.clusters import merge_copies
from attnviz.statistics.histogram import none_if_nan
from attnviz.statistics.order import ROUNDING, Medians, medians, shares
from attnviz.statistics.ratios import Ratios, ratios

SMALLEST = 0.01
"""The smallest effect of interest where none is asked for, as a share of what may change."""


@dataclass(frozen=True, slots=True)
class Often:
    """In how many texts a change is as large as the smallest effect of interest, in one direction.

    Attributes:
        texts: how many; copies and texts of one group count once.
        least: the share of all texts in which it is, at least: 95 % sure for all effects of the
            result and both directions at once.
    """

    texts: int
    least: float


@dataclass(frozen=True, slots=True)
class Estimated:
    """One effect; a figure that is not known is None."""

    value: float  # in the typical text, the median over texts
    low: float | None  # of its own 95 % interval; ``high`` the other end
    high: float | None
    # of the interval that holds together with all others; ``joint_high`` likewise
    joint_low: float | None
    joint_high: float | None
    # Σ changes / Σ of what they are shares of; ``mean_low`` and ``mean_high`` of its own interval
    mean: float | None
    mean_low: float | None
    mean_high: float | None
    detectable: float | None  # what would have been told from 0 in 80 % of such samples

    @property
    def sure(self) -> bool | None:
        """Whether it differs from 0, judged with all others; None where nothing can be said."""
        if self.joint_low is None or self.joint_high is None:
            return None
        return self.joint_low > 0 or self.joint_high < 0


@dataclass(frozen=True, eq=False, slots=True)
class Family:
    """K effects that are judged together."""

    values: Floats  # [distinct texts, K], each text's own; NaN where it has none
    sums: Floats  # [distinct texts, K], before they are divided
    typical: Medians  # medians of ``values``
    pooled: Ratios  # ratios of sums

    def __getitem__(self, number: int) -> Estimated:
        """One effect."""
        typical, pooled = self.typical, self.pooled
        value, *ends = (
            float(numbers[number])
            for numbers in (
                typical.center, typical.low, typical.high, typical.joint_low, typical.joint_high,
                pooled.value, pooled.low, pooled.high, typical.detectable,
            )
        )  # fmt: skip
        return Estimated(value, *map(none_if_nan, ends))

    def often(self, smallest: Floats | float) -> list[tuple[Often, Often] | None]:
        """In how many texts each effect is as large as asked, [K] or one for all: up, and down.

        None where nothing is asked for: a size of 0.
        """
        size = np.broadcast_to(smallest, self.values.shape[1:])
        counts = shares(self.values, size)
        return [
            (Often(int(counts.above[n]), float(counts.least_above[n])),
             Often(int(counts.below[n]), float(counts.least_below[n]))) if size[n] > 0 else None
            for n in range(len(size))
        ]  # fmt: skip


def judge(
    changes: Floats,
    over: NDArray[Any],
    names: Sequence[str],
    *,
    rounding: Floats | float = 0.0,
    size: Floats | None = None,
    pooled_rounding: float = 0.0,
) -> Family:
    """Judge K effects as a family.

    ``changes`` [n, K], sums over a text; ``over`` [n] or [n, K], what they are divided by, 0 where
    a text has no such effect; ``names`` [n], what texts belong to; ``rounding``: the size of a
    text's own value that rounding alone makes, [K] or one for all; ``size`` and
    ``pooled_rounding``, the same of sums, see :func:`~attnviz.statistics.ratios.ratios`.
    """
    pooled = ratios(changes, over, names, size=size, rounding=pooled_rounding, joint=False)
    sums, totals = merge_copies(names, changes, over)
    if totals.ndim == 1:
        totals = totals[:, None]
    least = ROUNDING * np.abs(totals).max(0, initial=0) if totals.dtype.kind == "f" else 0
    values = sums / np.where(np.abs(totals) > least, totals, np.nan)
    return Family(values, sums, medians(values, rounding=rounding), pooled)
