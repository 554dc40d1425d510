"""Sums in any order, Student's t, ratio estimates with intervals, and all of them at once."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from attnviz.statistics.clusters import (
    ClusterSums,
    factor,
    half_width,
    half_widths,
    merge_copies,
    summable,
)
from attnviz.statistics.distributions import student_above
from attnviz.statistics.histogram import BINS, Exact, Spread
from attnviz.statistics.order import ROUNDING
from attnviz.statistics.ratios import ratios
from attnviz.statistics.simultaneous import Bootstrap, joint_widths, off, poisson


def test_sums_are_exact_and_the_same_in_any_order() -> None:
    draw = np.random.default_rng(0)
    values = draw.normal(size=(3000, 4)) * 10.0 ** draw.integers(-6, 7, size=(3000, 4))
    whole = Exact((4,))
    whole.add(values)
    expected = [math.fsum(column) for column in values.T]
    np.testing.assert_allclose(whole.value(), expected, rtol=1e-14, atol=3000 * 2.0**-53)
    for _ in range(3):
        order = draw.permutation(len(values))
        parts = []
        for some in np.split(order, sorted(draw.integers(1, 2999, size=5))):
            part = Exact((4,))
            part.add(values[some])
            parts.append(part)
        merged = Exact((4,))
        for part in parts:
            merged.merge(part)
        assert (merged.whole == whole.whole).all()
        assert (merged.part == whole.part).all()
    assert values.sum(0).tolist() != values[::-1].sum(0).tolist()  # what floats would do


def test_a_sum_of_small_numbers_is_not_lost_beside_a_large_one() -> None:
    sums = Exact((1,))
    sums.add(np.array([[2.0**40], [2.0**-50], [-(2.0**40)]]))
    assert sums.value()[0] == 2.0**-50
    sums.add(np.array([[-1e-30]]))
    assert sums.value()[0] == 2.0**-50


def test_students_t_of_one_number_is_that_of_the_textbooks_and_needs_a_degree_of_freedom() -> None:
    found = half_width(10), half_width(3, 0.99)
    assert found == pytest.approx((2.228, 5.841), abs=5.1e-4)
    with pytest.raises(ValueError, match="freedom 0"):
        half_width(0)
    assert np.isnan(half_widths([0, np.nan, 4])).tolist() == [True, True, False]


def test_students_t_is_scipys_in_every_tail() -> None:
    draw = np.random.default_rng(0)
    freedom = np.concatenate([1 + 3 * draw.random(200), 10 ** draw.uniform(0, 9, 200), [1e15]])
    t = 10 ** draw.uniform(-8, 1.7, len(freedom))
    expected = special.stdtr(freedom, -t)
    seen = expected > 1e-290
    assert expected[seen].min() < 1e-100
    np.testing.assert_allclose(student_above(t, freedom)[seen], expected[seen], rtol=1e-12)
    np.testing.assert_allclose(student_above(-t, freedom), special.stdtr(freedom, t), rtol=1e-12)
    for level in (0.01, 0.5, 0.95, 1 - 0.05 / 5000):
        quantiles = special.stdtrit(freedom, (1 + level) / 2)
        np.testing.assert_allclose(half_widths(freedom, level), quantiles, rtol=1e-9)
        np.testing.assert_allclose(2 * student_above(quantiles, freedom), 1 - level, rtol=1e-9)


def test_students_t_of_what_has_no_error_or_is_unknown() -> None:
    assert student_above([np.inf, -np.inf, 0], 3).tolist() == pytest.approx([0, 1, 0.5])
    assert np.isnan(student_above([np.nan, 1, np.inf], [3, 0.5, np.nan])).all()
    assert student_above(2, np.inf) == pytest.approx(special.ndtr(-2))
    assert half_widths(np.zeros((0, 3))).shape == (0, 3)


def test_a_ratio_and_its_interval_by_hand() -> None:
    """Three texts: 2 of 4 rows, 3 of 4, 1 of 2: p = 6/10; residuals -0.4, 0.6, -0.2."""
    sums = ClusterSums((1,))
    sums.add(np.array([[2.0], [3.0], [1.0], [0.0]]), np.array([[4], [4], [2], [0]]))
    assert sums.count[0] == 3  # the text without rows is no text
    assert sums.mean()[0] == pytest.approx(0.6)
    variance = 3 / 2 * (0.4**2 + 0.6**2 + 0.2**2) / 100
    assert sums.error()[0] == pytest.approx(math.sqrt(variance))
    assert np.isnan(sums.half()[0])  # three texts do not tell how much texts differ
    sums.add(np.array([[2.0], [0.0]]), np.array([[4], [0]]))
    sums.add(np.array([[1.0]]), np.array([[2]]))
    assert sums.count[0] == 5
    p = 9 / 16
    squares = 2 * (2 - 4 * p) ** 2 + (3 - 4 * p) ** 2 + 2 * (1 - 2 * p) ** 2
    assert sums.half()[0] == pytest.approx(2.776445 * math.sqrt(5 / 4 * squares) / 16, rel=1e-6)


def test_nothing_is_claimed_from_one_text_or_none() -> None:
    sums = ClusterSums((2,))
    sums.add(np.array([[1.0, 0.0]]), np.array([[2, 0]]))
    assert sums.mean()[0] == 0.5
    assert np.isnan(sums.mean()[1])
    assert np.isnan(sums.half()).all()


def test_sums_that_are_no_numbers_or_too_large_are_told_apart() -> None:
    """Whole numbers of 64 bits hold sums of squares up to 2⁶²; beyond them nothing is exact."""
    a = np.array([[1.0, 2.0], [1.0, np.nan], [np.inf, 1.0], [-1e200, 1.0], [2.0**31, 0.0],
                  [2.0**30, 2.0**30], [2.0**40, 0.0]])  # fmt: skip
    b = np.array([[3, 0]] * 6 + [[2**22, 0]])
    with np.errstate(all="raise"):
        assert summable(a, b).tolist() == [True, False, False, False, False, True, False]
        for row in (0, 5):
            sums = ClusterSums.of(a[row][:, None], b[row][:, None])
            assert sums.aa.value() == (a[row] ** 2).sum()


def test_parts_of_clusters_add_up() -> None:
    draw = np.random.default_rng(1)
    b = draw.integers(0, 9, size=(50, 3))
    a = draw.random((50, 3)) * b
    whole, left, right = ClusterSums((3,)), ClusterSums((3,)), ClusterSums((3,))
    whole.add(a, b)
    left.add(a[:17], b[:17])
    right.add(a[17:], b[17:])
    right.merge(left)
    for name in ("mean", "error", "half"):
        assert (getattr(right, name)() == getattr(whole, name)()).all()


def texts(draw: np.random.Generator, shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Texts of 1 to 40 rows whose scores depend on the text and on its length."""
    b = draw.integers(1, 41, size=shape)
    share = draw.beta(1 + b / 20, 3)
    return draw.binomial(b, share).astype(float), b


