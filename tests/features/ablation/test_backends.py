"""Ablation through the hooks: grouped keys, encoder, decoder and cross heads apart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.captures import trials
from attnviz.core.source import ForwardRequest, Gate
from attnviz.errors import ModelError
from attnviz.features.ablation import fills as filling
from attnviz.features.ablation import measure
from attnviz.interventions import metrics
from attnviz.interventions.metrics import check
from attnviz.interventions.sweep import ablations, sweep_trials
from attnviz.models import pretrained
from attnviz.scoring.select import every_head
from tests.models.tiny import build, hooked_only, inputs_of

FAMILIES = ("gpt2", "bert", "llama", "t5", "bart")
IDS, TARGET = (5, 9, 3, 7, 9, 3, 11), (4, 8, 4, 6)


@pytest.fixture(params=FAMILIES, scope="module")
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp(request.param)
    build(request.param, folder, 3.0, words=True)
    source = pretrained.load(str(folder), backend="hooked")
    hooked_only(source)
    return source


def swept(source, tested, groups, metric, *, fills=None, **options):
    """The metric without each group: of each, for every trial [n]."""
    without = ablations(source, groups, len(tested), fills)
    values = sweep_trials(source, tested, without, metric, **options)
    return [list(map(torch.from_numpy, of_group)) for of_group in values]


def passed(source, inputs, group, *, fills=None, **request):
    """A whole pass without one head, whose gate is shut or filled."""
    (head,) = group.heads
    share = torch.ones(source.layout.heads[head.site.kind][head.layer])
    share[head.index] = 0
    gate = Gate(share, None if fills is None else fills[head.site])
    return source.forward([inputs], request=ForwardRequest(gates={head.site: gate}, **request))


def test_every_head_equals_a_whole_gated_pass(source) -> None:
    metric = metrics.KL if source.layout.kinds == ("decoder",) else metrics.HIDDEN
    inputs = inputs_of(source, IDS, TARGET)
    (trial,) = trials.everywhere(0, inputs)
    groups = every_head(source.layout)
    values = swept(source, [trial], groups, metric)
    full = source.forward([inputs], request=ForwardRequest(logits=metric.logits))
    for number, group in enumerate(groups):
        changed = passed(source, inputs, group, logits=metric.logits)
        (expected,) = metric.of(full, changed, [trial])
        torch.testing.assert_close(values[number][0], expected[0], atol=1e-5, rtol=1e-3)


@pytest.mark.parametrize("at", [(0,), (1, 2), (0, 3)])
def test_logits_at_some_positions_are_those_of_all(source, at) -> None:
    if source.no_logits:
        pytest.skip("no LM head")
    inputs = inputs_of(source, IDS, TARGET)
    whole = source.forward([inputs], request=ForwardRequest(logits=True)).logits
    some = source.forward([inputs], request=ForwardRequest(logits=True, logits_at=at)).logits
    torch.testing.assert_close(some, whole[:, list(at)], atol=1e-5, rtol=1e-5)
    ends = np.array(at[-1:])  # the last layer may go on there alone
    one = source.forward([inputs], request=ForwardRequest(logits=True, hidden=False, ends=ends))
    torch.testing.assert_close(one.logits, whole[:, list(at[-1:])], atol=1e-5, rtol=1e-5)
    whole = source.forward([inputs]).hidden
    hidden = source.forward([inputs], request=ForwardRequest(ends=ends)).hidden
    torch.testing.assert_close(hidden, whole[:, list(at[-1:])], atol=1e-5, rtol=1e-5)


def test_fills_have_the_length_of_their_own_side(source) -> None:
    """Encoder and decoder of other lengths, each filled by position."""
    inputs, other = inputs_of(source, IDS, TARGET), inputs_of(source, IDS[::-1], TARGET[::-1])
    (trial,) = trials.everywhere(0, inputs)
    pool = filling.given(source, [other], 1, "positions", "another text")
    groups, full = every_head(source.layout)[::3], source.forward([inputs])  # of every layer
    for fills in (pool.means([trial]), pool.resampled(source, [trial], 0, 0)):
        values = swept(source, [trial], groups, metrics.HIDDEN, fills=fills)
        for number, group in enumerate(groups):
            changed = passed(source, inputs, group, fills=fills)
            (expected,) = metrics.HIDDEN.of(full, changed, [trial])
            torch.testing.assert_close(values[number][0], expected[0], atol=1e-5, rtol=1e-3)


def test_losses_have_gradients(source) -> None:
    if trials.is_masked(source):
        pytest.skip("the tiny model has no mask token")
    (trial,) = trials.next_tokens(0, inputs_of(source, IDS, TARGET))
    found = measure.gradients(source, [trial], metrics.LOSS)
    assert found.shape == (1, len(source.layout))
    assert found.isfinite().all()
    assert (found != 0).any()


def test_models_that_compute_attention_themselves(tmp_path: Path) -> None:
    build("falcon", tmp_path, words=True)
    source = av.load(str(tmp_path))
    assert source.info.backend == "eager"
    with pytest.raises(ModelError, match=r"cannot be ablated: .* code of their own"):
        check(source, metrics.LOSS)
