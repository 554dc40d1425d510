"""A number of every text at every step: its curve, and what it is where texts are drawn anew."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.features.film import changes
from attnviz.features.film.changes import Floats
from attnviz.features.film.result import Shift, StepCurve
from attnviz.statistics.clusters import ClusterSums, summable

_DIGITS = 4


@dataclass(frozen=True, eq=False, slots=True)
class StepTrack:
    """A number of every text at every step: its curve, its draws [R, S], and if it is known [S]."""

    curve: StepCurve | None
    draws: Floats
    texts: int
    known: NDArray[np.bool_]

    @classmethod
    def of(cls, a: Floats, b: NDArray[Any], weights: Floats, seed: Sequence[int]) -> StepTrack:
        """Of sums [S, G] over rows [S, G]; a step whose sums are no numbers has no rows.

        ``seed`` is of what checkpoints do.
        """
        known = summable(a, b)
        a, b = np.where(known[:, None], a, 0.0), np.where(known[:, None], b, 0)
        texts = int((b.max(0) > 0).sum())
        if not texts:
            return cls(None, np.zeros((len(weights), len(a))), 0, known)
        sums = ClusterSums.of(a.T[:, :, None], b.T[:, :, None])
        curve = StepCurve(all_rounded(sums.mean()[:, 0]), all_rounded(sums.half()[:, 0]))
        draws = changes.drawn(a, b, weights)
        return cls(curve, changes.jittered(draws, sums.mean()[:, 0], seed), texts, known)

    def shift(self, start: int, end: int) -> Shift | None:
        """What it did between two steps."""
        if self.curve is None:
            return None
        values = self.curve.mean
        before, after, first, last = values[start], values[end], values[0], values[-1]
        if before is None or after is None or first is None or last is None:
            return None
        low, high = changes.shifted(self.draws, start, end, self.texts)
        whole = last - first
        ends = changes.shifted(self.draws, 0, len(values) - 1, self.texts)
        share = (after - before) / whole if _apart(*ends) and _apart(low, high) else None
        return Shift(
            before, after, rounded(low), rounded(high), None if share is None else rounded(share)
        )


def _apart(low: float | None, high: float | None) -> bool:
    """Whether an interval leaves out 0."""
    return low is not None and high is not None and (low > 0 or high < 0)


def all_rounded(values: Floats) -> tuple[float | None, ...]:
    """Numbers to the digits that a film keeps; None for those that are not known."""
    return tuple(rounded(float(number)) for number in values)


def rounded(value: float | None) -> float | None:
    """To the digits that a film keeps; None for what is not known."""
    if value is None or not math.isfinite(value):
        return None
    return round(value, _DIGITS) + 0.0


def shortened(value: float) -> float:
    """A number that is known, to the digits that a film keeps."""
    return round(float(value), _DIGITS) + 0.0