def test_the_interval_covers_what_it_says() -> None:
    draw = np.random.default_rng(2)
    a, b = texts(draw, (400_000,))
    truth = a.sum() / b.sum()
    sums = ClusterSums((2000,))
    sums.add(*texts(draw, (200, 2000)))
    held = np.abs(sums.mean() - truth) <= sums.half()
    assert 0.935 <= held.mean() <= 0.965


def test_poisson_weights_follow_the_text_alone() -> None:
    many = poisson(0, [f"text {n}" for n in range(300)], 400)
    assert many.mean() == pytest.approx(1, abs=0.01)
    assert many.var() == pytest.approx(1, abs=0.02)
    assert (many == 0).mean() == pytest.approx(math.exp(-1), abs=0.005)
    assert (poisson(0, ["text 7"], 400)[:, 0] == many[:, 7]).all()
    assert (poisson(1, ["text 7"], 400)[:, 0] != many[:, 7]).any()
    assert abs(np.corrcoef(many[:, 0], many[:, 1])[0, 1]) < 0.2


def test_all_intervals_hold_at_once() -> None:
    """Forty means at a time: 95 of 100 times all of them hold, where single intervals fail."""
    draw = np.random.default_rng(3)
    a, b = texts(draw, (400_000,))
    truth = a.sum() / b.sum()
    together = alone = 0
    for trial in range(100):
        a, b = texts(draw, (100, 40))
        sums, drawn = ClusterSums((40,)), Bootstrap((40,), trial, 300)
        sums.add(a, b)
        drawn.add([f"{n}" for n in range(100)], a, b)
        off = np.abs(sums.mean() - truth)
        together += bool((off <= drawn.widths(sums) * sums.error()).all())
        alone += bool((off <= sums.half()).all())
    assert alone < 30
    assert together >= 89


