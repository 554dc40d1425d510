"""The intervals of every command, each on a population whose truth is known.

A population is arrays whose first axis is texts: what a command measures of each. A code path takes
a sample of them through the function that the command calls, and says which intervals hold, and
which of the effects that there are it finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import Layout
from attnviz.features.ablation.judge import Summed, estimates
from attnviz.features.diff.run import paired
from attnviz.features.knockout.function import Knock
from attnviz.features.knockout.function import judged as judged_cuts
from attnviz.features.knockout.settings import KnockoutSettings
from attnviz.features.patch.shares import shares as judged_shares
from attnviz.features.thoughts.sentences import judged as judged_tails
from attnviz.statistics.order import per_text
from attnviz.statistics.ratios import ratios

Floats = NDArray[np.float64]
Arrays = tuple[NDArray[Any], ...]


class Held(NamedTuple):
    """One kind of interval in one sample.

    Attributes:
        kind: of interval.
        inside: [K], 1 where it holds, 0 where not, NaN where there is none.
        found: [K], 1 where it leaves out 0 on the side of a true effect, 0 where not, NaN where
            there is no effect to find.
    """

    kind: str
    inside: Floats
    found: Floats


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
    held: Callable[[Arrays, Any, int], Iterator[Held]]
    made_up: Callable[[], Arrays]


NOTHING = 0.02
"""An effect of less than this share of the largest one is not looked for."""


def _held(kind: str, ends: Sequence[Any], truth: Floats) -> Held:
    """Return ends that may be None or NaN, beside what is true."""
    low, high = (np.asarray(end, np.float64) for end in ends)
    known = ~(np.isnan(low) | np.isnan(high) | np.isnan(truth))
    real = np.abs(truth) > NOTHING * np.nanmax(np.abs(truth))
    right = np.where(truth > 0, low > 0, high < 0)
    return Held(
        kind,
        np.where(known, (low <= truth) & (truth <= high), np.nan),
        np.where(real, np.where(known, right, 0.0), np.nan),
    )


def _names(count: int) -> list[str]:
    return [str(n) for n in range(count)]


def _summed(changes: Floats, rows: NDArray[Any]) -> Summed:
    """Return what ablate has of so many texts: one method, K groups."""
    texts = tuple(range(len(changes)))
    none = np.zeros(len(texts))
    return Summed(texts, texts, rows, none, changes[:, None, :], np.zeros((len(texts), 0)))


def _ablate_truth(arrays: Arrays) -> Any:
    changes, rows = arrays
    return np.median(per_text(changes, rows), 0), changes.sum(0) / rows.sum()


def _ablate_held(arrays: Arrays, truth: Any, seed: int) -> Iterator[Held]:
    found = estimates(_summed(*arrays), "median")
    own, mean = found.typical, found.pooled
    yield _held("ablate: all at once", (own.joint_low, own.joint_high), truth[0])
    yield _held("ablate: each", (own.low, own.high), truth[0])
    yield _held("ablate, mean: each", (mean.low, mean.high), truth[1])


def _knockout_truth(arrays: Arrays) -> Any:
    changes, controls = (per_text(part, arrays[1]) for part in (arrays[0], arrays[2]))
    return np.median(changes, 0), np.median(changes - controls, 0)


def _knockout_held(arrays: Arrays, truth: Any, seed: int) -> Iterator[Held]:
    """Of heads that are cut, changes and what they are beyond those of controls."""
    changes, controls = (per_text(part, arrays[1]) for part in (arrays[0], arrays[2]))
    values = np.stack(
        [changes * 0 + 1, changes * 0 + 1, changes * 0, changes, controls, changes * 0], -1
    )
    knocks = [Knock("last", "all", "heads", str(n), ()) for n in range(changes.shape[1])]
    effects, _ = judged_cuts(knocks, values, _names(len(changes)), "loss", KnockoutSettings())
    parts = [effect.change for effect in effects] + [e.excess for e in effects if e.excess]
    ends = [[getattr(part, name) for part in parts] for name in ("joint_low", "joint_high")]
    yield _held("knockout: all at once", ends, np.concatenate(truth))


def _patch_truth(arrays: Arrays) -> Any:
    a, b = arrays
    return np.median(a / b[:, None], 0), a.sum(0) / b.sum()


def _patch_held(arrays: Arrays, truth: Any, seed: int) -> Iterator[Held]:
    (shares,) = judged_shares(arrays[0][:, None], arrays[1], _names(len(arrays[1])))
    ends = [[getattr(share, name) for share in shares] for name in ("joint_low", "joint_high")]
    yield _held("patch: all at once", ends, truth[0])
    pooled = [[getattr(share, name) for share in shares] for name in ("low", "high")]
    yield _held("patch, mean: each", pooled, truth[1])


def _thoughts_truth(arrays: Arrays) -> Any:
    return np.median(arrays[0] - arrays[1], 0)


def _thoughts_held(arrays: Arrays, truth: Any, seed: int) -> Iterator[Held]:
    layout = Layout({"decoder": (arrays[0].shape[1],)})
    heads = judged_tails(layout, arrays[0], arrays[1], _names(len(arrays[0])))
    ends = [[getattr(head, name) for head in heads] for name in ("joint_low", "joint_high")]
    yield _held("thoughts: all at once", ends, truth)


def _runs(arrays: Arrays) -> list[tuple[Floats, Floats]]:
    before, rows, after, others = (np.asarray(part, np.float64) for part in arrays)
    return [(before, rows), (after, others)]


def _means(arrays: Arrays) -> list[Floats]:
    with np.errstate(invalid="ignore", divide="ignore"):
        return [a.sum(0) / b.sum(0) for a, b in _runs(arrays)]


def _diff_truth(arrays: Arrays) -> Any:
    first, second = (per_text(a, b.astype(np.int64)) for a, b in _runs(arrays))
    before, after = _means(arrays)
    return np.nanmedian(second - first, 0), after - before


def _diff_held(arrays: Arrays, truth: Any, seed: int) -> Iterator[Held]:
    typical, own = paired(_runs(arrays), _means(arrays))
    yield _held("diff: all at once", (typical.joint_low, typical.joint_high), truth[0])
    yield _held("diff, mean: each", (own.low, own.high), truth[1])


def _sources_held(arrays: Arrays, truth: Any, seed: int) -> Iterator[Held]:
    a, b = arrays
    found = ratios(a, b, _names(len(b)), seed=seed)
    yield _held("sources: each", (found.low, found.high), truth)
    yield _held("sources: all at once", (found.joint_low, found.joint_high), truth)


def effects(texts: int = 20_000, heads: int = 24, seed: int = 0) -> Arrays:
    """Return changes of a loss whose means single texts make.

    Of every head one text in a thousand makes half of the variance, and the first matters in three
    texts of a hundred alone and hardly moves in the others, as heads that repeat do in sentences:
    no interval of means can know either.
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


