"""When something changed: the step at which a curve passed its middle, and how sure that is.

A score that forms goes from a low to a high plateau. It formed at the first checkpoint of its last
rise past the middle between its highest value and the lowest before that, which asks for no model
of the rise, and for no threshold. How sure that is comes from the block bootstrap over texts: they
are drawn anew as wholes, the same draw for all steps (Künsch 1989; Poisson weights as in
:mod:`attnviz.statistics.simultaneous`), and the middle is passed again. A checkpoint says only that
something happened since the one before, so every interval begins there.

Training is not smooth: from one checkpoint to the next a score goes up and down by more than texts
explain, and a rise that is drawn anew on the same checkpoints has all of that in it. So each draw
is of a smoothed curve (the median of three neighbours), with noise as large as what neighbouring
checkpoints do, the median second difference (:func:`jitter`).

Notation in shapes: R draws, S steps, G texts, K curves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.statistics.clusters import LEAST
from attnviz.statistics.families import LEVEL
from attnviz.statistics.simultaneous import REPLICATES, poisson

JITTERED = 6
"""From fewer checkpoints nobody can tell a rise from what training does anyway."""
_MEDIAN = 0.6745
"""Of the size of a normal variable, in standard deviations."""

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


def drawn(a: Floats, b: NDArray[np.integer[Any]], weights: Floats) -> Floats:
    """Means of every draw, [R, S]; NaN where a draw has no row.

    ``a`` [S, G], sums of each text; ``b`` their numbers of rows; ``weights`` [R, G], how often each
    text is drawn.
    """
    rows = weights @ np.asarray(b, np.float64).T
    sums = weights @ a.T
    means: Floats = sums / np.where(rows > 0, rows, np.nan)
    return means


def jitter(curve: Floats) -> float:
    """The standard deviation of what a curve [S] does from one checkpoint to the next.

    Second differences of a line are 0, and of independent noise have √6 of its deviation; their
    median is not moved by the few of a rise. 0 from fewer than :data:`JITTERED` checkpoints.
    """
    if len(curve) < JITTERED:
        return 0.0
    bends = np.abs(curve[:-2] - 2 * curve[1:-1] + curve[2:])
    known = bends[np.isfinite(bends)]
    return float(np.median(known)) / (_MEDIAN * math.sqrt(6)) if len(known) else 0.0


def jittered(draws: Floats, curve: Floats, seed: Sequence[int]) -> Floats:
    """Draws [R, S] of a curve [S] as another training of the same kind would give them."""
    if len(curve) < JITTERED:
        return draws
    middle = np.median([curve[:-2], curve[1:-1], curve[2:]], axis=0)
    smooth = np.concatenate([curve[:1], np.where(np.isfinite(middle), middle, curve[1:-1]),
                             curve[-1:]])  # fmt: skip
    noise = np.random.default_rng(list(seed)).normal(0, jitter(curve), draws.shape)
    shaken: Floats = draws + (smooth - curve) + noise
    return shaken


def weights(names: Sequence[str], seed: int) -> Floats:
    """[R, G], how often each draw has each text; of copies of a text, all or none."""
    return poisson(seed, names, REPLICATES)


def passed(curves: Floats) -> Indices:
    """Where each curve passed its middle for the last time before its highest value.

    ``curves`` [R, S]; NaN is below everything; returns [R], from 1 to S - 1; 0 for curves that
    never rose.
    """
    values = np.nan_to_num(curves, nan=-math.inf)
    steps = np.arange(values.shape[1])
    top = values.argmax(1)
    before = steps <= top[:, None]
    least = np.where(before & np.isfinite(values), values, math.inf).min(1)
    middle = (np.where(np.isfinite(least), least, 0.0) + values.max(1)) / 2
    above = values >= middle[:, None]
    rises = above[:, 1:] & ~above[:, :-1] & before[:, 1:]
    last = rises.shape[1] - rises[:, ::-1].argmax(1)
    return np.where(rises.any(1), last, 0)


@dataclass(frozen=True, slots=True)
class When:
    """When something happened.

    Attributes:
        step: the first checkpoint after it; ``low`` the last that surely was before, ``high`` the
            first that surely was after. None from too few texts.
        low: see ``step``.
        high: see ``step``.
    """

    step: int
    low: int | None
    high: int | None


def when(index: int, draws: Indices, steps: Sequence[int], texts: int) -> When:
    """What the places of all draws say.

    ``draws`` [R], of those of the draws.
    """
    if texts < LEAST:
        return When(steps[index], None, None)
    low, high = _ends(np.maximum(draws - 1, 0), draws)
    return When(steps[index], steps[min(low, index - 1)], steps[max(high, index)])


def apart(
    first: Indices, then: Indices, steps: Sequence[int], texts: int
) -> tuple[int | None, int | None, float | None]:
    """How many steps lie between two events: the interval, and how often they come in this order.

    ``first`` [R], where the first passed in every draw; ``then`` the other.
    """
    if texts < LEAST:
        return None, None, None
    at = np.asarray(steps)
    least = at[np.maximum(then - 1, 0)] - at[first]
    most = at[then] - at[np.maximum(first - 1, 0)]
    low, high = _ends(least, most)
    return low, high, float((then > first).mean())


def _ends(least: Indices, most: Indices) -> tuple[int, int]:
    """The ends that 95 % of the draws stay within."""
    tail = (1 - LEVEL) / 2
    low = np.quantile(least, tail, method="lower")
    high = np.quantile(most, 1 - tail, method="higher")
    return int(low), int(high)


def shifted(draws: Floats, start: int, end: int, texts: int) -> tuple[float | None, float | None]:
    """The 95 % interval of a curve's change between two steps, from its draws [R, S]."""
    if texts < LEAST:
        return None, None
    change = draws[:, end] - draws[:, start]
    if np.isnan(change).all():
        return None, None
    tail = (1 - LEVEL) / 2
    low, high = np.nanquantile(change, (tail, 1 - tail))
    return float(low), float(high)
