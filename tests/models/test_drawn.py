"""The same model before training: on every backend as transformers draws it, and said so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
from attnviz.errors import UsageError
from attnviz.models import pretrained
from attnviz.models.controls import FreshConfig
from attnviz.models.native.source import Native
from attnviz.models.native.weights import NormalDraws
from attnviz.scoring.observe import Recorder
from tests.checkpoints import needs_transformers_5

BACKENDS: tuple[Any, ...] = ("native", "hooked")


def maps(source: Any) -> Any:
    inputs = source.prepare(Prompt("the keys to the cabinet are on the table"))
    recorder = Recorder([inputs], list(source.layout))
    source.forward([inputs], [recorder], ForwardRequest(hidden=False))
    return recorder.maps()


def same(left: Any, right: Any) -> bool:
    return all((left[site] == right[site]).all() for site in left)


@needs_transformers_5
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["demo-gpt2", "demo-bert"])
def test_the_seed_decides_and_the_tokens_stay(name: str, backend: Any) -> None:
    one, again, other = (
        pretrained.load(name, backend=backend, untrained=seed) for seed in (0, 0, 1)
    )
    trained = pretrained.load(name, backend=backend)
    assert one.info.backend == backend
    assert one.info.model == f"{name}, untrained (seed 0)"
    assert one.info.exactness.startswith("random weights, nothing learned; ")
    assert one.no_logits == "its weights are untrained"
    assert one.layout == trained.layout
    prompt = Prompt("the keys to the cabinet")
    assert one.prepare(prompt) == trained.prepare(prompt)
    assert same(maps(one), maps(again))
    assert not same(maps(one), maps(other))
    assert not same(maps(one), maps(trained))


@pytest.mark.parametrize("seed", [0, 7, (5 << 32) + 3])
def test_normal_numbers_are_those_of_torch(seed: int) -> None:
    """Tensor after tensor, whatever their sizes."""
    generator, draws = torch.Generator().manual_seed(seed), NormalDraws(seed)
    for shape in ((128, 32), (7, 5), (16,), (3, 17), (2, 4, 4)):
        theirs = torch.randn(shape, generator=generator).numpy()
        np.testing.assert_allclose(draws.take(*shape), theirs, atol=1e-6, rtol=1e-6)
    assert draws.take(3, 2).shape == (3, 2)


def test_a_drawn_model_is_the_same_without_torch() -> None:
    source = av.load("demo-gpt2", untrained=2)
    for site in source.layout.sites:
        mine, theirs = source.light.output(site).weight, source.output(site).weight
        assert isinstance(mine, np.ndarray)
        assert (mine == theirs.numpy()).all()


@needs_transformers_5
@pytest.mark.parametrize("backend", BACKENDS)
def test_shuffled_weights_have_the_entries_of_the_trained_ones(backend: Any) -> None:
    one, again, other = (
        pretrained.load("demo-bert", backend=backend, untrained=seed, scale="trained")
        for seed in (0, 0, 1)
    )
    trained = pretrained.load("demo-bert", backend=backend)
    assert one.info.model == "demo-bert, shuffled weights (seed 0)"
    assert one.no_logits == "its weights are untrained"
    assert same(maps(one), maps(again))
    assert not same(maps(one), maps(other))
    for site in one.layout.sites:
        mine, theirs = (source.output(site).weight for source in (one, trained))
        assert not torch.equal(mine, theirs)
        assert torch.equal(mine.flatten().sort().values, theirs.flatten().sort().values)


@needs_transformers_5
@pytest.mark.parametrize("name", ["demo-gpt2", "demo-bert"])
def test_native_weights_are_spread_as_transformers_draws_them(name: str) -> None:
    from transformers import AutoConfig, AutoModel

    source = pretrained.load(name, backend="native", untrained=3)
    assert isinstance(source, Native)
    network = source._network
    model = AutoModel.from_config(AutoConfig.from_pretrained(pretrained.locate(name).folder))
    drawn = {key: value.float() for key, value in model.state_dict().items()}
    tensors = network.config.family.tensors
    layer = network.layers[1]
    pairs = {
        "tokens": network.tokens, "positions": network.positions,
        "qkv" if "qkv" in tensors else "query": layer.project[0].weight, "out": layer.out.weight,
        "up": layer.up.weight, "down": layer.down.weight,
    }  # fmt: skip
    for part, mine in pairs.items():
        theirs = drawn[tensors[part].format(1) + ".weight"]
        assert float(mine.std()) == pytest.approx(float(theirs.std()), rel=0.05), part
        assert abs(float(mine.mean())) < 5 * float(mine.std()) / mine.numel() ** 0.5, part
    for affine in (*layer.project, layer.out, layer.up, layer.down):
        assert not affine.bias.any()
    for norm in (network.norm, layer.norm_1, layer.norm_2):
        assert torch.equal(norm.weight, torch.ones_like(norm.weight))
        assert not norm.bias.any()


def test_what_has_no_name_cannot_be_drawn_again() -> None:
    with pytest.raises(UsageError, match="not a fresh layer"):
        av.load(FreshConfig(), untrained=0)
    with pytest.raises(UsageError, match="not a loaded one"):
        av.load(av.load("demo-bert"), untrained=0)


def test_the_random_numbers_of_others_stay_as_they_are() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    for backend in BACKENDS:
        pretrained.load("demo-bert", backend=backend, untrained=0)
    assert torch.equal(torch.rand(3), expected)
