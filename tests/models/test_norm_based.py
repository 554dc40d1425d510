"""Maps of what heads write, against every vector written out in float64."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import attnviz as av
from attnviz.attention import blocks as attending
from attnviz.core.capture import Capture
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.source import Source
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.models.demo import DEMOS
from attnviz.models.norm_based import with_quantity
from attnviz.scoring.observe import Recorder, score_capture
from tests.models.tiny import LONG, SHORT, Blocks, inputs_of, ran, tiny

TEXT = "The keys to the cabinet are on the table, and the keys are old."


class Whole(Blocks):
    """Weights, values and what goes past, whole, in float64."""

    def weights(self, site: Site) -> Tensor:
        """[B, H, T, S] of a layer."""
        weights = [rows.weights.double() for rows in self.by_site[site]]
        keys = weights[-1].shape[3]
        return torch.cat([F.pad(w, (0, keys - w.shape[3])) for w in weights], 2)

    def parts(self, source: Source, site: Site, quantity: str) -> Tensor:
        """[T, S, D] of a layer, or [H, T, S, D]: every vector, by the formulas of the papers."""
        blocks, weights = self.by_site[site], self.weights(site)
        values, out = blocks[-1].values.double(), source.output(site)
        assert blocks[-1].key_start == 0
        values = values.repeat_interleave(weights.shape[1] // values.shape[1], 1)
        made = torch.einsum("bhsv,hvd->bhsd", values, out.weight.double())
        heads_parts = torch.einsum("hts,hsd->htsd", weights[0], made[0])
        if quantity == "norm":
            return heads_parts
        parts = heads_parts.sum(0)
        x = torch.cat([rows.residual.double() for rows in blocks], 1)[0]
        whole = parts.sum(1) + x
        whole = whole if out.bias is None else whole + out.bias.double()
        if site.kind != "cross":
            for i in range(len(parts)):
                parts[i, i] += x[i]
        if quantity == "norm-residual":
            return parts
        norm = source.sublayer(site).norm
        if norm.centred:
            parts = parts - parts.mean(-1, keepdim=True)
            sigma = (whole.var(-1, unbiased=False) + norm.eps).sqrt()
        else:
            sigma = (whole.square().mean(-1) + norm.eps).sqrt()
        return norm.scale.double() * parts / sigma[:, None, None]


def check(source: Source, inputs: Inputs, quantity: str) -> None:
    whole = Whole()
    ran(source, [inputs], [whole], residuals=True)
    shown = with_quantity(source, quantity, shares=False)
    recorder = Recorder([inputs])
    ran(shown, [inputs], [recorder], hidden=False)
    maps = recorder.maps()
    assert maps.keys() == whole.by_site.keys()
    for site, found in maps.items():
        expected = whole.parts(source, site, quantity).norm(dim=-1)
        expected = expected if quantity == "norm" else expected[None]
        np.testing.assert_allclose(found, expected.numpy(), rtol=2e-4, atol=1e-5)
    share = Recorder([inputs])
    ran(with_quantity(source, quantity, shares=True), [inputs], [share], hidden=False)
    for site, found in share.maps().items():
        sums = maps[site].sum(-1, keepdims=True)
        np.testing.assert_allclose(found, maps[site] / sums, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("quantity", ["norm", "norm-residual", "norm-residual-ln"])
@pytest.mark.parametrize(
    ("name", "rows"), [("minilm", None), *((name, rows) for name in DEMOS for rows in (None, 5))]
)
def test_trained_models(
    name: str, quantity: str, rows: int | None, request: Any, monkeypatch: Any
) -> None:
    if rows is not None:
        monkeypatch.setattr(attending, "BLOCK_ROWS", rows)
        monkeypatch.setattr(attending, "BLOCK_ELEMENTS", 1)
    source = av.load(request.getfixturevalue("minilm") if name == "minilm" else name)
    inputs = source.prepare(Prompt(TEXT))
    if "gpt2" in name and quantity == "norm-residual-ln":
        with pytest.raises(UsageError, match=r"before attention.*use quantity='norm-res"):
            with_quantity(source, quantity, shares=False)
        return
    check(source, inputs, quantity)


@pytest.mark.parametrize("family", ["bert", "llama", "t5", "bart", "gpt_oss", "deepseek_v3"])
def test_hooked_models(family: str, loaded: Any) -> None:
    source = tiny(family, loaded)
    normalized = ("norm-residual-ln",) if family in ("bert", "bart") else ()
    for quantity in ("norm", "norm-residual", *normalized):
        check(source, inputs_of(source, LONG, SHORT), quantity)


def test_shorter_items_of_a_batch_are_as_if_alone(minilm: str) -> None:
    source = with_quantity(av.load(minilm), "norm", shares=False)
    batch = [source.prepare(Prompt(text)) for text in (TEXT, "Keys.")]
    both, alone = Recorder(batch), Recorder(batch[1:])
    source.forward(batch, [both])
    source.forward(batch[1:], [alone])
    for site, found in both.maps(1).items():
        np.testing.assert_allclose(found, alone.maps()[site], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("quantity", ["norm", "norm-residual"])
def test_scores_on_the_fly_are_those_of_a_capture(quantity: str) -> None:
    report = av.heads(TEXT, quantity=quantity, model="demo-gpt2")
    held = av.capture(TEXT, quantity=quantity, model="demo-gpt2")
    assert (report.quantity, held.quantity) == (quantity, quantity)
    assert quantity in repr(held)
    for one, other in zip(report.heads, score_capture(held).result(), strict=True):
        assert one.head == other.head
        assert [role.name for role in one.roles] == [role.name for role in other.roles]
        for name, score in one.scores.items():
            if score.mean is not None:
                assert score.mean == pytest.approx(other.scores[name].mean, rel=1e-4, abs=1e-6)


def test_a_head_that_is_taken_away_writes_nothing() -> None:
    report = av.heads(TEXT, quantity="norm", without="1.4", model="demo-gpt2")
    held = av.capture(TEXT, quantity="norm", without="1.4", model="demo-gpt2")
    (gone,) = av.select("1.4", held)
    assert not held[gone].any()
    scores = next(one for one in report.heads if one.head == gone)
    assert all(s.mean is None or math.isfinite(s.mean) for s in scores.scores.values())
    assert not scores.roles


@pytest.mark.parametrize(
    ("quantity", "suffix"), [("norm", ".npz"), ("norm-residual", ".safetensors")]
)
def test_a_file_names_its_quantity(quantity: str, suffix: str, tmp_path: Path) -> None:
    held = av.capture(TEXT, quantity=quantity, model="demo-bert")
    read = av.read(av.write_capture(held, tmp_path / f"c{suffix}"))
    assert read.quantity == quantity
    assert read.layout == held.layout
    for site, maps in held.maps.items():
        np.testing.assert_array_equal(read.maps[site], maps)
    assert av.heads(read).quantity == quantity
    assert av.heatmap(read).style.quantity == quantity
    with pytest.raises(UsageError, match="needs the values"):
        av.heads(av.capture(TEXT, model="demo-bert"), quantity="norm")


def test_a_file_of_an_unknown_quantity_is_refused(tmp_path: Path) -> None:
    held = av.capture(TEXT, model="demo-bert")
    odd = Capture(held.source, held.layout, held.inputs, held.maps, quantity="charm")
    with pytest.raises(
        InputError, match=r"meta\.quantity: expected one of weights, norm.*found 'charm'"
    ):
        av.read(av.write_capture(odd, tmp_path / "c.npz"))


def test_layers_are_named_as_such() -> None:
    held = av.capture(TEXT, quantity="norm-residual", model="demo-bert", select="1.*, 3.*")
    assert [held.layout.name(head) for head in held.layout] == ["0.*", "1.*", "2.*", "3.*"]
    assert [maps.shape[0] for maps in held.maps.values()] == [1, 1]
    picture = av.heatmap(held, "1.*")
    assert picture.title(picture.maps[0][0]).startswith("layer 1")


def test_values_of_attention_in_code_of_its_own_are_those_of_its_own_modules(
    loaded: Any, eager: Any
) -> None:
    """BLOOM, which hands out weights alone: values from its fused projection, W_O from its own."""
    source = loaded("bloom", 3.0)
    inputs = source.prepare(Prompt(ids=LONG))
    recorder = Recorder([inputs])
    ran(with_quantity(source, "norm", shares=False), [inputs], [recorder], hidden=False)
    model = eager(source.folder)
    fused: list[Tensor] = []
    hooks = [
        block.self_attention.query_key_value.register_forward_hook(
            lambda _, args, out: fused.append(out[0].double())
        )
        for block in model.h
    ]
    with torch.no_grad():
        weights = model(torch.tensor([LONG]), output_attentions=True).attentions
    for hook in hooks:
        hook.remove()
    for layer, block in enumerate(model.h):
        values = fused[layer].view(len(LONG), 4, 3, -1)[:, :, 2]  # [S, H, d_v]
        w = block.self_attention.dense.weight.detach().double()
        f = torch.einsum("shv,dhv->hsd", values, w.view(len(w), 4, -1))
        expected = weights[layer][0].double() * f.norm(dim=-1)[:, None]
        found = recorder.maps()[Site("decoder", layer)]
        np.testing.assert_allclose(found, expected.detach().numpy(), rtol=1e-4, atol=1e-6)
    with pytest.raises(ModelError, match="code of their own"):
        av.heads(Prompt(ids=LONG), model=source, quantity="norm-residual")


def test_models_without_values_say_so(loaded: Any) -> None:
    deberta, gemma = (loaded(name) for name in ("deberta_v2", "gemma2"))
    with pytest.raises(ModelError, match=r"quantity='norm' cannot be told .* code of their own"):
        av.heads(Prompt(ids=LONG), model=deberta, quantity="norm")
    av.heads(Prompt(ids=LONG), model=gemma, quantity="norm")
    with pytest.raises(ModelError, match="neither added"):
        av.heads(Prompt(ids=LONG), model=gemma, quantity="norm-residual")
    with pytest.raises(UsageError, match=r"unknown quantity='x'; choose weights, norm"):
        av.heads(TEXT, quantity="x")


@pytest.fixture(scope="module")
def mixing(minilm: str) -> dict[str, Any]:
    """How MiniLM's layers mix tokens, by each quantity."""
    source = av.load(minilm)
    return {
        quantity: av.heads(TEXT, model=source, quantity=quantity).mixing
        for quantity in ("norm", "norm-residual", "norm-residual-ln")
    }


