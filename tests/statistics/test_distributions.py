"""Distributions beside SciPy's and beside whole numbers, in the middle and in every tail."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import numpy as np
import pytest
from scipy import special

from attnviz.statistics.distributions import (
    beta_below,
    beta_quantile,
    binomial_below,
    gamma_above,
    student_within,
)


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
