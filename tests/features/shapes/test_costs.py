"""Closed forms against hand values and brute force; comparisons and sweeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention.bias import causal_lower_right
from torch.utils.flop_counter import FlopCounterMode

from attnviz.attention import costs
from attnviz.attention.layers import attend
from attnviz.attention.spec import (
    Amount,
    AttentionSpec,
    Dim,
    LayerAxes,
    RunSizes,
    check_sizes,
    spec_of,
)
from attnviz.attention.walkthrough import walk
from attnviz.core.capture import KeyMask
from attnviz.core.source import Rows
from attnviz.errors import SizeError, UsageError
from attnviz.features.shapes import function as answers
from attnviz.features.shapes.costs import (
    cache_bytes,
    compare,
    decoding,
    longest,
    parse_memory,
    parse_sweep,
    stack_of,
    step_flops,
    sweep,
)
from attnviz.models.configs.model import presets


def layer(
    d_model: int = 512, heads: int = 8, *, bias: bool = True, **sizes: object
) -> AttentionSpec:
    causal = bool(sizes.pop("causal", False))
    window = sizes.pop("window", None)
    return spec_of(
        check_sizes(d_model, heads, **sizes),  # type: ignore[arg-type]
        bias=bias,
        causal=causal,
        window=window,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("spec", "weights", "biases", "cached"),
    [
        (layer(512, 8), 1_048_576, 2_048, 2 * 8 * 64),
        (layer(768, 12), 2_359_296, 3_072, 2 * 12 * 64),
        (layer(512, 8, bias=False), 1_048_576, 0, 2 * 8 * 64),
        # D² + 2·D·G·d + D²
        (
            layer(512, 8, kind="gqa", kv_heads=2),
            2 * 512**2 + 2 * 512 * 128,
            2 * 512 + 2 * 128,
            2 * 2 * 64,
        ),
        (layer(512, 8, kind="mqa"), 2 * 512**2 + 2 * 512 * 64, 2 * 512 + 2 * 64, 2 * 64),
        # W_Q 6·(8+2) wide, latent 5, W_K and W_V 5·48, rotary key 2, W_O
        (
            layer(48, 6, kind="mla", latent=5, rope_dim=2),
            48 * 60 + 48 * 5 + 2 * 5 * 48 + 48 * 2 + 48 * 48,
            60 + 5 + 48 + 48 + 2 + 48,
            5 + 2,
        ),
        (layer(256, 8, kind="cross"), 4 * 256**2, 4 * 256, 2 * 8 * 32),
    ],
)
def test_parameters_and_cached_numbers_by_hand(
    spec: AttentionSpec, weights: int, biases: int, cached: int
) -> None:
    assert costs.cache_elements(spec) == cached
    found = costs.parameters(spec)
    assert (found.weights, found.biases, found.total) == (weights, biases, weights + biases)


def test_flops_and_memory_by_hand() -> None:
    # B=4, T=16, D=128, H=8: projections 4 · 2·B·T·D², attention 2 · 2·B·H·T²·d
    axes = LayerAxes(layer(128, 8), RunSizes(4, 16))
    found = costs.flops(layer(128, 8), axes)
    assert found.projections.value == 4 * 2 * 4 * 16 * 128 * 128
    assert found.attention.value == 2 * 2 * 4 * 8 * 16 * 16 * 16
    assert (costs.weights_elements(axes) * 4).value == 4 * 8 * 16 * 16 * 4


def test_projections_and_attention_cost_the_same_at_the_crossing() -> None:
    for spec in (layer(512, 8), layer(512, 8, kind="gqa"), layer(512, 8, kind="mla")):
        length = costs.crossing(spec)
        assert length == int(length)
        found = costs.flops(spec, LayerAxes(spec, RunSizes(3, int(length))))
        assert found.projections == found.attention
    assert costs.crossing(layer(512, 8)) == 2 * 512


@pytest.mark.parametrize(("batch", "length"), [(1, 7), (2, 700), (1, 2500)])
def test_streamed_memory_is_that_of_attend(batch: int, length: int) -> None:
    sizes = []

    class Watcher:
        def observe(self, rows: Rows) -> None:
            sizes.append(rows.weights.numel())

    query = torch.zeros(batch, 8, length, 1)
    attend(query, query, query, observers=[Watcher()])
    axes = LayerAxes(layer(512, 8), RunSizes(batch, length))
    assert costs.streamed_elements(axes) == max(sizes)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 3))
def test_amounts_with_letters_agree_with_numbers(t: int, s: int, k: int) -> None:
    tee, ess = Dim("T", None), Dim("S", None)
    amount = Amount(3) * tee * tee + Amount(5) * tee * ess + k
    assert amount.value is None
    assert amount.at(T=t, S=s).value == 3 * t * t + 5 * t * s + k
    assert amount.at(T=t).at(S=s) == amount.at(S=s, T=t)


def test_amounts_read_as_formulas() -> None:
    tee = Dim("T", None)
    assert str(Amount(2048) * tee * tee + Amount(7) * tee) == "7·T + 2,048·T²"
    assert str(Amount(1) * tee) == "T"
    assert str(Amount(0)) == "0"


# comparisons


def test_llama_3_70b_keeps_an_eighth_of_what_mha_keeps() -> None:
    model = presets()["llama3-70b"].model
    found = compare(model.main.spec, RunSizes(2, 8192, dtype="bfloat16"), model=model)
    mha, own = found.variants[0], next(v for v in found.variants if v.own)
    assert own.name == "GQA, G = 8"
    assert mha.cache_bytes_per_token == 8 * own.cache_bytes_per_token
    assert own.cache_bytes_per_token == 80 * 2 * 8 * 128 * 2  # layers · (K, V) · G · d · bytes
    assert own.cache_bytes_per_sequence == 8192 * own.cache_bytes_per_token
    assert own.cache_bytes_per_batch == 2 * own.cache_bytes_per_sequence


def test_what_fits_is_exactly_what_fits() -> None:
    for name in ("llama3-8b", "gemma2-9b", "deepseek-v2"):
        stack = stack_of(presets()[name].model)
        for memory in (10**7, 10**9, 80 * 10**9):
            most = longest(stack, 2, memory)
            assert cache_bytes(stack, most, 2) <= memory < cache_bytes(stack, most + 1, 2)
    windowed = stack_of(presets()["mistral-7b"].model)
    assert longest(windowed, 2, 80 * 10**9) == -1  # a window's cache stops growing
    assert longest(windowed, 2, 10**6) == 7  # 131,072 bytes a token


@pytest.mark.parametrize(
    ("text", "size"),
    [("80GB", 80 * 10**9), ("80GiB", 80 << 30), ("512M", 512 * 10**6), ("1.5k", 1500), ("7B", 7)],
)
def test_memory_sizes(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize(
    "text", ["", "GB", "80", "80XB", "-5GB", "1e9", "80 G B", "0", "0.1", "9999EB", "iB"]
)
def test_junk_memory_sizes(text: str) -> None:
    with pytest.raises(UsageError, match=r"^memory="):
        parse_memory(text)


def test_memory_is_what_the_weights_leave() -> None:
    model = presets()["llama3-8b"].model
    run = RunSizes(dtype="bfloat16")
    found = compare(model.main.spec, run, model=model, memory=80 * 10**9)
    own = next(v for v in found.variants if v.own)
    room = 80 * 10**9 - 2 * 8_030_261_248
    assert own.weights_bytes == 2 * 8_030_261_248
    assert own.fits_tokens == room // (128 << 10)
    assert own.fits_sequences == room // (4096 * (128 << 10))
    mha = found.variants[0]  # 32 layers more of W_K and W_V, 24 key heads of 128 each
    assert mha.weights_bytes - own.weights_bytes == 2 * 32 * 2 * 4096 * 24 * 128
    small = compare(model.main.spec, run, model=model, memory=10**9)
    assert {v.fits_tokens for v in small.variants} == {0}
    bare = compare(layer(512, 8, bias=False), run, layers=3, memory=10**9)
    assert bare.variants[0].weights_bytes == 3 * 2 * 4 * 512**2
    assert not bare.whole


def test_llama_3_8b_keeps_128_kib_a_token_and_half_of_it_in_fp8() -> None:
    model = presets()["llama3-8b"].model
    assert model.dtype == "bfloat16"
    for kept, size in ((None, 128 << 10), ("fp8", 64 << 10), ("int8", 64 << 10)):
        run = RunSizes(dtype=f"{model.dtype}+{kept}" if kept else model.dtype)
        found = compare(model.main.spec, run, model=model)
        assert next(v for v in found.variants if v.own).cache_bytes_per_token == size


def test_models_are_named_by_their_own_heads() -> None:
    rows = {v.name: v.used_by for v in compare(layer(4096, 32), RunSizes()).variants}
    assert "Llama 3 8B (32/8)" in rows["GQA, G = 8"]
    assert all("/4)" in one for one in rows["GQA, G = 4"])
    assert all(one.endswith("(32)") for one in rows["MHA"])
    assert "Llama 3 70B (64/8)" not in rows["GQA, G = 4"]  # the same ratio, other numbers
    small = {v.name: v.used_by for v in compare(layer(1024, 16), RunSizes()).variants}
    assert small["GQA, G = 8"][0] == "Gemma 2 9B (16/8)"
    assert all("/8)" in one for one in small["GQA, G = 8"])


# decoding


def test_decoding_by_hand() -> None:
    # 3 layers, D = 64, H = 4, G = 2, d = 16, no biases; 2 sequences of 10 tokens, cache in fp8
    one = layer(64, 4, kind="gqa", kv_heads=2, bias=False)
    step = decoding([(one, 3)], 10, RunSizes(2, dtype="bf16+fp8"))
    assert step.weights == 3 * 2 * (2 * 64 * 64 + 2 * 64 * 32)
    assert step.cache == 3 * 2 * 10 * (2 * 2 * 16)
    assert step.flops == 3 * 2 * (2 * (2 * 64 * 64 + 2 * 64 * 32) + 2 * 2 * 4 * 10 * 16)
    assert step.bytes_per_token == (step.weights + step.cache) / 2
    assert step.intensity == step.flops / (step.weights + step.cache)
    near = layer(64, 4, kind="gqa", kv_heads=2, bias=False, causal=True, window=4)
    assert decoding([(near, 3)], 10, RunSizes()) == decoding([(near, 3)], 4, RunSizes())


def test_decoding_computes_what_the_walk_computes() -> None:
    for one in (layer(96, 6), layer(96, 6, kind="gqa", kv_heads=2), layer(96, 6, kind="mqa")):
        walked = walk(one, RunSizes(cache=20))
        assert step_flops(one, 21) == walked.flops.total.value
    latent = layer(96, 6, kind="mla", latent=20, rope_dim=8)
    walked = walk(latent, RunSizes(cache=20))
    assert step_flops(latent, 21, absorbed=False) == walked.flops.total.value
    assert step_flops(latent, 21) < step_flops(latent, 21, absorbed=False)


def test_both_ways_of_decoding_latents_are_given() -> None:
    model = presets()["deepseek-v3"].model
    found = compare(model.main.spec, RunSizes(cache=4096), model=model)
    latent = next(one for one in found.variants if one.layer.kind == "mla")
    assert latent.decoding_flops_rebuilt > 20 * latent.decoding_flops
    assert latent.flops_per_byte == pytest.approx(
        latent.decoding_flops / latent.read_bytes_per_decoded_token
    )
    assert all(
        one.decoding_flops == one.decoding_flops_rebuilt
        for one in found.variants
        if one.layer.kind != "mla"
    )


def test_absorbed_latent_attention_is_the_same_and_costs_what_is_said() -> None:
    one = layer(48, 6, kind="mla", latent=10, rope_dim=4, bias=False)
    h, d, r, rope, tokens = 6, 8, 10, 4, 13
    make = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=make, dtype=torch.float64)

    x, latents, keys = random(1, 48), random(tokens, r), random(tokens, rope)
    w_q, w_k, w_v = random(48, h * (d + rope)), random(r, h, d), random(r, h, d)
    w_latent, w_rope, w_o = random(48, r), random(48, rope), random(h * d, 48)
    with FlopCounterMode(display=False) as counter:
        latents = torch.cat([latents[1:], x @ w_latent])
        keys = torch.cat([keys[1:], x @ w_rope])
        query = (x @ w_q).view(h, d + rope)
        absorbed = (query[:, None, :d] @ w_k.permute(1, 2, 0))[:, 0]
        scores = absorbed @ latents.T + query[:, d:] @ keys.T
        weights = scores.softmax(-1)
        mixed = (weights @ latents)[:, None] @ w_v.transpose(0, 1)
        found = mixed.reshape(1, h * d) @ w_o
    assert step_flops(one, tokens) == counter.get_total_flops()
    rebuilt_k = torch.einsum("sr,rhd->hsd", latents, w_k)
    rebuilt_v = torch.einsum("sr,rhd->hsd", latents, w_v)
    plain = (rebuilt_k @ query[:, :d, None])[:, :, 0] + query[:, d:] @ keys.T
    other = (plain.softmax(-1)[:, None] @ rebuilt_v).reshape(1, h * d) @ w_o
    assert torch.allclose(found, other)


# windows


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("window", [None, 1, 3, 7, 20])
@pytest.mark.parametrize("length", [1, 5, 7, 16])
def test_what_masks_block(causal: bool, window: int | None, length: int) -> None:
    allowed = KeyMask(causal, window).allowed(length, length)
    one = layer(64, 4, causal=causal, window=window)
    assert costs.blocked(one, length) == pytest.approx(1 - allowed.mean())
    if causal and window:
        chunk = np.arange(length) // window
        chunked = np.tril(chunk[:, None] == chunk)
        blocked = costs.blocked(replace(one, chunked=True), length)
        assert blocked == pytest.approx(1 - chunked.mean())


def test_a_window_s_scores_grow_with_the_text_not_with_its_square() -> None:
    near, far = layer(64, 4, causal=True, window=16), layer(64, 4, causal=True)
    for length in (8, 16, 64, 1024):
        found = costs.flops(near, LayerAxes(near, RunSizes(1, length))).attention.value
        assert found == 2 * 2 * 4 * length * min(length, 16) * 16
    assert str(costs.flops(near, LayerAxes(near, RunSizes())).attention) == "4,096·T"
    both = layer(64, 4, window=16)
    assert costs.flops(both, LayerAxes(both, RunSizes(1, 64))).attention.value == (
        2 * 2 * 4 * 64 * 31 * 16
    )
    assert costs.crossing(far) == 128
    assert costs.crossing(near) is None
    assert costs.crossing(layer(64, 4, causal=True, window=128)) == 128


# sweeps


@pytest.mark.parametrize(
    ("text", "values"),
    [("1..H", (1, 2, 3, 4, 6, 12)), ("2..h", (2, 3, 4, 6, 12)), ("2..4", (2, 3, 4)),
     ("3,12", (3, 12)), ("1..12:x2", (1, 2, 4, 8, 12))],
)  # fmt: skip
def test_key_heads_are_swept_over_what_divides(text: str, values: tuple[int, ...]) -> None:
    assert parse_sweep("kv-heads=" + text, 12) == ("kv-heads", values)


def test_sweeping_key_heads_trades_reading_for_heads() -> None:
    found = answers.sweep(answers.Layer(512, 8), "kv-heads=1..H", RunSizes(4, 1000, dtype="bf16"))
    points = found.points
    assert [p.value for p in points] == [1, 2, 4, 8]
    for point in points:
        one = layer(512, 8, kv_heads=point.value)
        step = decoding([(one, 1)], 1000, RunSizes(4, dtype="bf16"))
        assert point.read_bytes_per_decoded_token == step.bytes_per_token
        assert point.flops_per_byte == step.intensity
    llama = answers.sweep(answers.Model("llama3-8b"), "kv-heads=1..H")
    assert [p.cache_bytes_per_token for p in llama.points] == [
        2 * 2 * 128 * g for g in (1, 2, 4, 8, 16, 32)
    ]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("seq=128..1024", (128, 256, 512, 1024)), ("seq=100..300", (100, 200, 300)),
        ("heads=1..64:x4", (1, 4, 16, 64)), ("d_model=64..80:+8", (64, 72, 80)),
        ("SEQ = 5, 3,3", (3, 5)), ("context-length=7..7", (7,)),
    ],
)  # fmt: skip
def test_sweeps(text: str, values: tuple[int, ...]) -> None:
    assert parse_sweep(text)[1] == values


@pytest.mark.parametrize(
    "text",
    ["", "seq", "seq=", "seq=..", "seq=5..2", "seq=0..4", "seq=1..8:x1", "seq=1..8:+0", "seq=1,a",
     "seq=1..9e9", "rows=1..4", "seq=1..1000000:+1", "seq=-1..4", "seq=²", "seq=_.._", "seq=1,_"],
)  # fmt: skip
def test_junk_sweeps(text: str) -> None:
    with pytest.raises(UsageError, match=r"^(a )?sweep"):
        parse_sweep(text)


def test_numbers_without_end_are_refused_in_a_short_line() -> None:
    nines = "9" * 5000
    for text in (f"seq=1..{nines}", f"seq={nines}", f"{'r' * 5000}=1", f"seq=1..9:x{nines}",
                 "seq=" + ",".join(map(str, range(1, 9999)))):  # fmt: skip
        with pytest.raises(UsageError, match="sweep") as caught:
            parse_sweep(text)
        assert len(str(caught.value)) < 200
    with pytest.raises(UsageError, match="memory") as caught:
        parse_memory(nines + "GB")
    assert len(str(caught.value)) < 200


def test_sweep_agrees_with_the_walk_at_every_size() -> None:
    spec = layer(96, 6, kind="gqa", kv_heads=2)
    found = sweep("seq=5..80", RunSizes(2), lambda *_: spec)
    for point in found.points:
        walked = walk(spec, RunSizes(2, point.value))
        assert point.projection_flops == walked.flops.projections.value
        assert point.attention_flops == walked.flops.attention.value
        softmax = walked.step("softmax").bytes
        assert softmax is not None
        assert point.weights_bytes == softmax.value


def test_sizes_that_make_no_sense() -> None:
    for run in (RunSizes(0), RunSizes(1, 0), RunSizes(1, 1 << 50), RunSizes(cache=-1)):
        with pytest.raises(SizeError):
            walk(layer(), run)
    with pytest.raises(UsageError, match="cross"):
        walk(layer(kind="cross"), RunSizes(cache=3))


@pytest.mark.parametrize(
    ("name", "gpus", "heads", "key_heads"),
    [("llama3-70b", 8, 8, 1), ("llama3-70b", 16, 4, 1), ("qwen2.5-7b", 4, 7, 1)],
)
def test_a_gpu_s_share_by_hand(name: str, gpus: int, heads: int, key_heads: int) -> None:
    spec = presets()[name].model.main.spec
    found = answers.sweep(answers.Model(name), f"tp={gpus}")
    (point,) = found.points
    width, d = spec.d_model, spec.head_dim
    assert (found.layer.heads, found.layer.kv_heads) == (heads, key_heads)
    matrices = 2 * width * heads * d + 2 * width * key_heads * d
    assert point.parameters - costs.parameters(found.specs[0]).biases == matrices
    assert point.cache_bytes_per_token == 2 * 2 * key_heads * d
    assert found.title.startswith(presets()[name].title)


def test_heads_that_no_number_of_gpus_shares() -> None:
    with pytest.raises(SizeError, match=r"28 heads on 4 key heads do not go on 8 GPUs; .* 1, 2, 4"):
        answers.sweep(answers.Model("qwen2.5-7b"), "tp=8")
    latent = answers.sweep(answers.Model("deepseek-v3"), "tp=1..8")
    assert len({point.cache_bytes_per_token for point in latent.points}) == 1
    assert any("kept whole by every GPU" in note for note in latent.notes)


def test_values_may_be_narrower_than_keys() -> None:
    found = answers.walk(answers.Layer(64, 4, head_dim="16+8"), RunSizes(2, 5))
    shapes = {step.name: step.shape for step in found.steps}
    assert shapes["V"] == (2, 4, 5, 8)
    assert shapes["K"] == shapes["Q"] == (2, 4, 5, 16)
    assert shapes["head outputs"] == (2, 4, 5, 8)
    assert shapes["Z concat"] == (2, 5, 32)
    assert shapes["Y"] == (2, 5, 64)
    assert found.costs.parameters.weights == 2 * 64 * 64 + 2 * 64 * 32
    assert found.costs.cache_elements_per_token == 4 * (16 + 8)
    assert sum(step.parameters for step in found.steps) == found.costs.parameters.total
    with pytest.raises(UsageError, match="values are as wide as its keys"):
        answers.verify(answers.Layer(64, 4, head_dim="16+8"))


def test_a_chunk_behind_a_cache_sees_what_torch_s_lower_right_mask_shows() -> None:
    walked = walk(layer(causal=True), RunSizes(1, 4, cache=12))
    assert walked.step("scores").sizes == (1, 8, 4, 16)
    assert walked.step("mask").operation == "-∞ where key > query + 12"
    lower_right = causal_lower_right(4, 16)._materialize().bool()
    query, key = torch.arange(4)[:, None], torch.arange(16)
    assert torch.equal(lower_right, key <= query + 12)
    assert torch.equal(lower_right, torch.ones(4, 16).tril(12).bool())
    notes = answers.walk(answers.Layer(causal=True), RunSizes(1, 4, cache=12)).notes
    assert any("torch.ones(4, 16).tril(12)" in note for note in notes)
