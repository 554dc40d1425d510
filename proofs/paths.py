"""The intervals of every command, each on a population whose truth is known.

A population is arrays whose first axis is texts: what a command measures of each. A code path takes
a sample of them through the function that the command calls, and says which intervals hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from attnviz.statistics.paired import differences
from numpy.typing import NDArray

from attnviz.features.ablation.summed import Summed, together
from attnviz.features.diff.run import APART
from attnviz.scoring.scores import SCORES
from attnviz.statistics.order import per_text, trimmed_means
from attnviz.statistics.ratios import ratios

Floats = NDArray[np.float64]
Arrays = tuple[NDArray[Any], ...]
Held = Iterator[tuple[str, Floats]]
"""By kind of interval, [K]: 1 where it holds, 0 where not, NaN where there is none."""


class CodePath(NamedTuple):
    """A command's intervals.

    Attributes:
        arrays: names of the arrays of a population file.
        truth: of the whole population.
        held: which intervals of a sample hold, given the truth and a seed.
        made_up: a population that needs no data, with tails like those of a treebank.
    """

    arrays: tuple[str, ...]
    truth: Callable[[Arrays], Any]
    held: Callable[[Arrays, Any, int], Held]
    made_up: Callable[[], Arrays]


def _inside(low: Floats, truth: Floats, high: Floats) -> Floats:
    return np.where(np.isnan(low) | np.isnan(high), np.nan, (low <= truth) & (truth <= high))


DIFF_SCORES = tuple(SCORES)
"""Means of a population of pairs are of these, again and again, head by head."""


def _summed(changes: Floats, rows: NDArray[Any]) -> Summed:
    """What ablate has of so many texts: one method, K groups."""
    texts = tuple(range(len(changes)))
    none = np.zeros(len(texts))
    return Summed(texts, texts, rows, none, changes[:, None, :], np.zeros((len(texts), 0)))


def _effects_truth(arrays: Arrays) -> Any:
    changes, rows = arrays
    return {
        "trimmed": trimmed_means(per_text(changes, rows)).center,
        "mean": changes.sum(0) / rows.sum(),
    }


def _effects_held(arrays: Arrays, truth: Any, seed: int) -> Held:
    for average in ("trimmed", "mean"):
        found = together(_summed(*arrays), average, seed)
        known = truth[average]
        yield f"ablate, {average}: each", _inside(found.low, known, found.high)
        yield f"ablate, {average}: all at once", _inside(found.joint[0], known, found.joint[1])


def _pairs(arrays: Arrays) -> tuple[Any, Any]:
    before, rows, after, others = arrays
    there = (rows.sum(0) > 0) & (others.sum(0) > 0)
    return (before[:, there], rows[:, there]), (after[:, there], others[:, there])


def _pairs_truth(arrays: Arrays) -> Any:
    (a, b), (c, d) = (tuple(map(np.asarray, run)) for run in (arrays[:2], arrays[2:]))
    with np.errstate(invalid="ignore", divide="ignore"):
        return c.sum(0) / d.sum(0) - a.sum(0) / b.sum(0)


def _pairs_held(arrays: Arrays, truth: Any, seed: int) -> Held:
    there = (arrays[1].sum(0) > 0) & (arrays[3].sum(0) > 0)
    one, two = _pairs(arrays)
    names = [str(n) for n in range(len(arrays[0]))]
    apart = np.arange(len(there)) % len(DIFF_SCORES) == DIFF_SCORES.index(APART)
    found = differences(one, two, names, apart=apart[there], seed=seed)
    inside = np.full(len(there), np.nan)
    inside[there] = _inside(found.low, truth[there], found.high)
    yield "diff: all at once", np.where(apart, np.nan, inside)
    yield f"diff, {APART}: all at once", np.where(apart, inside, np.nan)


def _shares_held(arrays: Arrays, truth: Any, seed: int) -> Held:
    a, b = arrays
    found = ratios(a, b, [str(n) for n in range(len(b))], seed=seed)
    yield "sources: each", _inside(found.low, truth, found.high)
    yield "sources: all at once", _inside(found.joint_low, truth, found.joint_high)


def effects(texts: int = 20_000, heads: int = 24, seed: int = 0) -> Arrays:
    """Changes of a loss whose means single texts make.

    Of every head one text in a thousand makes half of the variance. With 24 heads most samples have
    such a text of some head, and the draws without it make the intervals of all so wide that they
    hold. What no interval of means can know is a head that matters in few texts alone and hardly
    moves in the others, as those that repeat do in sentences: the first head is one, in three
    texts of a hundred.
    """
    draw = np.random.default_rng(seed)
    rows = np.ceil(draw.lognormal(2.6, 0.8, texts)).astype(np.int64)
    typical = np.concatenate([np.linspace(-0.002, 0.02, heads - 4), (0.05, 0.1, 0.2, 0.4)])
    shared = draw.standard_t(3, (texts, 1))
    own = draw.standard_t(3, (texts, heads))
    per_token = typical + (0.01 + 0.3 * np.abs(typical)) * (own + 0.5 * shared)
    odd = draw.random((texts, heads)) < 0.001
    per_token = per_token + odd * draw.lognormal(0.5, 1, (texts, heads))
    few = draw.random(texts) < 0.03
    per_token[:, 0] = 0.001 * own[:, 0] + few * draw.lognormal(-1.2, 1, texts)
    return per_token * rows[:, None], rows


def pairs(texts: int = 20_000, means: int = 54, seed: int = 0) -> Arrays:
    """Scores of the same texts in two models, near 0 or 1 in most of them and else anywhere."""
    draw = np.random.default_rng(seed)
    rows = np.ceil(draw.lognormal(2.6, 0.8, texts)).astype(np.int64)
    level = np.linspace(-4, 3, means)
    habit = level + draw.standard_t(3, (texts, 1)) * 0.7 + draw.standard_t(3, (texts, means)) * 0.7
    moved = habit + 0.2 * np.sin(np.arange(means)) + 0.3 * draw.standard_t(3, (texts, means))
    b = np.repeat(rows[:, None], means, 1)
    rare = slice(0, means // 5)
    b[:, rare] = draw.binomial(b[:, rare], 0.05) * (draw.random((texts, 1)) < 0.5)
    return b / (1 + np.exp(-habit)), b, b / (1 + np.exp(-moved)), b


def contrasts(texts: int = 20_000, sources: int = 12, seed: int = 0) -> Arrays:
    """What sources add to contrasts of keys, means over a few rows of most texts."""
    draw = np.random.default_rng(seed)
    rows = np.ceil(draw.lognormal(0.8, 1.0, texts))
    size = draw.lognormal(0, 0.6, texts)
    part = np.array([0.6, 0.2, 0.1, 0.05, 0.05] + [0.0] * (sources - 5))
    noise = draw.standard_t(3, (texts, sources)) * 0.1 / np.sqrt(rows)[:, None]
    a = size[:, None] * part * np.exp(0.3 * draw.standard_normal((texts, sources))) + noise
    return a, a.sum(1)


PATHS = {
    "effects": CodePath(("a", "b"), _effects_truth, _effects_held, effects),
    "pairs": CodePath(("a0", "b0", "a1", "b1"), _pairs_truth, _pairs_held, pairs),
    "contrasts": CodePath(
        ("a", "b"), lambda arrays: arrays[0].sum(0) / arrays[1].sum(), _shares_held, contrasts
    ),
}
