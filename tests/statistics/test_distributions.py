"""Distributions beside SciPy's and beside whole numbers, in the middle and in every tail."""

from __future__ import annotations

import math
from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy import special, stats

import attnviz as av
from attnviz.statistics import ratios as under_test
from attnviz.statistics.clusters import merge_copies
from attnviz.statistics.distributions import (
    beta_below,
    beta_quantile,
    binomial_below,
    gamma_above,
    student_within,
)
from attnviz.statistics.order import most_moved
from attnviz.statistics.ratios import mean, ratios
from attnviz.statistics.simultaneous import ENOUGH, REPLICATES, poisson
from tests.repeated import REPEATED


def test_the_beta_distribution_is_scipys_in_every_tail() -> None:
    draw = np.random.default_rng(1)
    a, b = 10 ** draw.uniform(-0.3, 4, (2, 200))
    spread = np.sqrt((a + b + 1) / (a * b))
    odds = a / b * np.exp(draw.uniform(-15, 15, 200) * spread)
    expected = np.where(  # of the side whose x is not rounded to 1
        odds < 1, special.betainc(a, b, odds / (1 + odds)), special.betaincc(b, a, 1 / (1 + odds))
    )
    seen = expected > 1e-290
    assert expected[seen].min() < 1e-40
    np.testing.assert_allclose(beta_below(odds, a, b)[seen], expected[seen], rtol=1e-11)


@pytest.mark.parametrize("level", [1e-9, 0.05 / 600, 0.05, 0.5, 0.975])
def test_quantiles_are_scipys(level: float) -> None:
    draw = np.random.default_rng(2)
    count = draw.integers(1, 5000, 100)
    found = np.concatenate([[1, 1, 5000], draw.integers(1, count + 1)])
    rest = np.concatenate([[5000, 1, 1], count]) - found[:103] + 1.0
    rest = np.maximum(rest, 1)
    wanted = special.betaincinv(found, rest, level)
    np.testing.assert_allclose(beta_quantile(level, found, rest), wanted, rtol=1e-12)
    freedom = np.concatenate([[1, 1.5, 2, 1e6], 10 ** draw.uniform(0, 5, 50)])
    wanted = -special.stdtrit(freedom, level / 2)
    np.testing.assert_allclose(
        student_within(1 - level, freedom), wanted, rtol=1e-7 * 1e-9 / level + 1e-12
    )


@pytest.mark.parametrize("count", [1, 2, 3, 12, 101, 1000])
def test_the_fair_binomial_is_that_of_whole_numbers(count: int) -> None:
    """Sums of binomial coefficients, exactly; SciPy's are a tenth as close."""
    total, wanted = 0, []
    for k in range(count):
        total += comb(count, k)
        wanted.append(float(Fraction(total, 2**count)))
    found = binomial_below(np.arange(count), count)
    np.testing.assert_allclose(found, wanted, rtol=5e-13)


def test_the_gamma_distribution_is_scipys_in_every_tail() -> None:
    draw = np.random.default_rng(3)
    shape = 10 ** draw.uniform(-0.5, 4, 200)
    x = shape * np.exp(draw.uniform(-8, 8, 200) / np.sqrt(shape))
    expected = special.gammaincc(shape, x)
    seen = expected > 1e-290
    np.testing.assert_allclose(gamma_above(x, shape)[seen], expected[seen], rtol=1e-11)
    assert gamma_above([0.0, 1e9], 3.0).tolist() == [1.0, 0.0]
    assert np.isnan(gamma_above(1.0, np.nan))
    assert gamma_above(np.ones((0, 2)), 1.0).shape == (0, 2)


CLUSTERS = 30
NAMES = [f"text {n // 2}" for n in range(2 * CLUSTERS)]
"""Two pairs of prompts a text."""


@pytest.fixture(scope="module")
def drawn() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(4)
    b = random.normal(3, 1, len(NAMES))
    return b[:, None] * [0.5, 0.1, 0.0, 0.9, 0.2] + random.normal(0, 1, (len(NAMES), 5)), b


def by_hand(a: list[float], b: list[float]) -> tuple[float, float]:
    """The ratio of two lists' sums, and its standard error."""
    p = sum(a) / sum(b)
    squares = sum((x - p * y) ** 2 for x, y in zip(a, b, strict=True))
    return p, math.sqrt(len(a) / (len(a) - 1) * squares) / abs(sum(b))


