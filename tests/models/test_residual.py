"""The residual stream as a sum: the identities that logits rest on, and models that refuse them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers
from torch import Tensor

import attnviz as av
from attnviz.attention import contributions
from attnviz.attention.contributions import Writes
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import ForwardRequest, Rows, Source
from attnviz.errors import ModelError
from attnviz.features.patch.runs import PatchBench, metric_of
from attnviz.models import pretrained
from attnviz.models.controls import FreshConfig
from attnviz.models.hooked.trace import ModuleCall, calls_of
from attnviz.models.untrained import Fresh
from tests.models.tiny import LONG, SHORT, Blocks, build, hooked_only, inputs_of, tiny

ADDING = (
    *("gpt2", "llama", "mistral", "qwen3", "gpt_neox", "phi", "opt", "gpt_oss", "deepseek_v3"),
    *("gemma3", "olmo2", "cohere", "granite"),
)
REFUSED = {
    "gemma2": r"caps its logits, 30 tanh\(x / 30\)",
    "bert": "not its final states times one matrix, and layer 0 normalizes the sum",
    "t5": "no plain list of layers",
}


def normalized(norm: Any, x: Tensor) -> Tensor:
    """By torch's own normalizations."""
    if norm.centred:
        return F.layer_norm(x, norm.scale.shape, norm.scale, norm.shift, norm.eps)
    assert norm.shift is None
    return F.rms_norm(x, norm.scale.shape, norm.scale, norm.eps)


