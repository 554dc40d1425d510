"""Quantiles from bins, and counts from a sketch, beside sorting and counting."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

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
