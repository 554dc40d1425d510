"""Quantiles from bins, and counts from a sketch, beside sorting and counting."""

from __future__ import annotations

import math
from collections import Counter
from statistics import NormalDist

import numpy as np
import pytest
from scipy import stats

from attnviz.statistics.histogram import (
    DEPTH,
    UNIT,
    WIDTH,
    Histograms,
    Sketch,
    bins,
    lower,
    part_of,
    parts,
)
from attnviz.statistics.order import medians, shares, texts_needed, too_few

VALUES = {
    "weights": np.random.default_rng(0).beta(0.3, 0.4, 5000),
    "signed": np.random.default_rng(1).normal(0, 1e-3, 5001) ** 3,
    "equal": np.full(777, 0.5),
    "few": np.array([3.0, -1.0, 0.0, -0.0]),
}


@pytest.mark.parametrize("name", VALUES)
def test_bins_keep_the_order_and_are_narrow(name) -> None:
    values = np.sort(VALUES[name].astype(np.float32))
    numbers = bins(values)
    assert (np.diff(numbers) >= 0).all()
    ends = np.stack([lower(numbers), lower(numbers + 1)])
    assert (lower(numbers) <= values).all()
    width = abs(ends[1] - ends[0])
    assert (width <= 0.0079 * abs(values) + 1e-37).all()


@pytest.mark.parametrize("name", VALUES)
def test_parts_are_those_of_sorted_numbers(name) -> None:
    values = VALUES[name].astype(np.float32)
    masses = np.random.default_rng(2).random(len(values))
    half = len(values) // 3
    kinds = np.ones(len(values), np.int64)
    whole = Histograms.of(kinds, values, masses)
    merged = Histograms.of(kinds[half:], values[half:], masses[half:])
    merged.merge(Histograms.of(kinds[:half], values[:half], masses[:half]))
    for field in ("cells", "counts", "masses"):
        assert (getattr(whole, field) == getattr(merged, field)).all()
    assert not len(whole.kind(0)[0])
    numbers, counts, sums = whole.kind(1)
    assert counts.sum() == len(values)
    assert sums.sum() / UNIT == pytest.approx(math.fsum(masses), abs=1e-6)
    made = parts(numbers, counts, sums, 10)
    ordered = np.sort(values.astype(np.float64))
    for n in range(10):
        first = ordered[min(int(n * len(values) / 10), len(values) - 1)]
        last = ordered[max(0, math.ceil((n + 1) * len(values) / 10) - 1)]
        assert made.low[n] == pytest.approx(first, rel=0.008, abs=1e-30)
        assert made.high[n] == pytest.approx(last, rel=0.008, abs=1e-30)
    assert made.masses.sum() == pytest.approx(masses.sum(), abs=1e-6)
    assert np.allclose(made.counts, len(values) / 10)


def test_every_number_is_in_one_part_and_ties_are_divided_fairly() -> None:
    values = np.concatenate([np.full(4000, 1.0), np.linspace(0, 0.9, 1000)]).astype(np.float32)
    numbers, counts, _ = Histograms.of(
        np.zeros(len(values), np.int64), values, np.ones(len(values))
    ).kind(0)
    chances = np.random.default_rng(3).random(len(values))
    at = part_of(values, chances, numbers, counts, 10)
    held = Counter(at.tolist())
    assert all(abs(held[n] - 500) < 100 for n in range(10)), held
    assert at[values == 1].min() == 2


def test_a_sketch_is_never_too_small_and_rarely_far_too_large() -> None:
    rng = np.random.default_rng(4)
    things = rng.zipf(1.3, 60_000).clip(1, 1 << 40).astype(np.uint64)
    counted = Counter(things.tolist())
    first, second = Sketch(2), Sketch(2)
    first.add(1, things[:20_000], np.ones(20_000, np.int64))
    second.add(1, things[20_000:], np.ones(40_000, np.int64))
    first.merge(second)
    keys = np.array(list(counted), np.uint64)
    over = first.count(1, keys) - np.array([counted[key] for key in keys.tolist()])
    assert (over >= 0).all()
    assert first.error(1) == math.e / WIDTH * 60_000
    assert (over > first.error(1)).mean() <= math.exp(-DEPTH)
    assert first.count(0, keys).max() == 0


HEADS = 24


def _common(draw: np.random.Generator, texts: int, columns: int) -> np.ndarray:
    """[texts, columns] of a normal distribution, with a factor that all share."""
    own = draw.standard_normal((texts, columns))
    return 0.3**0.5 * draw.standard_normal((texts, 1)) + 0.7**0.5 * own


