"""Student's t, for intervals from few texts.

SciPy has both functions, and takes longer to import than most commands take as a whole. A test
holds them together: P(T >= t) is within 2e-13 of SciPy's, of its own size, in every tail.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

_STEP = 1 / 16
_PLACES = np.exp(math.pi / 2 * np.sinh(np.arange(-4, 4 + _STEP, _STEP)))
_WEIGHTS = _STEP * math.pi / 2 * np.cosh(np.arange(-4, 4 + _STEP, _STEP)) * _PLACES
"""Nodes and weights of ∫ f(s) ds over s > 0, doubly exponential (Takahasi and Mori 1974)."""

_STIRLING = (39325 / 33554432, 869 / 4194304, -399 / 262144, -21 / 32768, 5 / 1024, 1 / 128, -1 / 8)
"""Γ(a + ½) / Γ(a) = √a (1 - 1/8a + 1/128a² + …), from the seventh power down to the first."""
_SHIFT = 16
"""From where on that series is exact to 1e-16; below, Γ(a + 1) = a Γ(a) leads there."""

_BLOCK = 4096
"""Numbers that are integrated at a time."""
_FAR, _NORMAL = 1e100, 1e15


def half_width(freedom: float, level: float = 0.95) -> float:
    """The t with P(|T| <= t) = ``level``.

    Args:
        freedom: degrees of freedom, at least 1; need not be a whole number.
        level: the probability inside, between 0 and 1.

    Raises:
        ValueError: there is no such quantile.
    """
    if not freedom >= 1 or not 0 < level < 1:
        raise ValueError(f"freedom {freedom} and level {level} have no quantile")
    return float(half_widths(freedom, level))


def half_widths(freedom: ArrayLike, level: float = 0.95) -> Floats:
    """The same of an array; NaN where there is less than one degree of freedom."""
    degrees = np.asarray(freedom, np.float64)
    distinct, places = np.unique(_known(degrees), return_inverse=True)
    logarithm = math.log((1 - level) / 2)
    t = np.full_like(distinct, math.sqrt(-2 * math.log(1 - level)))
    # log P falls ever faster with log t: Newton's steps come from one side, and miss nothing
    for _ in range(100):
        density, ratio = _tail(t, distinct)
        change = (density + np.log(ratio) - logarithm) * ratio / t
        t *= np.exp(change)
        if not (np.abs(change) > 1e-9).any():
            break
    return t[places].reshape(degrees.shape)


def p_above(t: ArrayLike, freedom: ArrayLike) -> Floats:
    """P(T >= t), element by element; NaN where there is less than one degree of freedom."""
    signed, degrees = np.broadcast_arrays(*(np.asarray(x, np.float64) for x in (t, freedom)))
    size = np.minimum(np.abs(signed), _FAR).reshape(-1)
    known = _known(degrees).reshape(-1)
    above = np.empty(signed.size)
    for start in range(0, signed.size, _BLOCK):
        part = slice(start, start + _BLOCK)
        density, ratio = _tail(size[part], known[part])
        above[part] = np.exp(density) * ratio
    above[np.isinf(signed).reshape(-1) & ~np.isnan(known)] = 0
    sides = above.reshape(signed.shape)
    return np.where(signed < 0, 1 - sides, sides)


def _known(freedom: Floats) -> Floats:
    """Degrees that there are; so many that T is normal stand for infinitely many."""
    return np.where(freedom >= 1, np.minimum(freedom, _NORMAL), np.nan)


def _tail(t: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Log of the density at t >= 0, and P(T >= t) divided by the density, [n] each.

    That ratio is ∫ (1 + s (2t + s) / (ν + t²))^(-(ν + 1)/2) ds over s > 0, of numbers between 0
    and 1: nothing cancels, however small the probability.
    """
    squares = freedom + np.square(t)
    power = -(freedom + 1) / 2
    scale = squares / ((freedom + 1) * np.hypot(t, 1))
    steps = scale[:, None] * _PLACES
    steps *= 2 * t[:, None] + steps
    steps /= squares[:, None]
    ratio = scale * (np.exp(power[:, None] * np.log1p(steps)) @ _WEIGHTS)
    density = _gamma_ratio(freedom / 2) / np.sqrt(freedom * math.pi)
    return np.log(density) + power * np.log1p(np.square(t) / freedom), ratio


def _gamma_ratio(a: Floats) -> Floats:
    """Γ(a + ½) / Γ(a)."""
    product, far = np.sqrt(a + _SHIFT), 1 / (a + _SHIFT)
    for step in range(_SHIFT):
        product *= (a + step) / (a + step + 0.5)
    series = np.zeros_like(a)
    for coefficient in _STIRLING:
        series = (series + coefficient) * far
    return product * (1 + series)
