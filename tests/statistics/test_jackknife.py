"""What an estimate is without the text that moves it most."""

from __future__ import annotations

import numpy as np
import pytest

import attnviz as av
from attnviz.statistics.order import most_moved
from tests.repeated import REPEATED


def test_by_hand() -> None:
    values = np.array([[1.0, 0.0], [1.0, 8.0], [4.0, 1.0]])
    places, without = most_moved(lambda some: values[list(some)].mean(0), 3)
    assert places == [2, 1]
    assert without == [1.0, 0.5]


@pytest.mark.parametrize("average", ["trimmed", "mean", "median"])
def test_it_is_a_run_without_that_text(average: str) -> None:
    """The text left out of the measure, the reference as it was."""
    texts = list(REPEATED[:8])
    asked = {
        "select": "2.0",
        "average": average,
        "reference": list(REPEATED[8:]),
        "method": "mean",
        "model": "demo-gpt2",
    }
    found = av.ablate(texts, stability=True, **asked)
    change = found.effects[0].first
    assert change.one_less is not None
    one = change.one_less
    without = {}
    for number in range(1, 9):
        rest = [text for place, text in enumerate(texts, 1) if place != number]
        without[number] = av.ablate(rest, **asked).effects[0].change
    assert one.change == pytest.approx(without[one.text], abs=1e-4)
    farthest = max(abs(value - change.change) for value in without.values())
    assert abs(one.change - change.change) == pytest.approx(farthest, abs=1e-4)
    assert av.ablate(texts, **asked).effects[0].first.one_less is None
    assert "less one text" in str(found)
