"""The differences of means over the same texts in two runs, and how sure they are together.

Both means are ratios Σa / Σb over the rows of texts (see :mod:`attnviz.statistics.clusters`). Their
difference has, by the linearization that such ratios have (Cochran 1977, Sampling Techniques,
chapter 6), the variance G/(G-1) · Σ u² with u_g = (a'_g - p' b'_g) / Σb' - (a_g - p b_g) / Σb: what
both runs share in a text cancels.

All intervals hold together by the bootstrap-t over texts, as in
:mod:`attnviz.statistics.simultaneous`: Student's t with Bonferroni's correction, all there is below
:data:`~attnviz.statistics.simultaneous.ENOUGH` texts, knows nothing of how skewed scores are.

Notation in shapes: G texts, K means, R draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.statistics.clusters import LEAST, LEVEL
from attnviz.statistics.exact import Floats, Integers
from attnviz.statistics.maximum import ROUNDING, largest, off, width
from attnviz.statistics.simultaneous import COMMON, ENOUGH, REPLICATES, poisson
from attnviz.statistics.student import half_widths

_AT_ONCE = 1024

Run = tuple[Floats, NDArray[np.integer[Any]]]
"""Sums and numbers of rows of every text, [G, K] each."""


@dataclass(frozen=True, eq=False, slots=True)
class Differences:
    """Changes of K means, and their intervals; NaN for ends that are not known.

    Attributes:
        change: the second mean less the first.
        low: of the intervals that hold together; ``high`` likewise.
        high: the other end.
    """

    change: Floats
    low: Floats
    high: Floats


def differences(
    before: Run,
    after: Run,
    names: Sequence[str],
    *,
    apart: NDArray[np.bool_] | None = None,
    seed: int = 0,
    level: float = LEVEL,
) -> Differences:
    """The changes of means.

    A mean with rows in few of the texts has no interval: there its spread is not known.

    Args:
        before: of every text the sums over its rows, and how many; some row of each mean counts.
        after: the same texts in the other run.
        names: of the texts, no two alike.
        apart: [K], means that are a family of their own, whose intervals hold together with
            ``level`` by themselves.
        seed: of the bootstrap.
        level: of all other intervals together.
    """
    texts = len(names)
    change, error = (part[0] for part in _drawn(before, after, np.ones((1, texts))))
    count = ((before[1] > 0) | (after[1] > 0)).sum(0)
    least = ENOUGH if texts >= ENOUGH else max(LEAST, COMMON * texts)
    rounding = _rounding(before, after, count)
    known = (count >= least) & (error > rounding)
    error = np.where(known, error, np.nan)
    own = np.zeros(known.shape, np.bool_) if apart is None else apart
    widths = np.full(known.shape, np.nan)
    weights = poisson(seed, names, REPLICATES) if texts >= ENOUGH else None
    for alone in (False, True):
        family = known & (own == alone)
        if weights is None:
            questions = max(int(family.sum()), 1)
            widths[family] = half_widths(count[family] - 1, 1 - (1 - level) / questions)
            continue
        common = count >= COMMON * texts
        parts = [part for part in (family & common, family & ~common) if part.any()]
        inside = 1 - (1 - level) / max(len(parts), 1)
        for part in parts:
            votes = partial(_votes, before, after, change, weights, rounding)
            most, taking = largest(votes, np.flatnonzero(part), inside, _AT_ONCE)
            widths[taking] = width(most, inside)
    return Differences(change, change - widths * error, change + widths * error)


def _rounding(before: Run, after: Run, count: Integers) -> Floats:
    """The error that the rounding of both runs makes, [K]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = sum((a * a).sum(0) / b.sum(0) ** 2 for a, b in (before, after))
        error: Floats = ROUNDING * np.sqrt(count / np.maximum(count - 1, 1) * squares)
    return error


def _drawn(before: Any, after: Any, weights: Floats) -> tuple[Floats, Floats]:
    """The changes of draws with weights [R, G] and their errors, [R, K] each."""
    change = squares = np.zeros((len(weights), np.shape(before[0])[1]))
    parts = []
    for sign, (a, b) in ((-1.0, before), (1.0, after)):
        rows = weights @ b
        with np.errstate(divide="ignore", invalid="ignore"):
            mean = (weights @ a) / rows
            change = change + sign * mean
            sums = weights @ (a * a) - 2 * mean * (weights @ (a * b)) + mean**2 * (weights @ b**2)
            squares = squares + sums / rows**2
        parts.append((a, b, mean, rows))
    (a, b, p, n), (c, d, q, m) = parts
    with np.errstate(divide="ignore", invalid="ignore"):
        cross = weights @ (a * c) - p * (weights @ (b * c)) - q * (weights @ (a * d))
        cross = (cross + p * q * (weights @ (b * d))) / (n * m)
    count = ((np.asarray(before[1]) > 0) | (np.asarray(after[1]) > 0)).sum(0)
    scale = count / np.maximum(count - 1, 1)
    return change, np.sqrt(scale * np.maximum(squares - 2 * cross, 0))


def _votes(
    before: Run, after: Run, change: Floats, weights: Floats, rounding: Floats, some: Integers
) -> Floats:
    """[R, n], by how many errors of its own each of some changes is off in a draw."""
    earlier, later = (
        tuple(np.asarray(x[:, some], np.float64) for x in run) for run in (before, after)
    )
    drawn, error = _drawn(earlier, later, weights)
    return off(np.abs(drawn - change[some]), error, rounding[some])
