"""Ratios of sums over clusters against their formulas, written out one by one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from attnviz.statistics import ratios as under_test
from attnviz.statistics.clusters import merge_copies
from attnviz.statistics.ratios import mean, ratios
from attnviz.statistics.simultaneous import ENOUGH, REPLICATES, poisson

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