def test_the_bootstrap_adds_up_to_the_bit_and_is_exact() -> None:
    draw = np.random.default_rng(4)
    a, b = texts(draw, (90, 3))
    a = a * np.array([1.0, 1e-3, 1e6])
    names = [f"{n}" for n in range(90)]
    whole, left, right = (Bootstrap((3,), 5, 50) for _ in range(3))
    whole.add(names, a, b)
    left.add(names[:31], a[:31], b[:31])
    right.add(names[31:], a[31:], b[31:])
    left.merge(right)
    assert (left.b == whole.b).all()
    assert (left.bb == whole.bb).all()
    weights = poisson(5, names, 50)
    for name, values in (("a", a), ("aa", a * a), ("ab", a * b)):
        sums = getattr(whole, name)
        assert (sums.whole == getattr(left, name).whole).all()
        assert (sums.part == getattr(left, name).part).all()
        np.testing.assert_allclose(sums.value(), weights @ values, rtol=1e-6, atol=1e-5)
    assert (whole.b == weights @ b).all()
    assert (whole.bb == weights @ (b * b)).all()


def test_a_bootstrap_needs_enough_texts() -> None:
    sums, drawn = ClusterSums((2,)), Bootstrap((2,), 0, 20)
    a, b = texts(np.random.default_rng(5), (19, 2))
    sums.add(a, b)
    drawn.add([str(n) for n in range(19)], a, b)
    assert np.isnan(drawn.widths(sums)).all()


def test_quartiles_to_the_width_of_a_bin() -> None:
    draw = np.random.default_rng(6)
    values = np.stack([draw.random(501), draw.random(501) * 20, np.full(501, np.nan)], axis=1)
    values[::3, 1] = np.nan
    tops = np.array([1.0, 16.0, 1.0])
    whole, other = Spread(tops), Spread(tops)
    whole.add(values[:200])
    other.add(values[200:])
    whole.merge(other)
    found = whole.quantiles()
    for column, top in ((0, 1.0), (1, 16.0)):
        exact = np.nanquantile(
            values[:, column].clip(max=top), (0.25, 0.5, 0.75), method="inverted_cdf"
        )
        np.testing.assert_allclose(found[:, column], exact, atol=2 * top / BINS)
    assert np.isnan(found[:, 2]).all()


def test_texts_that_do_not_differ_have_no_interval() -> None:
    """Sixty copies of a line, or the same share in every document: a width of 0 says nothing."""
    a, b = np.full((60, 2), 7.53), np.full((60, 2), 10)
    a[:, 1] *= 1 + 1e-8 * np.arange(60)  # but for rounding
    sums = ClusterSums.of(a, b)
    assert sums.mean() == pytest.approx([0.753, 0.753])
    assert np.isnan(sums.half()).all()
    assert not sums.known().any()


