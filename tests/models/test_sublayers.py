"""What layers do around attention, and that what heads write adds up to what the model computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import attnviz as av
from attnviz.attention import contributions
from attnviz.attention.contributions import Writes
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import ForwardRequest, Rows, Source
from attnviz.models import pretrained
from attnviz.models.controls import FreshConfig
from attnviz.models.demo import DEMOS
from attnviz.models.untrained import Fresh
from tests.models.tiny import GAIN, LONG, SHORT, build, hooked_only, inputs_of

PLACES = {
    "bert": {"encoder": "encoder.layer.{}.attention.output:out"},
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

POST = ("bert", "bart")


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
    body, found = hooked._network.body, {}
    handles = []
    for site in hooked.layout.sites:
        name, _, side = places[site.kind].format(site.layer).partition(":")

        def ran(module: Any, args: Any, output: Any, site: Site = site, side: str = side) -> None:
            states = args[0] if side == "in" else output
            found[site] = states[0] if isinstance(states, tuple) else states

        handles.append(body.get_submodule(name).register_forward_hook(ran))
    hooked.forward(batch)
    for handle in handles:
        handle.remove()
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
def test_sums_of_hooked_models(family: str, folders: Any) -> None:
    source = pretrained.load(str(folders(family, GAIN.get(family, 3.0))), backend="hooked")
    hooked_only(source)
    for site in source.layout.sites:
        assert source.sublayer(site).order == ("post" if family in POST else "pre")
    batch = [inputs_of(source, LONG, SHORT), inputs_of(source, SHORT, LONG[:5])]
    compare(source, source, PLACES[family], batch)


@pytest.mark.parametrize("name", [*DEMOS, "minilm"])
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
        assert ours.norm is not None
        assert found.norm is not None
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
def test_what_is_not_known_says_why(family: str, why: str, folders: Any) -> None:
    source = pretrained.load(str(folders(family, 3.0)))
    for site in source.layout.sites:
        found = source.sublayer(site)
        assert found.order is None
        assert why in found.reason


def test_scaled_residual_connections_are_not_taken_for_plain_ones(tmp_path: Path) -> None:
    import transformers

    build("granite", tmp_path, 3.0)
    config = transformers.AutoConfig.from_pretrained(tmp_path)
    config.residual_multiplier = 0.25
    config.save_pretrained(tmp_path)
    source = pretrained.load(str(tmp_path), backend="hooked")
    hooked_only(source)
    assert all(source.sublayer(site).order is None for site in source.layout.sites)