def _rare(draw: np.random.Generator, shape: tuple[int, int], size: float) -> np.ndarray:
    """3 in 15 % of the texts, and noise of a size in the others."""
    return np.where(draw.random(shape) < 0.15, 3.0, size * draw.standard_normal(shape))


def _middle(size: float) -> float:
    """The median of that."""
    return size * NormalDist().inv_cdf(0.5 / 0.85)


POPULATIONS = {
    "normal": (_common, 0.0),
    "t(3)": (lambda draw, n, k: draw.standard_t(3, (n, k)) + draw.standard_t(3, (n, 1)), 0.0),
    "lognormal": (lambda *shape: np.exp(_common(*shape)), 1.0),
    "scales": (lambda draw, n, k: _common(draw, n, k) * 10.0 ** np.linspace(-3, 3, k), 0.0),
    "rare": (lambda draw, n, k: _rare(draw, (n, k), 1e-3), _middle(1e-3)),
    "constant": (lambda draw, n, k: 0.5 + 1e-9 * draw.standard_normal((n, k)), 0.5),
}
HOSTILE = {
    "rare": lambda draw, n: _rare(draw, (n, 1), 1e-3),
    "rarer": lambda draw, n: _rare(draw, (n, 1), 1e-6),
    "constant": lambda draw, n: 0.5 + 1e-9 * draw.standard_normal((n, 1)),
    "lognormal": lambda draw, n: np.exp(3 * draw.standard_normal((n, 1))),
    "scales": lambda draw, n: np.exp(draw.uniform(-7, 7, (n, 1))) * draw.standard_normal((n, 1)),
    "zero": lambda draw, n: np.zeros((n, 1)),
}


@pytest.mark.parametrize(
    ("texts", "heads", "ends"), [(20, 1, (5, 14)), (30, 1, (9, 20)), (20, 24, (2, 17))]
)
def test_by_hand_between_which_order_statistics(
    texts: int, heads: int, ends: tuple[int, int]
) -> None:
    """Of 20 the 6th and the 15th hold 95.9 %, the next ones 88.5 (Conover, table A3)."""
    column = np.random.default_rng(6).permutation(texts).astype(float)
    found = medians(np.repeat(column[:, None], heads, 1))
    assert found.center[0] == (texts - 1) / 2
    low, high = ends
    assert low <= found.joint_low[0] < low + 1
    assert high - 1 < found.joint_high[0] <= high
    assert found.joint_low[0] + found.joint_high[0] == pytest.approx(texts - 1)


def test_the_step_between_them_by_hand() -> None:
    """Hettmansperger & Sheather 1986, for 20 texts: 4.14 % miss from the 6th on, 11.53 % from the
    7th; I = (5 - 4.139) / (11.532 - 4.139) = 0.1165, and the step 14 I / (6 + 8 I) = 0.2353."""
    found = medians(np.arange(20.0)[:, None])
    miss, beyond = (2 * stats.binom.cdf(k, 20, 0.5) for k in (5, 6))
    part = (0.05 - miss) / (beyond - miss)
    assert found.low[0] == pytest.approx(5 + 14 * part / (6 + 8 * part))
    assert found.low[0] == pytest.approx(5.2353, abs=1e-4)


def test_no_step_is_taken_across_a_gap() -> None:
    """Between 0 and 1 nothing lies: an end within would be a value that no text has."""
    column = np.array([0.0] * 6 + [1.0] * 14)[:, None]
    found = medians(column)
    assert (found.low[0], found.high[0]) == (0.0, 1.0)


@pytest.mark.parametrize(("heads", "texts"), [(12, 9), (24, 10), (48, 11), (144, 13), (1024, 16)])
def test_so_many_texts_are_needed_and_no_fewer(heads: int, texts: int) -> None:
    assert texts_needed(heads) == texts
    draw = np.random.default_rng(7)
    few, enough = (medians(draw.standard_normal((n, heads))) for n in (texts - 1, texts))
    assert np.isnan(few.joint_low).all()
    assert np.isfinite(few.low).all()
    assert np.isfinite(enough.joint_low).all()


def test_a_sentence_says_how_many() -> None:
    said = too_few(10, 144, "heads")
    assert said == "10 texts cannot say anything of 144 heads at once; 13 can."
    assert too_few(13, 144, "heads") is None


