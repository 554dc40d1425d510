"""The residual stream as a sum: the identities that logits rest on, and models that refuse them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import attnviz as av
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest, Rows, Source
from attnviz.core.weights import Readout
from attnviz.errors import ModelError
from attnviz.features.patch.runs import PatchBench, metric_of
from attnviz.models import pretrained
from tests.models.tiny import GAIN, LONG, SHORT, hooked_only

ADDING = (
    *("gpt2", "llama", "mistral", "qwen3", "gpt_neox", "phi", "opt", "gpt_oss", "deepseek_v3"),
    *("gemma3", "olmo2", "cohere", "granite"),
)
REFUSED = {
    "gemma2": r"caps its logits, 30 tanh\(x / 30\)",
    "bert": "not its final states times one matrix, and layer 0 normalizes the sum",
    "t5": "no plain list of layers",
}


def tiny(name: str, folders: Any) -> Source:
    source = pretrained.load(str(folders(name, GAIN.get(name, 3.0), words=True)), backend="hooked")
    hooked_only(source)
    return source


class Heads:
    """Keeps Σ α v of every head, [B, H, T, d_v] by layer."""

    def __init__(self) -> None:
        self.blocks: dict[Site, list[Tensor]] = {}

    def observe(self, rows: Rows) -> None:
        values = rows.values.repeat_interleave(rows.weights.shape[1] // rows.values.shape[1], 1)
        self.blocks.setdefault(rows.site, []).append(rows.weights @ values)


def read(readout: Readout, x: Tensor) -> Tensor:
    """Logits of the residual stream by torch's own normalizations."""
    width = readout.scale.shape
    if readout.centred:
        x = F.layer_norm(x, width, readout.scale, readout.shift, readout.eps)
    else:
        assert readout.shift is None
        x = F.rms_norm(x, width, readout.scale, readout.eps)
    return F.linear(x, readout.table, readout.bias)


@pytest.mark.parametrize("name", ["demo-gpt2", *ADDING])
def test_layers_add_heads_and_an_mlp_and_logits_follow(name: str, folders: Any) -> None:
    source = av.load(name) if name.startswith("demo") else tiny(name, folders)
    batch = [source.prepare(Prompt(ids=ids)) for ids in (LONG, SHORT)]
    heads = Heads()
    output = source.forward(batch, [heads], ForwardRequest(logits=True, states=True, mlps=True))
    readout = source.readout()
    assert readout.reason == ""
    assert len(output.mlps) == len(source.layout.sites)
    for number, site in enumerate(source.layout.sites):
        out = source.output(site)
        attended = torch.einsum("bhtv,hvd->btd", torch.cat(heads.blocks[site], 2), out.weight)
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
    logits = read(readout, output.states[-1])
    for item, ids in enumerate((LONG, SHORT)):
        torch.testing.assert_close(
            logits[item, : len(ids)], output.logits[item, : len(ids)], rtol=1e-4, atol=1e-4
        )


@pytest.mark.parametrize("name", ["olmo2", "gemma3", "granite", "cohere"])
def test_heads_are_split_through_what_stands_behind_w_o(name: str, folders: Any) -> None:
    source = tiny(name, folders)
    report = av.logits(Prompt(ids=LONG), model=source)
    assert report.sum == pytest.approx(report.logit, rel=1e-4)
    model = source._network.model
    seen: dict[int, tuple[Tensor, Tensor]] = {}
    modules = [layer.self_attn.o_proj for layer in model.model.layers]
    hooks = [
        module.register_forward_hook(lambda _, args, out, n=n: seen.update({n: (args[0], out)}))
        for n, module in enumerate(modules)
    ]
    states = source.forward(
        [source.prepare(Prompt(ids=LONG))], (), ForwardRequest(states=True, logits=True)
    )
    for hook in hooks:
        hook.remove()
    token = int(states.logits[0, -1].argmax())
    x = states.states[-1][0, -1].double().requires_grad_()
    deviation = (x - x.mean() if name == "cohere" else x).detach().square().mean()
    deviation = (deviation + source.readout().eps).sqrt()
    gamma = model.model.norm.weight.double() + (name == "gemma3")
    centred = x - x.mean() if name == "cohere" else x
    logit = (gamma * centred / deviation) @ model.lm_head.weight[token].double()
    logit = logit * {"cohere": 0.3, "granite": 1 / 3}.get(name, 1)
    (toward,) = torch.autograd.grad(logit, x)
    for layer, (took, gave) in seen.items():
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


def test_logits_of_a_patch_are_the_models_own_where_it_scales_them(folders: Any) -> None:
    source = tiny("cohere", folders)
    batch = [source.prepare(Prompt(ids=LONG))]
    bench = PatchBench(source, metric_of("loss", []))
    _, logits = bench.forward(batch, torch.tensor([len(LONG) - 1]))
    truth = source.forward(batch, (), ForwardRequest(logits=True)).logits[0, -1]
    torch.testing.assert_close(logits[0], truth, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_other_streams_are_refused_with_the_reason(name: str, folders: Any) -> None:
    source = tiny(name, folders)
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


def test_ids_have_texts(folders: Any) -> None:
    source = av.load("demo-gpt2")
    tokens = source.prepare(Prompt(" the keys")).sides["decoder"].queries
    assert source.tokens(tokens.ids).texts == tokens.texts
    assert tiny("llama", folders).tokens([3, 5]).texts == ("#3", "#5")
    with pytest.raises(ModelError, match="no vocabulary"):
        av.load("fresh").tokens([1])
