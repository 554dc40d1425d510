"""The largest |t| of every draw over many means, of those that can be judged.

By max-T (:mod:`attnviz.statistics.simultaneous`) the worst mean of every draw decides how wide the
intervals of all are. Two things must not decide it:

- **Rounding.** Values are differences of what models compute in float32. A mean over n texts has
  no error below ``least``, which rounding alone makes: :data:`ROUNDING` times the numbers that were
  subtracted (root mean square) over √n. A mean whose error is no larger has no interval, and no
  vote.
- **A mean that few texts make.** Draws without these texts are far off and, but for rounding, have
  no error. So such a mean is off by infinitely many errors there: divided by rounding, it would be
  by a million or by a hundred, as the numbers happen to be rounded. Where more draws than one less
  the level are infinite for some mean, the means that are so most often have no joint interval,
  and no vote, until the others have one: what is not known of one says nothing of the others.

Notation in shapes: K means, R draws.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from attnviz.statistics.exact import Floats, Integers

ROUNDING = 64 * float(np.finfo(np.float32).eps)
"""A share of the numbers that float32 rounds: to tell a realistic error, take the root of the
number of roundings (Wilkinson's rule; Higham 2002, Accuracy and Stability of Numerical Algorithms,
section 2.8), here of some 4,000 terms, as many as the sums of a feed-forward part have."""

Bools = NDArray[np.bool_]
Votes = Callable[[Integers], Floats]


def off(apart: Floats, error: Floats, least: Floats) -> Floats:
    """By how many of its own errors each draw's mean is off, [R, K].

    Args:
        apart: [R, K], how far it is off.
        error: [R, K], of each draw; NaN where there is none.
        least: [K], the error that rounding alone makes. Where a draw's is below half of that, its
            texts do not differ: its mean is not off by more than rounding, or infinitely far.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        many = apart / error
    alike = ~(error > least / 2)
    return np.where(alike, np.where(apart > least, np.inf, 0.0), many)


def largest(votes: Votes, means: Integers, level: float, at_once: int) -> tuple[Floats, Integers]:
    """The largest of every draw, [R], and which means take part.

    Args:
        votes: :func:`off` of some means [n], as [R, n].
        means: the numbers of all.
        level: so many of the draws are to be finite, if any mean allows it.
        at_once: how many means are asked for at once.
    """
    most, numbers, far = _most(votes, means, at_once)
    order = np.argsort(far.sum(1), kind="stable")
    lost = np.logical_or.accumulate(far[order]).sum(1)
    # by the quantile that is taken, so many draws may be beyond it
    spare = len(most) - 1 - np.ceil(level * (len(most) - 1))
    out = numbers[order[lost > spare]]
    if not len(out):
        return most, means
    kept: Integers = np.setdiff1d(means, out)
    return _most(votes, kept, at_once)[0], kept


def width(most: Floats, level: float) -> float:
    """How many errors all means that take part stay within; NaN for none."""
    quantile = float(np.quantile(most, level, method="higher")) if len(most) else np.nan
    return quantile if np.isfinite(quantile) else np.nan


def _most(votes: Votes, means: Integers, at_once: int) -> tuple[Floats, Integers, Bools]:
    """The largest [R]; and the means that are infinitely far off in some draws, and in which."""
    most: Floats = np.zeros(0)
    numbers, far = [], []
    for first in range(0, len(means), at_once):
        some = means[first : first + at_once]
        each = votes(some)
        most = np.maximum(most, each.max(1)) if len(most) else each.max(1)
        beyond = np.isinf(each)
        any_ = beyond.any(0)
        numbers.append(some[any_])
        far.append(beyond[:, any_].T)
    return (
        most,
        np.concatenate([np.zeros(0, np.int64), *numbers]),
        np.concatenate([np.zeros((0, len(most)), np.bool_), *far]),
    )
