"""Families of questions, the doing of single texts, and what the words beside intervals say."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from attnviz.statistics.clusters import holm, one_sided, two_sided
from attnviz.statistics.coverage import MEASURED, measured, word
from attnviz.statistics.order import largest_share, per_text, trimmed_means
from attnviz.statistics.ratios import ratios


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


@pytest.mark.parametrize("texts", [15, 60])
def test_a_family_without_effects_names_nothing(texts: int) -> None:
    """Twenty means of 0: in 95 % of samples none stands, where single intervals fail."""
    draw = np.random.default_rng(1)
    wrong = alone = 0
    names = [f"{n}" for n in range(texts)]
    for trial in range(60):
        sample = effects(draw, texts, 20)
        found = ratios(sample, np.ones(texts), names, seed=trial, few=True)
        wrong += bool((found.adjusted <= 0.05).any())
        alone += bool(((found.low > 0) | (found.high < 0)).any())
    assert alone > 24
    assert wrong <= 6


@pytest.mark.parametrize("texts", [19, 80])
def test_what_is_there_stands(texts: int) -> None:
    draw = np.random.default_rng(2)
    sample = effects(draw, texts, 6)
    sample[:, 2] += 3.0
    sample[:, 4] = -0.004 + 0.0005 * draw.standard_normal(texts)  # small, and sure
    names = [f"{n}" for n in range(texts)]
    found = ratios(sample, np.ones(texts), names, size=np.zeros(texts), few=True)
    assert (found.adjusted <= 0.05).tolist() == [False, False, True, False, True, False]
    assert (found.joint_low <= found.low).all()
    assert found.joint_low[2] > 0
    again = ratios(sample, np.ones(texts), names, size=np.zeros(texts), few=True)
    assert (again.adjusted == found.adjusted).all()


def test_names_that_are_the_same_are_one_group() -> None:
    draw = np.random.default_rng(3)
    sample = np.repeat(effects(draw, 12, 3) + 1, 5, axis=0)
    groups = [str(n // 5) for n in range(60)]
    found = ratios(sample, np.ones(60), groups, few=True)
    alone = ratios(sample[::5], np.ones(12), groups[::5], few=True)
    np.testing.assert_allclose(found.adjusted, alone.adjusted)
    copies = ratios(sample[:5], np.ones(5), ["same"] * 5, few=True)
    assert np.isnan(copies.low).all()
    assert np.isnan(copies.adjusted).all()


def test_a_distance_is_judged_against_a_null() -> None:
    """Of random heads every distance is above 0; none is above that of another random head."""
    draw = np.random.default_rng(4)
    distance, null = draw.gamma(2, size=(100, 5)), draw.gamma(2, size=(100, 1))
    distance[:, 3] += 1.5
    names = [f"{n}" for n in range(100)]
    assert (ratios(distance, np.ones(100), names).adjusted <= 0.05).all()
    found = ratios(distance - null, np.ones(100), names).adjusted <= 0.05
    assert found.tolist() == [0, 0, 0, 1, 0]


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
    for column in range(2):
        some = values[:, column]
        assert found.value[column] == pytest.approx(stats.trim_mean(some, 0.1))
        n, g = len(some), int(0.1 * len(some))
        winsorized = np.asarray(stats.mstats.winsorize(some, (g / n, g / n)))
        error = winsorized.std(ddof=1) / ((1 - 2 * g / n) * np.sqrt(n))
        half = stats.t.ppf(0.975, n - 2 * g - 1) * error
        assert found.high[column] - found.low[column] == pytest.approx(2 * half)
    assert np.isnan(trimmed_means(values[:4]).low).all()
    moved = values.copy()
    moved[values[:, 0].argmax(), 0] = 1e9
    assert trimmed_means(moved).value[0] == pytest.approx(found.value[0])


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