@pytest.mark.parametrize("name", ["demo-gpt2", *ADDING])
def test_layers_add_heads_and_an_mlp_and_logits_follow(name: str, loaded: Any) -> None:
    source = av.load(name) if name.startswith("demo") else tiny(name, loaded)
    batch = [source.prepare(Prompt(ids=ids)) for ids in (LONG, SHORT)]
    blocks = Blocks()
    output = source.forward(batch, [blocks], ForwardRequest(logits=True, states=True, mlps=True))
    readout = source.readout()
    assert readout.reason == ""
    assert len(output.mlps) == len(source.layout.sites)
    for number, site in enumerate(source.layout.sites):
        out = source.output(site)
        attended = torch.einsum("bhtv,hvd->btd", blocks.outputs(site), out.weight)
        attended = attended if out.bias is None else attended + out.bias
        if name in ("gemma3", "olmo2"):
            weight = readout.after[number].scale
            attended = F.rms_norm(attended, weight.shape, weight, readout.after[number].eps)
        if name == "granite":
            assert readout.share(number) == 0.4
            attended = 0.4 * attended
        made = output.states[number] + attended + output.mlps[number]
        for item, ids in enumerate((LONG, SHORT)):
            torch.testing.assert_close(
                made[item, : len(ids)], output.states[number + 1][item, : len(ids)],
                rtol=1e-4, atol=1e-4,
            )  # fmt: skip
    logits = F.linear(normalized(readout, output.states[-1]), readout.table, readout.bias)
    for item, ids in enumerate((LONG, SHORT)):
        torch.testing.assert_close(
            logits[item, : len(ids)], output.logits[item, : len(ids)], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("name", ["olmo2", "gemma3", "granite", "cohere"])
def test_heads_are_split_through_what_stands_behind_w_o(name: str, loaded: Any) -> None:
    source = tiny(name, loaded)
    report = av.logits(Prompt(ids=LONG), model=source)
    assert report.sum == pytest.approx(report.logit, rel=1e-4)
    model = source._network.model
    modules = [layer.self_attn.o_proj for layer in model.model.layers]
    calls: list[ModuleCall] = []
    with calls_of(modules, calls.append):
        states = source.forward(
            [source.prepare(Prompt(ids=LONG))], (), ForwardRequest(states=True, logits=True)
        )
    token = int(states.logits[0, -1].argmax())
    x = states.states[-1][0, -1].double().requires_grad_()
    deviation = (x - x.mean() if name == "cohere" else x).detach().square().mean()
    deviation = (deviation + source.readout().eps).sqrt()
    gamma = model.model.norm.weight.double() + (name == "gemma3")
    centred = x - x.mean() if name == "cohere" else x
    logit = (gamma * centred / deviation) @ model.lm_head.weight[token].double()
    logit = logit * {"cohere": 0.3, "granite": 1 / 3}.get(name, 1)
    (toward,) = torch.autograd.grad(logit, x)
    for layer, call in enumerate(calls):
        took, gave = call.entered, call.output
        block, y = model.model.layers[layer], gave[0, -1].double()
        through = torch.full_like(y, 0.4 if name == "granite" else 1.0)
        if name in ("olmo2", "gemma3"):
            norm = block.post_attention_layernorm
            through = norm(gave)[0, -1].double() / y
        weight, width = modules[layer].weight.double(), took.shape[-1] // 4
        for index in range(4):
            columns = slice(width * index, width * (index + 1))
            wrote = weight[:, columns] @ took[0, -1, columns].double() * through
            row = report.by_token[Head(Site("decoder", layer), index)]
            assert sum(row) == pytest.approx(float(wrote @ toward), rel=1e-3, abs=1e-5)


def test_logits_of_a_patch_are_the_models_own_where_it_scales_them(loaded: Any) -> None:
    source = tiny("cohere", loaded)
    batch = [source.prepare(Prompt(ids=LONG))]
    bench = PatchBench(source, metric_of("loss", []))
    logits = bench.logits(bench.forward(batch, torch.tensor([len(LONG) - 1]))[1])
    truth = source.forward(batch, (), ForwardRequest(logits=True)).logits[0, -1]
    torch.testing.assert_close(logits[0], truth, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_other_streams_are_refused_with_the_reason(name: str, loaded: Any) -> None:
    source = tiny(name, loaded)
    readout = source.readout()
    assert readout.table is None
    assert re.search(REFUSED[name], readout.reason)
    if name == "bert":
        with pytest.raises(ModelError, match="cannot be told"):
            source.forward([source.prepare(Prompt(ids=LONG))], request=ForwardRequest(mlps=True))


def test_post_norm_models_are_no_sum() -> None:
    readout = av.load("demo-bert").readout()
    assert readout.table is None
    assert "normalizes the sum" in readout.reason


def test_ids_have_texts(loaded: Any) -> None:
    source = av.load("demo-gpt2")
    tokens = source.prepare(Prompt(" the keys")).sides["decoder"].queries
    assert source.tokens(tokens.ids).texts == tokens.texts
    assert tiny("llama", loaded).tokens([3, 5]).texts == ("#3", "#5")
    with pytest.raises(ModelError, match="no vocabulary"):
        av.load("fresh").tokens([1])


PLACES = {
    "bert": {"encoder": "encoder.layer.{}.attention.output:out"},
    "distilbert": {"encoder": "transformer.layer.{}.sa_layer_norm:out"},
    "gpt2": {"decoder": "h.{}.ln_2:in"},
    "llama": {"decoder": "layers.{}.post_attention_layernorm:in"},
    "mistral": {"decoder": "layers.{}.post_attention_layernorm:in"},
    "gpt_oss": {"decoder": "layers.{}.post_attention_layernorm:in"},
    "deepseek_v3": {"decoder": "layers.{}.post_attention_layernorm:in"},
    "opt": {"decoder": "decoder.layers.{}.final_layer_norm:in"},
    "modernbert": {"encoder": "layers.{}.mlp_norm:in"},
    "t5": {
        "encoder": "encoder.block.{}.layer.0:out",
        "decoder": "decoder.block.{}.layer.0:out",
        "cross": "decoder.block.{}.layer.1:out",
    },
    "bart": {
        "encoder": "encoder.layers.{}.self_attn_layer_norm:out",
        "decoder": "decoder.layers.{}.self_attn_layer_norm:out",
        "cross": "decoder.layers.{}.encoder_attn_layer_norm:out",
    },
}
"""Where transformers' own models have what comes after attention and its residual connection."""

POST = ("bert", "distilbert", "bart")


class Written:
    """Keeps what the layers make of their attention, [B, T, D] by site."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.blocks: dict[Site, list[Tensor]] = {}

    def observe(self, rows: Rows) -> None:
        around = self.source.sublayer(rows.site)
        norm = around.norm if around.order == "post" else None
        projection = self.source.output(rows.site)
        writes = Writes.of(rows, projection, residual=True, norm=norm)
        summed = contributions.remainder(writes)
        for some, _, made in contributions.parts(writes):
            summed[:, some] += made.sum(2)
        self.blocks.setdefault(rows.site, []).append(summed)

    def whole(self) -> dict[Site, Tensor]:
        return {site: torch.cat(blocks, 1) for site, blocks in self.blocks.items()}


def theirs(hooked: Any, places: dict[str, str], batch: list[Inputs]) -> dict[Site, Tensor]:
    """The same as transformers' modules have it."""
    found, calls = {}, list[ModuleCall]()
    with calls_of(hooked._network.body.modules(), calls.append):
        hooked.forward(batch)
    for site in hooked.layout.sites:
        name, _, side = places[site.kind].format(site.layer).partition(":")
        module = hooked._network.body.get_submodule(name)
        (call,) = (call for call in calls if call.module is module)
        found[site] = call.entered if side == "in" else call.output
    return found


def compare(source: Source, hooked: Source, places: dict[str, str], batch: list[Inputs]) -> None:
    written = Written(source)
    source.forward(batch, [written], ForwardRequest(residuals=True))
    ours, expected = written.whole(), theirs(hooked, places, batch)
    assert ours
    assert ours.keys() == expected.keys()
    for site, made in ours.items():
        for item, inputs in enumerate(batch):
            length = len(inputs.sides[site.kind].queries)
            one = expected[site].view(made.shape)[item, :length]
            torch.testing.assert_close(made[item, :length], one, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", PLACES)
def test_sums_of_hooked_models(family: str, loaded: Any) -> None:
    source = tiny(family, loaded)
    for site in source.layout.sites:
        assert source.sublayer(site).order == ("post" if family in POST else "pre")
    batch = [inputs_of(source, LONG, SHORT), inputs_of(source, SHORT, LONG[:5])]
    compare(source, source, PLACES[family], batch)


@pytest.mark.parametrize("name", ["demo-gpt2", "minilm"])
def test_sums_of_trained_models(name: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue("minilm") if name == "minilm" else name
    source = av.load(path)
    assert source.info.backend == "native"
    hooked = pretrained.load(path, backend="hooked")
    hooked_only(hooked)
    family = "gpt2" if "gpt2" in name else "bert"
    batch = [source.prepare(Prompt(text)) for text in ("The keys are on the table.", "Keys")]
    compare(source, hooked, PLACES[family], batch)
    for site in source.layout.sites:
        ours, found = source.sublayer(site), hooked.sublayer(site)
        assert ours.order == found.order
        assert (ours.norm.eps, ours.norm.centred) == (found.norm.eps, found.norm.centred)
        torch.testing.assert_close(ours.norm.scale, found.norm.scale)
        torch.testing.assert_close(ours.norm.shift, found.norm.shift)


@pytest.mark.parametrize("kind", ["mha", "gqa", "mqa", "mla", "cross"])
def test_sums_of_fresh_layers(kind: Any) -> None:
    config = FreshConfig(24, 4, kind=kind, layers=2)
    source = Fresh(config)
    context = "the keys lie there" if kind == "cross" else None
    inputs = source.prepare(Prompt("the table and the keys", pair=context))
    written = Written(source)
    output = source.forward([inputs], [written], ForwardRequest(states=True))
    for site, made in written.whole().items():
        torch.testing.assert_close(made, output.states[site.layer + 1])


@pytest.mark.parametrize(
    ("family", "why"), [("gemma2", "neither added"), ("bloom", "code of their own")]
)
def test_what_is_not_known_says_why(family: str, why: str, loaded: Any) -> None:
    source = loaded(family, 3.0)
    for site in source.layout.sites:
        found = source.sublayer(site)
        assert found.order is None
        assert why in found.reason


def test_scaled_residual_connections_are_not_taken_for_plain_ones(tmp_path: Path) -> None:
    build("granite", tmp_path, 3.0)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    config.residual_multiplier = 0.25
    config.save_pretrained(tmp_path)
    source = pretrained.load(str(tmp_path), backend="hooked")
    hooked_only(source)
    assert all(source.sublayer(site).order is None for site in source.layout.sites)
