"""The difference of two means over the same texts, and how sure it is.

Both are ratios Σa / Σb over the rows of texts (see :mod:`attnviz.statistics.clusters`). Their
difference has, by the linearization that such ratios have (Cochran 1977, Sampling Techniques,
chapter 6), the variance G/(G-1) · Σ u² with u_g = (a'_g - p' b'_g) / Σb' - (a_g - p b_g) / Σb: what
both runs share in a text cancels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnviz.statistics.clusters import LEAST, LEVEL
from attnviz.statistics.student import half_width

_SAME = 1e-6


def difference(
    before: Sequence[tuple[float, int]], after: Sequence[tuple[float, int]], questions: int = 1
) -> tuple[float, float | None, float | None]:
    """The change of a mean and its interval over texts.

    Args:
        before: of every text the sum over its rows, and how many; some row must count.
        after: the same texts in the other run.
        questions: changes whose intervals hold together with 95 % (Bonferroni).

    Returns:
        The change; the ends of its interval, None from fewer than :data:`LEAST` texts, or where
        they all changed alike.
    """
    change, influence = 0.0, np.zeros(len(before))
    for sign, run in ((-1, before), (1, after)):
        a, b = np.array(run, np.float64).T
        mean = a.sum() / b.sum()
        change += sign * mean
        influence += sign * (a - mean * b) / b.sum()
    counted = int(sum(one[1] > 0 or two[1] > 0 for one, two in zip(before, after, strict=True)))
    error = float(np.sqrt(np.square(influence).sum() * counted / max(counted - 1, 1)))
    if counted < LEAST or error <= _SAME * abs(change):
        return float(change), None, None
    half = half_width(counted - 1, 1 - (1 - LEVEL) / questions) * error
    return float(change), float(change) - half, float(change) + half
