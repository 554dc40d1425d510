"""Student's t, the beta, the fair binomial and the gamma distribution, to thirteen digits.

Nearly every command needs one, and none has to wait for SciPy, or to go without.

Of odds w = x / (1 - x), the beta distribution has below x

    x^a (1 - x)^b / B(a, b) ∫ exp(-a s - (a + b) log(1 + x (exp(-s) - 1))) ds,  s > 0,

and the gamma distribution above x

    x^a exp(-x) / Γ(a) ∫ exp(a s - x (exp(s) - 1)) ds,  s > 0.

On the side of its mean where the probability is, an integrand is log-concave and falls from 1, so
that a doubly exponential rule (Takahasi & Mori 1974) has all digits, and nothing cancels, however
small the tail; the other side is 1 minus that. What stands in front is Stirling's formula, with
what it leaves out, and the distance from the mean (Loader 2000, Fast and accurate computation of
binomial probabilities).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike

from attnviz.core.arrays import Floats

_PLACES = np.arange(-3.6, 3.9, 1 / 16)
_NODES = np.exp(_PLACES - np.exp(-_PLACES))
_WEIGHTS = _NODES * (1 + np.exp(-_PLACES)) / 16
"""Of the rule, for an integrand that falls within some units."""
_BLOCK = 4096
"""Numbers that are integrated at a time."""
_SHIFT, _STIRLING = 10, (-691 / 360360, 1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12)
"""From the eleventh power of 1/z down to the first; below the shift, Γ(z + 1) = z Γ(z) helps."""
_FAR, _NORMAL = 1e140, 1e15
"""The largest t, and degrees of freedom that stand for infinitely many."""


def student_above(t: ArrayLike, freedom: ArrayLike) -> Floats:
    """P(T >= t), element by element; NaN where there is less than one degree of freedom."""
    signed, degrees = np.asarray(t, np.float64), _known(freedom)
    square = np.square(np.clip(np.abs(signed), 1 / _FAR, _FAR))
    half = beta_below(degrees / square, degrees / 2, 0.5) / 2
    half = np.where(np.isinf(signed) & ~np.isnan(degrees), 0.0, half)
    return np.where(signed < 0, 1 - half, half)


def student_within(level: float, freedom: ArrayLike) -> Floats:
    """Find t with P(|T| <= t) = ``level``; NaN where there is less than one degree of freedom."""
    degrees = _known(freedom)
    if not degrees.ndim:
        single = float(degrees)
        return np.asarray(single if math.isnan(single) else _one_within(level, single))
    distinct, places = np.unique(degrees, return_inverse=True)
    return _within(level, distinct)[places].reshape(degrees.shape)


def _within(level: float, freedom: Floats) -> Floats:
    t: Floats = np.sqrt(freedom / _beta_odds(1 - level, freedom / 2, np.full_like(freedom, 0.5)))
    return t


@lru_cache(maxsize=1 << 10)
def _one_within(level: float, freedom: float) -> float:
    """Return the same of one; figures of the same texts ask again and again."""
    return float(_within(level, np.array([freedom]))[0])


def beta_below(odds: ArrayLike, a: ArrayLike, b: ArrayLike) -> Floats:
    """P(X <= x) of Beta(a, b) at odds x / (1 - x)."""
    return _in_blocks(lambda odds, a, b: _beta(odds, a, b, _beyond(a, b))[0], odds, a, b)


def beta_quantile(level: float, a: ArrayLike, b: ArrayLike) -> Floats:
    """Return the x with P(X <= x) = ``level`` of Beta(a, b)."""
    odds = _in_blocks(lambda *shapes: _beta_odds(level, *shapes), a, b)
    return odds / (1 + odds)


def binomial_below(count: ArrayLike, of: ArrayLike) -> Floats:
    """P(X <= ``count``) where each ``of`` so many is counted with ½; ``count`` below ``of``."""
    return beta_below(1.0, np.subtract(of, count), np.add(count, 1))


def gamma_above(x: ArrayLike, shape: ArrayLike) -> Floats:
    """P(X >= x) of a gamma distribution of scale 1, for x of 0 or more."""
    return _in_blocks(_gamma, x, shape)


def _known(freedom: ArrayLike) -> Floats:
    degrees = np.asarray(freedom, np.float64)
    return np.where(degrees >= 1, np.minimum(degrees, _NORMAL), np.nan)


def _beta(odds: Floats, a: Floats, b: Floats, beyond: Floats) -> tuple[Floats, Floats, Floats]:
    """P(X <= x), its logarithm, and its ratio to its slope over log odds, [n] each."""
    above = odds * b > a  # beyond the mean: the other side
    a, b, odds = np.where(above, b, a), np.where(above, a, b), np.where(above, 1 / odds, odds)
    x, y, total = odds / (1 + odds), 1 / (1 + odds), a + b
    distance = a * y - b * x
    front = (
        np.log(a * b / total / math.tau) / 2
        - a * np.log1p(distance / (total * x))
        - b * np.log1p(-distance / (total * y))
        + beyond
    )
    scale = 1 / np.hypot(distance, np.sqrt(total * x * y))
    small = x < y  # the form in which nothing cancels
    argument, lead, way = np.where(small, x, y), np.where(small, -a, b), np.where(small, -1.0, 1.0)
    steps = scale[:, None] * _NODES
    powers = total[:, None] * np.log1p(argument[:, None] * np.expm1(way[:, None] * steps))
    ratio = scale * (np.exp(lead[:, None] * steps - powers) @ _WEIGHTS)
    tail = np.exp(front) * ratio
    below = np.where(above, 1 - tail, tail)
    logarithm = np.where(above, np.log1p(-tail), front + np.log(ratio))
    return below, logarithm, np.where(above, below / np.exp(front), ratio)


def _beta_odds(level: float, a: Floats, b: Floats) -> Floats:
    """Return the odds [n] below which Beta(a, b) has ``level``.

    Log P is concave in log odds: from the left Newton's steps never go too far.
    """
    odds, beyond = a / b, _beyond(a, b)
    for _ in range(200):
        with np.errstate(all="ignore"):
            _, logarithm, ratio = _beta(odds, a, b, beyond)
            step = (math.log(level) - logarithm) * ratio
            odds = odds * np.exp(step)
        if not (np.abs(step) > 1e-9).any():
            break
    return odds


def _gamma(x: Floats, a: Floats) -> Floats:
    above = x > a
    distance = x - a
    logarithm = np.where(np.abs(distance) < a / 2, np.log1p(distance / a), np.log(x / a))
    front = np.log(a / math.tau) / 2 - distance + a * logarithm - _beyond_stirling(a)
    scale = 1 / np.hypot(distance, np.sqrt(x))
    steps = scale[:, None] * _NODES * np.where(above, 1.0, -1.0)[:, None]
    inside = np.exp(a[:, None] * steps - x[:, None] * np.expm1(steps))
    tail = np.where(x > 0, np.exp(front) * scale * (inside @ _WEIGHTS), 0.0)
    return np.where(above, tail, 1 - tail)


def _beyond(a: Floats, b: Floats) -> Floats:
    """Return what Stirling's formula leaves out of -log B(a, b), [n]."""
    return _beyond_stirling(a + b) - _beyond_stirling(a) - _beyond_stirling(b)


def _beyond_stirling(z: Floats) -> Floats:
    """Log Γ(z) beyond (z - ½) log z - z + ½ log 2π."""
    beyond = np.zeros_like(z)
    for step in range(_SHIFT):
        beyond += (z + step + 0.5) * np.log1p(1 / (z + step)) - 1
    far, series = z + _SHIFT, np.zeros_like(z)
    for coefficient in _STIRLING:
        series = series / np.square(far) + coefficient
    return beyond + series / far


def _in_blocks(function: Callable[..., Floats], *arrays: ArrayLike) -> Floats:
    """Return a function of several [n] over arrays of one shape."""
    shaped = np.broadcast_arrays(*(np.asarray(array, np.float64) for array in arrays))
    flat = [array.reshape(-1) for array in shaped]
    starts = range(0, flat[0].size, _BLOCK)
    with np.errstate(all="ignore"):  # what is not a number stays one that is not
        blocks = [function(*(array[n : n + _BLOCK] for array in flat)) for n in starts]
    return np.concatenate([np.empty(0), *blocks]).reshape(shaped[0].shape)
