"""Every metric by hand, in float64."""

from __future__ import annotations

from typing import get_args, get_type_hints

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from attnviz.features.knockout.settings import KnockoutSettings
from attnviz.features.patch.words import METRICS as WORDS
from attnviz.interventions.metrics import OF_PAIRS, OF_TEXTS, UNITS, WORSE, Metric, values_of

DRAW = np.random.default_rng(0)
FULL, SEEN = DRAW.normal(size=(2, 5, 11)) * 3
IDS, AGAINST = [1, 4, 10, 0, 7], [2, 2, 3, 5, 6]


def expected(name: str) -> np.ndarray:
    own, rows = log_softmax(SEEN, -1), np.arange(5)
    if name == "kl":
        before = log_softmax(FULL, -1)
        return (np.exp(before) * (before - own)).sum(-1)
    if name == "hidden":
        sizes = np.linalg.norm(FULL, axis=-1) * np.linalg.norm(SEEN, axis=-1)
        return 1 - (FULL * SEEN).sum(-1) / sizes
    if name == "logit-diff":
        return SEEN[rows, IDS] - SEEN[rows, AGAINST]
    likely = own[rows, IDS]
    return {"loss": -likely, "log-prob": likely, "prob": np.exp(likely)}[name]


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize(("width", "close"), [(64, 1e-12), (32, 1e-5)])
def test_values_by_hand(name: str, kind, width: int, close: float) -> None:
    full, seen = (kind(x.astype(f"float{width}")) for x in (FULL, SEEN))
    found = values_of(name, seen, IDS, AGAINST if name == "logit-diff" else None, full)
    assert str(found.dtype).endswith("float64")
    np.testing.assert_allclose(np.asarray(found), expected(name), atol=close)


def test_a_divergence_that_is_all_rounding_is_none() -> None:
    """Its terms cancel: in float32 they would leave 1e-7 of nothing, above 0 or below."""
    seen = (FULL * 10).astype(np.float32)
    assert np.abs(values_of("kl", seen, full=seen)).max() < 1e-15


def test_a_logit_by_itself() -> None:
    np.testing.assert_allclose(values_of("logit-diff", SEEN, IDS), SEEN[np.arange(5), IDS])


def test_a_loss_of_many_rows_is_that_of_each() -> None:
    """A few rows at a time, as whole rows of softmax; on NumPy and on torch."""
    logits = np.random.default_rng(2).normal(0, 3, (40, 8192)).astype(np.float32)
    ids = np.arange(40) * 200
    expected = -log_softmax(logits.astype(np.float64), -1)[np.arange(40), ids]
    for seen in (logits, torch.from_numpy(logits)):
        np.testing.assert_allclose(values_of("loss", seen, ids), expected, atol=1e-5)


def test_one_list_of_names() -> None:
    assert UNITS.keys() == WORSE.keys()
    of_cuts = get_args(get_args(get_type_hints(KnockoutSettings)["metric"])[0])
    assert {*OF_TEXTS, *OF_PAIRS, *of_cuts} == set(UNITS)
    assert set(OF_PAIRS) <= set(WORDS)
    for name in UNITS:
        assert Metric(name).compares == (WORSE[name] == 0)