def test_one_interval_is_that_of_the_formula(drawn) -> None:
    a, b = drawn
    found = ratios(a, b, NAMES)
    t = stats.t.ppf(0.975, CLUSTERS - 1)
    pairs = [list(b[2 * n : 2 * n + 2]) for n in range(CLUSTERS)]
    for k in range(a.shape[1]):
        sums = [float(a[2 * n, k] + a[2 * n + 1, k]) for n in range(CLUSTERS)]
        p, error = by_hand(sums, [float(sum(pair)) for pair in pairs])
        assert found.value[k] == pytest.approx(p)
        assert found.high[k] - p == pytest.approx(t * error)
        assert p - found.low[k] == pytest.approx(t * error)


@pytest.mark.parametrize("at_once", [2, 2048])
def test_joint_intervals_are_by_the_largest_of_every_draw(
    drawn, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = drawn
    monkeypatch.setattr(under_test, "_AT_ONCE", at_once)
    found = ratios(a, b, NAMES, seed=3)
    names = list(dict.fromkeys(NAMES))
    tops, bottoms = merge_copies(NAMES, a, b)
    worst = []
    for weights in poisson(3, names, REPLICATES):
        # a text drawn three times is there three times, among as many clusters as before
        p = (weights @ tops) / (weights @ bottoms)
        squares = weights @ (tops - p * bottoms[:, None]) ** 2
        error = np.sqrt(CLUSTERS / (CLUSTERS - 1) * squares) / abs(weights @ bottoms)
        worst.append(max(abs(p - found.value) / error))
    width = np.quantile(worst, 0.95, method="higher")
    for k in range(a.shape[1]):
        _, error = by_hand(list(tops[:, k]), list(bottoms))
        assert found.joint_high[k] - found.value[k] == pytest.approx(width * error)
        assert found.joint_low[k] < found.low[k]


def test_too_few_clusters_have_no_interval(drawn) -> None:
    a, b = drawn
    few = 2 * (ENOUGH - 1)
    found = ratios(a[:few], b[:few], NAMES[:few])
    assert np.isnan(found.joint_low).all()
    assert np.isfinite(found.low).all()
    assert np.isnan(ratios(a[:2], b[:2], NAMES[:2]).low).all()


def test_a_mean_is_a_ratio_with_ones_below() -> None:
    values = np.array([1.0, 2.0, 4.0, 7.0, 7.5])
    found, low, high = mean(values, [str(n) for n in range(5)])
    expected = stats.t.interval(0.95, 4, values.mean(), stats.sem(values))
    assert (found, low, high) == pytest.approx((values.mean(), *expected))


def test_ratios_with_denominators_of_their_own_are_each_judged_over_theirs(drawn) -> None:
    """Numbers of rows that some texts lack: those are no clusters of that mean."""
    a, _ = drawn
    rows = np.random.default_rng(5).integers(1, 9, a.shape)
    rows[:20, 1] = a[:20, 1] = 0
    found = ratios(a, rows, NAMES, joint=False)
    for k, lost in ((0, 0), (1, 20)):
        alone = ratios(a[lost:, [k]], rows[lost:, k], NAMES[lost:], joint=False)
        assert (found.low[k], found.high[k]) == pytest.approx((alone.low[0], alone.high[0]))
    assert found.value == pytest.approx(a.sum(0) / rows.sum(0))
    assert np.isnan(found.joint_low).all()


def test_by_hand() -> None:
    values = np.array([[1.0, 0.0], [1.0, 8.0], [4.0, 1.0]])
    places, without = most_moved(lambda some: values[list(some)].mean(0), 3)
    assert places == [2, 1]
    assert without == [1.0, 0.5]


@pytest.mark.parametrize("average", ["trimmed", "median"])  # of few texts none is cut off
def test_it_is_a_run_without_that_text(average: str) -> None:
    """The text left out of the measure, the reference as it was."""
    texts = list(REPEATED[:4])
    asked = {
        "select": "2.0", "average": average, "reference": list(REPEATED[8:12]), "method": "mean",
        "model": "demo-gpt2",
    }  # fmt: skip
    found = av.ablate(texts, stability=True, **asked)
    change = found.effects[0].first
    assert change.one_less is not None
    one = change.one_less
    without = {}
    for number in range(1, 5):
        rest = [text for place, text in enumerate(texts, 1) if place != number]
        without[number] = av.ablate(rest, **asked).effects[0].change
    assert one.change == pytest.approx(without[one.text], abs=1e-4)
    farthest = max(abs(value - change.change) for value in without.values())
    assert abs(one.change - change.change) == pytest.approx(farthest, abs=1e-4)
    assert av.ablate(texts, **asked).effects[0].first.one_less is None
    assert "less one text" in str(found)
