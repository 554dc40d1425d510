"""Joint intervals are made by what varies: rounding has no vote in them, whoever computes them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from attnviz.statistics.order import ROUNDING
from attnviz.statistics.ratios import ratios
from attnviz.statistics.simultaneous import largest, off, width

Ends = tuple[np.ndarray, np.ndarray]
"""Of the joint intervals."""

TEXTS, REAL, MORE = 60, 8, 4
NAMES = [f"text {n}" for n in range(TEXTS)]


def by_ratios(values: np.ndarray) -> Ends:
    judged = ratios(values, np.random.default_rng(2).gamma(4, 1, len(values)), NAMES)
    return judged.joint_low, judged.joint_high


def by_means(values: np.ndarray) -> Ends:
    judged = ratios(values * 20, np.full(len(values), 20), NAMES, size=values[:, :1] * 20)
    return judged.joint_low, judged.joint_high


ALL = pytest.mark.parametrize("joint", [by_ratios, by_means])


@pytest.fixture(scope="module")
def real() -> np.ndarray:
    return np.random.default_rng(1).standard_t(6, (TEXTS, REAL))


def length(ends: Ends) -> np.ndarray:
    return ends[1] - ends[0]


@ALL
@pytest.mark.parametrize("size", [0.0, 1e-12, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6])
@pytest.mark.parametrize("level", [0.0, 0.3])
def test_columns_of_noise_widen_no_interval(
    joint: Callable[[np.ndarray], Ends], size: float, level: float, real: np.ndarray
) -> None:
    """No more than as many columns without an effect do, whatever numbers they are rounded from."""
    noise = np.random.default_rng(4).normal(size=(TEXTS, MORE))
    alone = length(joint(real))
    with_noise = length(joint(np.hstack([real, level + size * noise])))[:REAL]
    with_nulls = length(joint(np.hstack([real, noise])))[:REAL]
    most = max(1.05, (with_nulls / alone).max())
    assert (with_noise >= alone * 0.999).all()
    assert (with_noise <= alone * most * 1.001).all()


@ALL
@pytest.mark.parametrize("size", [0.0, 1e-10, 1e-8])
def test_what_few_texts_make_widens_no_other_interval(
    joint: Callable[[np.ndarray], Ends], size: float, real: np.ndarray
) -> None:
    """A draw without these texts is off by many errors, which are rounding: it is not known."""
    few = np.random.default_rng(5).normal(size=(TEXTS, 2)) * size
    few[:2] += np.linspace(1, 2, 2)[:, None]
    alone, ends = length(joint(real)), joint(np.hstack([real, few]))
    np.testing.assert_allclose(length(ends)[:REAL], alone, rtol=1e-6)
    assert np.isnan(ends[0][REAL:]).all()
    assert np.isnan(ends[1][REAL:]).all()


@ALL
def test_other_rounding_gives_the_same_intervals(joint: Callable[[np.ndarray], Ends]) -> None:
    """Effects that in some heads a few texts make: float32's rounding, drawn twice, and none."""
    draw = np.random.default_rng(6)
    sizes = np.exp(draw.normal(0, [1.0] * 6 + [30.0] * 3, (TEXTS, 9)))
    values = sizes / sizes.max(0)
    rounded = [values + draw.normal(size=values.shape) * 1e-7 for _ in range(2)]
    exact, first, second = (length(joint(some))[:6] for some in (values, *rounded))
    np.testing.assert_allclose(first, exact, rtol=0.02)
    np.testing.assert_allclose(second, exact, rtol=0.02)


@ALL
def test_intervals_of_nothing_hold_beside_rounding(joint: Callable[[np.ndarray], Ends]) -> None:
    """No mean is above or below 0: 19 of 20 families say so, of every mean that varies."""
    held = []
    for trial in range(100):
        draw = np.random.default_rng([7, trial])
        null = draw.standard_t(6, (TEXTS, REAL))
        rare = (draw.random((TEXTS, 2)) < 0.03) * draw.normal(size=(TEXTS, 2))
        still = np.zeros((TEXTS, 2))
        noise = draw.normal(size=(TEXTS, 3)) * [1e-10, 1e-8, 1e-6]
        low, high = joint(np.hstack([null, still, rare + 1e-8 * noise[:, :2], noise]))
        assert np.isfinite(low[:REAL]).all()
        assert (high - low)[:REAL].max() < 100  # of the rare, some are in most draws
        known = ~np.isnan(low)
        assert not known[REAL : REAL + 2].any()
        held.append(bool(((low <= 0) & (high >= 0))[known].all()))
    assert np.mean(held) >= 0.91


def test_a_share_that_is_the_same_everywhere_but_for_rounding_has_no_vote(real: np.ndarray) -> None:
    """All heads together restore everything: 1 in every pair, but for float32."""
    b = np.random.default_rng(2).gamma(4, 1, TEXTS)
    whole = b * (1 + 1e-8 * np.random.default_rng(8).normal(size=TEXTS))
    judged = ratios(np.hstack([real, whole[:, None]]), b, NAMES)
    alone = ratios(real, b, NAMES)
    np.testing.assert_allclose(judged.joint_low[:REAL], alone.joint_low)
    assert judged.value[REAL] == pytest.approx(1)
    assert np.isnan([judged.low[REAL], judged.joint_low[REAL]]).all()


def test_small_effects_are_no_rounding(real: np.ndarray) -> None:
    """What is small everywhere is judged as what is large, in whatever unit it is measured."""
    low, high = by_means(real)
    least, most = by_means(real * 1e-5)
    np.testing.assert_allclose(least, low * 1e-5, rtol=1e-5)
    np.testing.assert_allclose(most, high * 1e-5, rtol=1e-5)


def test_rounding_that_is_known_counts() -> None:
    """Of an effect that is a difference of losses, the losses' rounding is the feature's to say."""
    values = np.random.default_rng(9).normal(size=(TEXTS, 2)) * [1.0, 1e-3]
    for texts in (TEXTS, 15):
        some = values[:texts] * 20, np.full(texts, 20), NAMES[:texts]
        known = ratios(*some, size=np.zeros(texts), rounding=1e-3, few=True)
        assert np.isfinite(known.joint_low).tolist() == [True, False]
        assert np.isfinite(known.low).tolist() == [True, False]
        assert np.isfinite(known.adjusted).tolist() == [True, False]


def test_by_hand_which_means_take_part() -> None:
    """Of a hundred draws five may be beyond the quantile: the mean that is in nine is left out."""
    each = np.tile(np.arange(100.0)[:, None], (1, 3))
    each[:4, 1] = np.inf
    each[:9, 2] = np.inf
    for at_once in (1, 2, 3):
        most, part = largest(lambda some: each[:, some], np.arange(3), 0.95, at_once)
        assert part.tolist() == [0, 1]
        assert np.isinf(most).sum() == 4
        assert width(most, 0.95) == 99
    assert len(largest(lambda some: each[:, some], np.arange(0), 0.95, 2)[0]) == 0
    assert np.isnan(width(np.zeros(0), 0.95))
    error, least = np.array([[1.0, 0.4, 0.4, np.nan]]), np.ones(4)
    apart = np.array([[3.0, 3.0, 0.9, np.nan]])
    assert off(apart, error, least).tolist() == [[3.0, np.inf, 0.0, 0.0]]
    assert 7e-6 < ROUNDING < 8e-6