@pytest.mark.parametrize("texts", [10, 15, 19, 20, 21, 30, 50])
@pytest.mark.parametrize("name", POPULATIONS)
def test_all_intervals_hold_at_once_whatever_the_tails(name: str, texts: int) -> None:
    """95 %, with two and a half standard errors of 200 samples."""
    population, truth = POPULATIONS[name]
    draw = np.random.default_rng([8, texts])
    samples = [population(draw, texts, HEADS) for _ in range(200)]
    found = medians(np.concatenate(samples, 1), questions=HEADS)
    held = (found.joint_low <= truth) & (truth <= found.joint_high)
    assert held.reshape(200, HEADS).all(1).mean() >= 0.95 - 0.04


def test_more_texts_never_find_much_less() -> None:
    """Texts one by one: of an effect of one standard deviation, no fall by more than 1.7 points."""
    power = {}
    for texts in range(9, 41):
        draw = np.random.default_rng(9)
        samples = [_common(draw, texts, HEADS) + 1.0 for _ in range(150)]
        power[texts] = float(medians(np.concatenate(samples, 1), questions=HEADS).sure.mean())
    # neighbours share no draws: two standard errors of a mean of as many correlated samples
    assert all(power[n + 1] >= power[n] - 0.017 - 0.03 for n in range(9, 40))
    assert power[9] == 0
    assert power[40] > 0.9


@pytest.mark.parametrize("texts", [10, 19, 20, 21, 50])
@pytest.mark.parametrize("kind", HOSTILE)
def test_no_column_touches_another(kind: str, texts: int) -> None:
    """In place of an ordinary column a hostile one: not a bit of the others' intervals changes."""
    draw = np.random.default_rng([10, texts])
    ordinary = _common(draw, texts, HEADS) + np.linspace(0, 2, HEADS)
    hostile = ordinary.copy()
    hostile[:, :1] = HOSTILE[kind](draw, texts)
    before, after = medians(ordinary), medians(hostile)
    for name in ("center", "low", "high", "joint_low", "joint_high", "detectable"):
        assert getattr(before, name)[1:].tolist() == getattr(after, name)[1:].tolist()
    assert (before.sure[1:] == after.sure[1:]).all()


def test_the_order_of_texts_and_heads_changes_no_bit() -> None:
    draw = np.random.default_rng(11)
    values = draw.standard_t(2, (37, HEADS))
    values[draw.random(values.shape) < 0.1] = np.nan  # texts that lack something
    texts, heads = draw.permutation(37), draw.permutation(HEADS)
    found, again = medians(values), medians(values[texts][:, heads])
    for name in ("center", "low", "high", "joint_low", "joint_high", "detectable"):
        assert getattr(found, name)[heads].tolist() == getattr(again, name).tolist()


def test_a_constant_effect_is_sure_and_rounding_is_not() -> None:
    values = np.repeat([[0.5, 1e-7, 0.0, -0.5]], 30, 0)
    values += 1e-9 * np.random.default_rng(12).standard_normal(values.shape)
    found = medians(values, rounding=1e-6)
    assert found.sure.tolist() == [True, False, False, True]
    assert found.joint_high[0] - found.joint_low[0] < 1e-5


def test_the_smallest_effect_that_would_show_shows_in_four_of_five() -> None:
    draw = np.random.default_rng(13)
    size = np.median([medians(draw.standard_normal((50, HEADS))).detectable for _ in range(50)])
    sure = [medians(draw.standard_normal((50, HEADS)) + size).sure.mean() for _ in range(100)]
    assert 0.7 <= np.mean(sure) <= 0.92


def test_in_how_many_texts_and_in_how_large_a_share_at_least() -> None:
    """Clopper & Pearson 1934, one-sided, of 0.05 / (2 K): scipy's exact interval of twice that."""
    values = np.zeros((50, 3))
    values[:20, 0], values[:5, 1], values[5:8, 1] = 3.0, -0.2, 0.1
    found = shares(values, 0.1)
    assert found.above.tolist() == [20, 3, 0]
    assert found.below.tolist() == [0, 5, 0]
    exact = stats.binomtest(20, 50).proportion_ci(1 - 2 * 0.05 / 6)
    assert found.least_above[0] == pytest.approx(exact.low)
    assert found.least_above[2] == found.least_below[0] == 0


def test_a_head_that_matters_in_some_texts_alone_is_seen() -> None:
    """3 in 30 % of 50 texts: no median shows it, and the share does, in half of the samples."""
    draw = np.random.default_rng(14)
    seen, median_sees = [], []
    for _ in range(100):
        values = 1e-3 * draw.standard_normal((50, HEADS))
        values[:, 0] = np.where(draw.random(50) < 0.3, 3.0, values[:, 0])
        seen.append(shares(values, 0.1).least_above[0] > 0.1)
        median_sees.append(medians(values).joint_low[0] > 0.1)
    assert np.mean(seen) > 0.4
    assert np.mean(median_sees) < 0.02
