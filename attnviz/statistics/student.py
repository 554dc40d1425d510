"""Student's t, for intervals from few texts."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

_FEW = 1000
"""Up to so many degrees of freedom the distribution is summed up exactly."""


@lru_cache(maxsize=4096)
def half_width(freedom: int, level: float = 0.95) -> float:
    """The t with P(|T| <= t) = ``level``.

    Abramowitz & Stegun 1964: 26.7.3 and 26.7.4, inverted, up to 1000 degrees of freedom; beyond
    that the expansion 26.7.5, there exact to nine digits.

    Args:
        freedom: degrees of freedom, at least 1.
        level: the probability inside, between 0 and 1.
    """
    if freedom < 1 or not 0 < level < 1:
        raise ValueError(f"freedom {freedom} and level {level} have no quantile")
    if freedom > _FEW:
        return _expanded(freedom, level)
    low, high = 0.0, math.pi / 2  # of the angle whose tangent is t / √freedom
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _inside(middle, freedom) < level else (low, middle)
    return math.tan((low + high) / 2) * math.sqrt(freedom)


def _inside(angle: float, freedom: int) -> float:
    """P(|T| <= √freedom · tan angle)."""
    odd, cosine = freedom % 2, math.cos(angle)
    total, term = 0.0, cosine if odd else 1.0
    for k in range(1 + odd, freedom, 2):
        total += term
        term *= cosine * cosine * k / (k + 1)
    found = total * math.sin(angle)
    return (angle + found) * 2 / math.pi if odd else found


def _expanded(freedom: int, level: float) -> float:
    z = NormalDist().inv_cdf((1 + level) / 2)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