def cuts(texts: int = 20_000, seed: int = 1) -> Arrays:
    """Get the same of cuts, with what random cuts of as much weight do: half as much, and noise."""
    changes, rows = effects(texts, seed=seed)
    noise = np.random.default_rng([seed, 1]).standard_t(3, changes.shape)
    return changes, rows, (0.4 * changes / rows[:, None] + 0.005 * noise) * rows[:, None]


def patches(texts: int = 20_000, heads: int = 24, seed: int = 0) -> Arrays:
    """Give what patching heads moves, and what there is to move, by pair; both have heavy tails."""
    draw = np.random.default_rng(seed)
    share = np.concatenate([[0.185, 0.111, 0.11, 0.058, 0.038], np.zeros(heads - 5)])
    gap = draw.lognormal(1.5, 0.6, texts) * np.where(draw.random(texts) < 0.03, -0.2, 1.0)
    noise = draw.standard_t(3, (texts, heads)) + 0.5 * draw.standard_t(3, (texts, 1))
    moved = gap[:, None] * share * np.exp(0.5 * draw.standard_normal((texts, heads)))
    return moved + (0.02 + 0.3 * share) * np.abs(gap)[:, None] * noise, gap


def tails(traces: int = 20_000, heads: int = 24, seed: int = 0) -> Arrays:
    """Kurtoses of heads on traces, and of the same sentences in random order: skewed, both."""
    draw = np.random.default_rng(seed)
    shape = np.concatenate([np.zeros(heads - 6), (0.5, 1.0, 2.0, 3.0, 4.0, 6.0)])
    control = draw.gamma(1.5, 1.0, (traces, heads)) - 1.2
    return shape + 0.8 * control + draw.gamma(1.0, 1.0, (traces, heads)) - np.log(2), control


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
    """Return what sources add to contrasts of keys, means over a few rows of most texts."""
    draw = np.random.default_rng(seed)
    rows = np.ceil(draw.lognormal(0.8, 1.0, texts))
    size = draw.lognormal(0, 0.6, texts)
    part = np.array([0.6, 0.2, 0.1, 0.05, 0.05] + [0.0] * (sources - 5))
    noise = draw.standard_t(3, (texts, sources)) * 0.1 / np.sqrt(rows)[:, None]
    a = size[:, None] * part * np.exp(0.3 * draw.standard_normal((texts, sources))) + noise
    return a, a.sum(1)


PATHS = {
    "ablate": CodePath(("a", "b"), _ablate_truth, _ablate_held, effects),
    "knockout": CodePath(("a", "b", "control"), _knockout_truth, _knockout_held, cuts),
    "patch": CodePath(("a", "b"), _patch_truth, _patch_held, patches),
    "thoughts": CodePath(("kurtosis", "control"), _thoughts_truth, _thoughts_held, tails),
    "diff": CodePath(("a0", "b0", "a1", "b1"), _diff_truth, _diff_held, pairs),
    "sources": CodePath(
        ("a", "b"), lambda arrays: arrays[0].sum(0) / arrays[1].sum(), _sources_held, contrasts
    ),
}
