"""The residual stream as a sum: the identities that logits rest on, and models that refuse them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import attnviz as av
from attnviz.core.heads import Site
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest, Readout, Rows, Source
from attnviz.errors import ModelError
from attnviz.models import pretrained
from tests.models.tiny import GAIN, LONG, SHORT, hooked_only

ADDING = ("gpt2", "llama", "mistral", "qwen3", "gpt_neox", "phi", "opt", "gpt_oss", "deepseek_v3")
REFUSED = {
    "gemma2": "does not simply add",
    "cohere": "not its final states times one matrix",
    "granite": "does not simply add|not its final states",
    "lfm2": "has no attention",
    "bert": "does not simply add",
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
        made = output.states[number] + attended + output.mlps[number]
        made = made if out.bias is None else made + out.bias
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


@pytest.mark.parametrize("name", REFUSED)
def test_other_streams_are_refused_with_the_reason(name: str, folders: Any) -> None:
    source = tiny(name, folders)
    readout = source.readout()
    assert readout.table is None
    assert re.search(REFUSED[name], readout.reason)
    if name != "t5":
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