def test_mixing_by_the_definition(minilm: str, mixing: dict[str, Any]) -> None:
    source = av.load(minilm)
    inputs = source.prepare(Prompt(TEXT))
    whole = Whole()
    source.forward([inputs], [whole])
    for quantity, layers in mixing.items():
        for one in layers:
            (weights,) = whole.weights(one.site)
            length = weights.shape[1]
            assert one.rows == length
            eye = torch.eye(length, dtype=torch.float64)
            looks = 1 - (weights * eye).sum((1, 2)) / length
            assert one.weights == pytest.approx(looks.tolist(), rel=1e-4)
            assert one.layer_weights == pytest.approx(float(looks.mean()), rel=1e-4)

            def ratio(parts: Tensor, eye: Tensor = eye) -> Tensor:
                others, own = (
                    (parts * part[:, :, None]).sum(-2).norm(dim=-1) for part in (1 - eye, eye)
                )
                return (others / (others + own)).mean(-1)

            heads = ratio(whole.parts(source, one.site, "norm"))
            assert one.norms == pytest.approx(heads.tolist(), rel=1e-4)
            parts = whole.parts(source, one.site, quantity)
            layer = ratio(parts.sum(0) if quantity == "norm" else parts)
            assert one.layer == pytest.approx(float(layer), rel=1e-4)


def test_mixing_falls_from_weights_to_norms_to_residual_connections(mixing: dict[str, Any]) -> None:
    """The order that Kobayashi et al. 2021 report for BERT: 96.4, 85.3, 22.3, 18.8 %."""
    found = {
        quantity: np.mean([one.layer for one in layers]) for quantity, layers in mixing.items()
    }
    found["weights"] = np.mean([one.layer_weights for one in mixing["norm"]])
    assert found["weights"] > 0.85
    assert found["weights"] > found["norm"] > 0.6
    assert found["norm-residual"] < 0.4
    assert found["norm-residual-ln"] < found["norm-residual"]
