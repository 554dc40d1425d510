"""What rounding does to shares and their intervals: nothing that can be seen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

import attnviz as av
from attnviz.features.patch.function import patch
from attnviz.features.patch.pairs import PreparedPair, prepare, task_pairs
from attnviz.features.patch.result import Patch
from attnviz.features.patch.runs import PairMetric


@pytest.fixture(scope="module")
def gpt2() -> Any:
    return av.load("demo-gpt2")


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
@pytest.mark.parametrize("apart", [1e-4, 1e-2, 1.0])
def test_a_small_distance_is_that_of_float64(gpt2: Any, kind: Any, apart: float) -> None:
    """At 1e-4 the distances are 5e-9 nats, where sums over the vocabulary in float32 have 1e-6."""
    draw = np.random.default_rng(0)
    ready = prepare(gpt2, task_pairs(gpt2, "gender", 3, 0)[0])
    clean = draw.normal(0, 4, (3, 2000)).astype(np.float32)
    logits = (np.tile(clean, (2, 1)) + apart * draw.normal(size=(6, 2000))).astype(np.float32)
    distances = PairMetric("kl", "nats").of(kind(logits), kind(clean), ready)
    before = np.tile(log_softmax(clean.astype(np.float64), -1), (2, 1))
    after = log_softmax(logits.astype(np.float64), -1)
    expected = (np.exp(before) * (before - after)).sum(-1)
    np.testing.assert_allclose(np.asarray(distances), expected, rtol=1e-6)
    assert (np.asarray(distances) > 0).all()


@pytest.mark.parametrize(
    ("task", "count"), [("gender", 24), pytest.param("agreement", 24, marks=pytest.mark.slow)]
)
def test_joint_intervals_do_not_hang_on_rounding(
    gpt2: Any, task: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Logits off by some units in float32's last place: the widest interval stays as wide."""
    whole = PairMetric.of

    def results(unit: float) -> Patch:
        draw = np.random.default_rng(1)

        def of(metric: PairMetric, logits: Any, clean: Any, pairs: Sequence[PreparedPair]) -> Any:
            noise = 1 + unit * draw.standard_normal(logits.shape)
            return whole(metric, (logits * noise).astype(logits.dtype), clean, pairs)

        monkeypatch.setattr(PairMetric, "of", of)
        return patch(task=task, count=count, model=gpt2, component="pattern", metric="kl")

    exact, rounded = results(0.0), results(4 * 2.0**-23)
    for effect, other in zip(exact.effects, rounded.effects, strict=True):
        for share, again in ((effect.denoise, other.denoise), (effect.noise, other.noise)):
            assert share is not None
            assert again is not None
            assert again.share == pytest.approx(share.share, abs=1e-5)
            if share.joint_low is None or again.joint_low is None:
                continue
            width, wide = ((x.joint_high or 0.0) - (x.joint_low or 0.0) for x in (share, again))
            assert wide == pytest.approx(width, rel=0.03)
    known = [share.joint_low for effect in exact.effects for share in (effect.denoise, effect.noise)
             if share is not None]  # fmt: skip
    assert sum(low is not None for low in known) >= 44
