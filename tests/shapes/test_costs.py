"""Closed forms against hand values and brute force; comparisons and sweeps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attnviz.attention.sizes import check_sizes
from attnviz.errors import SizeError, UsageError
from attnviz.shapes.configs.presets import preset
from attnviz.shapes.costs import formulas as costs
from attnviz.shapes.costs.compare import (
    cache_bytes,
    compare,
    longest,
    parse_memory,
    stack_of,
)
from attnviz.shapes.costs.sweep import parse_sweep, sweep
from attnviz.shapes.spec import AttentionSpec, LayerAxes, RunSizes, spec_of
from attnviz.shapes.symbolic import Amount, Dim
from attnviz.shapes.walk.steps import walk


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
    ("spec", "weights", "biases"),
    [
        (layer(512, 8), 1_048_576, 2_048),
        (layer(768, 12), 2_359_296, 3_072),
        (layer(512, 8, bias=False), 1_048_576, 0),
        # D² + 2·D·G·d + D²
        (layer(512, 8, kind="gqa", kv_heads=2), 2 * 512**2 + 2 * 512 * 128, 2 * 512 + 2 * 128),
        (layer(512, 8, kind="mqa"), 2 * 512**2 + 2 * 512 * 64, 2 * 512 + 2 * 64),
        # W_Q 6·(8+2) wide, latent 5, W_K and W_V 5·48, rotary key 2, W_O
        (
            layer(48, 6, kind="mla", latent=5, rope_dim=2),
            48 * 60 + 48 * 5 + 2 * 5 * 48 + 48 * 2 + 48 * 48,
            60 + 5 + 48 + 48 + 2 + 48,
        ),
        (layer(256, 8, kind="cross"), 4 * 256**2, 4 * 256),
    ],
)
def test_parameters_by_hand(spec: AttentionSpec, weights: int, biases: int) -> None:
    found = costs.parameters(spec)
    assert (found.weights, found.biases, found.total) == (weights, biases, weights + biases)


def test_flops_and_memory_by_hand() -> None:
    # B=4, T=16, D=128, H=8: projections 4 · 2·B·T·D², attention 2 · 2·B·H·T²·d
    axes = LayerAxes(layer(128, 8), RunSizes(4, 16))
    found = costs.flops(layer(128, 8), axes)
    assert found.projections.value == 4 * 2 * 4 * 16 * 128 * 128
    assert found.attention.value == 2 * 2 * 4 * 8 * 16 * 16 * 16
    assert (costs.weights_elements(axes) * 4).value == 4 * 8 * 16 * 16 * 4


@pytest.mark.parametrize(
    ("spec", "elements"),
    [
        (layer(512, 8), 2 * 8 * 64),
        (layer(512, 8, kind="gqa", kv_heads=2), 2 * 2 * 64),
        (layer(512, 8, kind="mqa"), 2 * 64),
        (layer(512, 8, kind="mla", latent=96, rope_dim=16), 96 + 16),
    ],
)
def test_cache_elements_by_hand(spec: AttentionSpec, elements: int) -> None:
    assert costs.cache_elements(spec) == elements


def test_projections_and_attention_cost_the_same_at_the_crossing() -> None:
    for spec in (layer(512, 8), layer(512, 8, kind="gqa"), layer(512, 8, kind="mla")):
        length = costs.crossing(spec)
        assert length == int(length)
        found = costs.flops(spec, LayerAxes(spec, RunSizes(3, int(length))))
        assert found.projections == found.attention
    assert costs.crossing(layer(512, 8)) == 2 * 512


@pytest.mark.parametrize(("batch", "length"), [(1, 7), (2, 700), (1, 2500)])
def test_streamed_memory_is_that_of_attend(batch: int, length: int) -> None:
    import torch

    from attnviz.attention.attend import attend
    from attnviz.passes import Rows

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
    model = preset("llama3-70b").model
    found = compare(model.main.spec, RunSizes(2, 8192, dtype="bfloat16"), model=model)
    mha, own = found.variants[0], next(v for v in found.variants if v.own)
    assert own.name == "GQA, G = 8"
    assert mha.token_bytes == 8 * own.token_bytes
    assert own.token_bytes == 80 * 2 * 8 * 128 * 2  # layers · (K, V) · G · d · bytes
    assert own.sequence_bytes == 8192 * own.token_bytes
    assert own.batch_bytes == 2 * own.sequence_bytes


def test_deepseek_v2_keeps_576_where_mha_keeps_32768() -> None:
    model = preset("deepseek-v2").model
    found = compare(model.main.spec, RunSizes(), model=model)
    mha, own = found.variants[0], next(v for v in found.variants if v.own)
    assert (own.elements, mha.elements) == (576, 32_768)
    assert round(100 * own.ratio, 2) == 1.76
    assert "DeepSeek-V2 (128)" in own.used_by


def test_what_fits_is_exactly_what_fits() -> None:
    for name in ("llama3-8b", "gemma2-9b", "deepseek-v2"):
        stack = stack_of(preset(name).model)
        for memory in (10**7, 10**9, 80 * 10**9):
            most = longest(stack, 2, memory)
            assert cache_bytes(stack, most, 2) <= memory < cache_bytes(stack, most + 1, 2)
    windowed = stack_of(preset("mistral-7b").model)
    assert longest(windowed, 2, 80 * 10**9) == -1  # a window's cache stops growing
    assert longest(windowed, 2, 10**6) == 7  # 131,072 bytes a token


@pytest.mark.parametrize(
    ("text", "size"),
    [("80GB", 80 * 10**9), ("80GiB", 80 << 30), ("512M", 512 * 10**6), ("1.5k", 1500), ("7B", 7)],
)
def test_memory_sizes(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize(
    "text",
    ["", "GB", "80", "80XB", "-5GB", "1e9", "80 G B", "0", "0.1", "9999EB", "iB"],
)
def test_junk_memory_sizes(text: str) -> None:
    with pytest.raises(UsageError, match=r"^memory="):
        parse_memory(text)


# sweeps


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("seq=128..1024", (128, 256, 512, 1024)),
        ("seq=100..300", (100, 200, 300)),
        ("heads=1..64:x4", (1, 4, 16, 64)),
        ("d_model=64..80:+8", (64, 72, 80)),
        ("SEQ = 5, 3,3", (3, 5)),
        ("context-length=7..7", (7,)),
    ],
)
def test_sweeps(text: str, values: tuple[int, ...]) -> None:
    assert parse_sweep(text)[1] == values


@pytest.mark.parametrize(
    "text",
    ["", "seq", "seq=", "seq=..", "seq=5..2", "seq=0..4", "seq=1..8:x1", "seq=1..8:+0", "seq=1,a",
     "seq=1..9e9", "rows=1..4", "seq=1..1000000:+1", "seq=-1..4", "seq=²", "seq=_.._", "seq=1,_"],
)  # fmt: skip
def test_junk_sweeps(text: str) -> None:
    with pytest.raises(UsageError, match=r"^sweep"):
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
        assert point.materialized == softmax.value


def test_sizes_that_make_no_sense() -> None:
    for run in (RunSizes(0), RunSizes(1, 0), RunSizes(1, 1 << 50), RunSizes(cache=-1)):
        with pytest.raises(SizeError):
            walk(layer(), run)
    for run in (RunSizes(context_length=4), RunSizes(seq=3, cache=4)):
        with pytest.raises(UsageError):
            walk(layer(), run)
    with pytest.raises(UsageError, match="cross"):
        walk(layer(kind="cross"), RunSizes(cache=3))
    with pytest.raises(SizeError, match="two sequences"):
        layer(kind="cross", causal=True)