def test_copies_make_texts_fewer_and_intervals_wider() -> None:
    """Ten texts, each there four times, say as much as the ten, by words or by number."""
    draw = np.random.default_rng(7)
    a, b = texts(draw, (10, 3))
    alone = ClusterSums.of(a, b)
    names = [n % 10 for n in range(40)]
    assert factor(np.full(10, 4)) == 4
    counted = ClusterSums.of(np.tile(a, (4, 1)), np.tile(b, (4, 1)))
    np.testing.assert_allclose(counted.mean(), alone.mean())
    bessel = np.sqrt(40 / 39 / (10 / 9))  # G/(G-1) is that of all forty
    np.testing.assert_allclose(counted.half(copies=4), alone.half() * bessel)
    put = ClusterSums.of(*merge_copies(names, np.tile(a, (4, 1)), np.tile(b, (4, 1))))
    np.testing.assert_allclose(put.half(), alone.half())
    assert factor([1, 1, 1]) == 1
    assert np.isnan(counted.half(copies=40 / 3)).all()  # three different texts are too few


def test_each_draw_is_measured_by_its_own_error() -> None:
    """The statistic of one draw, recomputed: (p* - p) / se*, both of the drawn texts."""
    draw = np.random.default_rng(8)
    a, b = texts(draw, (30, 2))
    names = [f"{n}" for n in range(30)]
    sums, drawn = ClusterSums.of(a, b), Bootstrap((2,), 9, 25)
    drawn.add(names, a, b)
    found = drawn.off(sums, np.ones(2, np.bool_))
    p = a.sum(0) / b.sum(0)
    for weights, drawn_off in zip(poisson(9, names, 25), found, strict=True):
        some = np.repeat(np.arange(30), weights.astype(int))
        ratio = a[some].sum(0) / b[some].sum(0)
        error = np.sqrt(30 / 29 * ((a[some] - ratio * b[some]) ** 2).sum(0)) / b[some].sum(0)
        np.testing.assert_allclose(drawn_off, np.abs(ratio - p) / error, rtol=1e-5)


def test_scores_that_few_texts_have_do_not_widen_the_others() -> None:
    draw = np.random.default_rng(10)
    a, b = texts(draw, (120, 6))
    often = Bootstrap((6,), 0, 400)
    often.add([f"{n}" for n in range(120)], a, b)
    alone = often.widths(ClusterSums.of(a, b))
    few = draw.random((120, 1)) < 0.25
    rare_a, rare_b = a[:, :1] ** 3 * few, np.where(few, 1, 0)
    a, b = np.hstack([a, rare_a]), np.hstack([b, rare_b])
    both, sums = Bootstrap((7,), 0, 400), ClusterSums.of(a, b)
    both.add([f"{n}" for n in range(120)], a, b)
    widths = both.widths(sums)
    common, rare = both.families(sums)
    assert common.tolist() == [True] * 6 + [False]
    assert rare.tolist() == [False] * 6 + [True]
    assert len(set(widths[:6])) == 1
    assert alone[0] <= widths[0] < 1.4 * alone[0]  # 97.5 % in place of 95 %, no more


def test_a_mean_takes_part_from_twenty_texts_on() -> None:
    draw = np.random.default_rng(11)
    a, b = texts(draw, (60, 4))
    for column, count in enumerate((19, 20, 44, 45)):  # rare: fewer than 3/4 of 45
        a[count:, column], b[count:, column] = 0, 0
    sums = ClusterSums.of(a, b)
    common, rare = Bootstrap((4,), 0, 1).families(sums)
    assert common.tolist() == [False, False, True, True]
    assert rare.tolist() == [False, True, False, False]
    common, rare = Bootstrap((4,), 0, 1).families(sums, 2.0)  # every text twice
    assert (common | rare).tolist() == [False, False, True, True]


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
    for trial in range(60):
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
    families = [np.ones(3, bool), np.zeros(3, bool)]
    for at_once in (1, 2, 3):
        [(means, maxima, width)] = joint_widths(lambda ids: each[:, ids], families, 0.95, at_once)
        assert means.tolist() == [0, 1]
        assert np.isinf(maxima).sum() == 4
        assert width == 99
    error, least = np.array([[1.0, 0.4, 0.4, np.nan]]), np.ones(4)
    apart = np.array([[3.0, 3.0, 0.9, np.nan]])
    assert off(apart, error, least).tolist() == [[3.0, np.inf, 0.0, 0.0]]
    assert 7e-6 < ROUNDING < 8e-6
