"""Families of questions, the doing of single texts, and what the words beside intervals say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from attnviz.statistics.coverage import MEASURED, measured, word
from attnviz.statistics.families import (
    holm,
    judge,
    one_sided,
    two_sided,
)
from attnviz.statistics.order import largest_share, median, per_text, trimmed_means


def test_holm_by_hand() -> None:
    """Holm 1979: the smallest p times 4, the next times 3, ...; never below one before it."""
    found = holm([0.01, 0.04, np.nan, 0.03, 0.005])
    np.testing.assert_allclose(found, [0.03, 0.06, np.nan, 0.06, 0.02])
    assert holm([[0.9, 0.8]]).tolist() == [[1.0, 1.0]]
    assert np.isnan(holm([np.nan])).all()


def test_p_values_are_scipys() -> None:
    t, freedom = np.array([-1.0, 0.3, 4.2]), np.array([3.0, 20.0, 7.0])
    np.testing.assert_allclose(two_sided(t, 1.0, freedom), 2 * stats.t.sf(np.abs(t), freedom))
    np.testing.assert_allclose(one_sided(t, 1.0, freedom), stats.t.sf(t, freedom))
    assert np.isnan(two_sided(1.0, 1.0, np.nan))


def effects(draw: np.random.Generator, texts: int, means: int) -> np.ndarray:
    return draw.standard_t(5, (texts, means)) + 0.5 * draw.standard_normal((texts, 1))


@pytest.mark.parametrize("method", ["holm", "max-t"])
def test_a_family_without_effects_names_nothing(method) -> None:
    """Twenty means of 0: in 95 of 100 samples none stands, where single intervals fail."""
    draw = np.random.default_rng(1)
    wrong = alone = 0
    rows = np.ones(60, np.int64)
    for trial in range(150):
        sample = effects(draw, 60, 20)
        names = [f"{n}" for n in range(60)]
        found = judge(sample, rows, names, method=method, seed=trial, replicates=300)
        wrong += bool(found.significant.any())
        alone += bool(((found.low > 0) | (found.high < 0)).any())
    assert alone > 60
    assert wrong <= 14


@pytest.mark.parametrize("method", ["holm", "max-t"])
def test_what_is_there_stands(method) -> None:
    draw = np.random.default_rng(2)
    sample = effects(draw, 80, 6)
    sample[:, 2] += 2.0
    sample[:, 4] -= 0.004 + sample[:, 4]  # sure, and too small to be worth a name
    sample[:, 4] += 0.0005 * draw.standard_normal(80)
    names = [f"{n}" for n in range(80)]
    found = judge(sample, np.ones(80, np.int64), names, method=method, smallest=0.01)
    assert found.significant.tolist() == [False, False, True, False, True, False]
    assert found.relevant.tolist() == [False, False, True, False, False, False]
    assert (found.joint_low <= found.low).all()
    assert found.joint_low[2] > 0
    assert found.groups == 80
    again = judge(sample, np.ones(80, np.int64), names, method=method, smallest=0.01)
    assert (again.adjusted == found.adjusted).all()


def test_names_that_are_the_same_are_one_group() -> None:
    draw = np.random.default_rng(3)
    sample = np.repeat(effects(draw, 12, 3) + 1, 5, axis=0)
    groups = [str(n // 5) for n in range(60)]
    found = judge(sample, np.ones(60, np.int64), groups, method="holm")
    alone = judge(sample[::5], np.ones(12, np.int64), groups[::5], method="holm")
    assert found.groups == 12
    np.testing.assert_allclose(found.adjusted, alone.adjusted)
    copies = judge(sample[:5], np.ones(5, np.int64), ["same"] * 5, method="holm")
    assert np.isnan(copies.low).all()
    assert not copies.significant.any()


def test_a_distance_is_judged_against_a_null() -> None:
    """Of random heads every distance is above 0; none is above that of another random head."""
    draw = np.random.default_rng(4)
    distance, null = draw.gamma(2, size=(100, 5)), draw.gamma(2, size=(100, 1))
    distance[:, 3] += 1.5
    names = [f"{n}" for n in range(100)]
    rows = np.ones(100, np.int64)
    assert judge(distance, rows, names).significant.all()
    assert judge(distance - null, rows, names).significant.tolist() == [0, 0, 0, 1, 0]


def test_the_largest_text_is_seen() -> None:
    sums = np.array([[1.0, 1.0], [1.0, -1.0], [2.0, 4.0], [0.0, 0.0]])
    np.testing.assert_allclose(largest_share(sums), [0.5, 1.0])
    assert np.isnan(largest_share(np.zeros((3, 1)))).all()
    means = per_text(sums, np.array([1, 2, 4, 0]))
    np.testing.assert_allclose(means[:3], [[1, 1], [0.5, -0.5], [0.5, 1]])
    assert np.isnan(means[3]).all()


def test_the_trimmed_mean_is_scipys_and_its_interval_by_hand() -> None:
    draw = np.random.default_rng(5)
    values = draw.standard_t(2, (23, 2))
    found = trimmed_means(values)
    alone = trimmed_means(values, joint=False)
    assert np.isnan(alone.joint_low).all()
    np.testing.assert_array_equal(alone.low, found.low)
    for column in range(2):
        some = values[:, column]
        assert found.center[column] == pytest.approx(stats.trim_mean(some, 0.1))
        n, g = len(some), int(0.1 * len(some))
        winsorized = np.asarray(stats.mstats.winsorize(some, (g / n, g / n)))
        error = winsorized.std(ddof=1) / ((1 - 2 * g / n) * np.sqrt(n))
        half = stats.t.ppf(0.975, n - 2 * g - 1) * error
        assert found.high[column] - found.low[column] == pytest.approx(2 * half)
    assert np.isnan(trimmed_means(values[:4]).low).all()
    moved = values.copy()
    moved[values[:, 0].argmax(), 0] = 1e9
    assert trimmed_means(moved).center[0] == pytest.approx(found.center[0])


def test_the_median_lies_between_order_statistics() -> None:
    """Of 20 the 6th and the 15th: the binomial probability between is 0.959 (Conover, table A3)."""
    values = np.random.default_rng(6).permutation(20).astype(float)[:, None]
    found = median(values)
    assert (found.value[0], found.low[0], found.high[0]) == (9.5, 5, 14)
    assert np.isnan(median(values[:5]).low[0])  # five texts never give 95 %
    assert not np.isnan(median(values[:6]).low[0])
    assert np.isnan(median(np.ones((30, 1))).low[0])


def test_words_say_what_was_measured() -> None:
    size, held = measured("pooled, each: common scores", 30)
    assert size == 20
    said = word("each", 30)
    assert said is not None
    assert f"{100 * held.middle:.0f} %" in said
    assert f"{100 * held.worst:.0f} %" in said
    assert said.startswith("95 % intervals from 30 texts")
    together = word("simultaneous", 30, "groups")
    assert together is not None
    joint = MEASURED["pooled, simultaneous: common scores"][20].joint
    assert f"{100 * joint:.0f} % of samples of 20" in together
