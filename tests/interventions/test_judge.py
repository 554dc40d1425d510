"""Effects of many interventions, judged as one family."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from attnviz.interventions.judge import judge
from attnviz.statistics.order import medians

DRAW = np.random.default_rng(1)


def test_the_typical_text_and_the_mean_of_all_rows() -> None:
    rows = DRAW.integers(1, 9, 40)
    sums = DRAW.normal(1, 2, (40, 3)) * rows[:, None]
    found = judge(sums, rows, [str(n) for n in range(40)])
    own = medians(sums / rows[:, None])
    for n in range(3):
        one = found[n]
        assert one.value == np.median(sums[:, n] / rows)
        assert (one.low, one.high) == (own.low[n], own.high[n])
        assert (one.joint_low, one.joint_high) == (own.joint_low[n], own.joint_high[n])
        assert one.joint_low < one.low < one.value < one.high < one.joint_high
        assert one.mean == pytest.approx(sums[:, n].sum() / rows.sum())
        assert one.mean_low < one.mean < one.mean_high
        assert one.sure is (one.joint_low > 0 or one.joint_high < 0)


def test_copies_count_once() -> None:
    values = DRAW.normal(1, 1, (20, 2))
    twice = np.concatenate([values, values[:5]])
    names = [str(n) for n in [*range(20), *range(5)]]
    once, again = (judge(x, np.ones(len(x), np.int64), names[: len(x)]) for x in (values, twice))
    for n in range(2):
        assert (again[n].value, again[n].joint_low) == (once[n].value, once[n].joint_low)


def test_a_text_without_such_an_effect_is_left_out() -> None:
    values, there = DRAW.normal(1, 1, (30, 2)), np.ones((30, 2), np.int64)
    values[10:, 1], there[10:, 1] = 0.0, 0
    names = [str(n) for n in range(30)]
    found, alone = judge(values, there, names), judge(values[:10], there[:10], names[:10])
    assert found[1].value == alone[1].value
    assert found[1].mean == pytest.approx(values[:10, 1].mean())


def test_shares_of_what_there_is_to_do() -> None:
    """A pair with nothing to do has no share of its own, and its change is in the sums."""
    gaps, changes = DRAW.normal(5, 1, 25), DRAW.normal(2, 1, (25, 1))
    gaps[3] = 1e-9
    found = judge(changes, gaps, [str(n) for n in range(25)])[0]
    known = np.arange(25) != 3
    assert found.value == np.median(changes[known, 0] / gaps[known])
    assert found.mean == pytest.approx(changes.sum() / gaps.sum())


def test_too_few_texts_have_no_interval() -> None:
    one = judge(np.ones((2, 1)), np.ones(2, np.int64), ["a", "b"])[0]
    assert (one.value, one.low, one.joint_low, one.mean_low, one.sure) == (1.0, *[None] * 4)


def test_in_how_many_texts_an_effect_is_of_interest() -> None:
    """0.01 in three of twenty texts, -0.02 in one, a text without such an effect; by hand."""
    changes = np.zeros((20, 2))
    changes[:3, 0], changes[3, 0] = 0.01, -0.02
    there = np.ones((20, 2), np.int64)
    there[19, 0] = 0
    found = judge(changes, there, [str(n) for n in range(20)])
    (up, down), nothing = found.often(np.array([0.01, 0.0]))
    assert nothing is None
    assert (up.texts, down.texts) == (3, 1)
    for one in (up, down):
        exact = binomtest(one.texts, 19).proportion_ci(1 - 2 * 0.05 / 4).low
        assert one.least == pytest.approx(exact, abs=1e-9)
