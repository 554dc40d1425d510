"""attend() against NumPy in float64, SDPA, nn.MultiheadAttention and hand-computed values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from attnviz.attention.layers import attend
from attnviz.core.heads import Site
from attnviz.core.source import Rows
from tests.reference import attention


class Whole:
    """Puts the blocks together again, and checks that they come in order and without gaps."""

    def __init__(self, keys: int) -> None:
        self.keys, self.blocks, self.next = keys, [], 0

    def observe(self, rows: Rows) -> None:
        b, h, r, s = rows.weights.shape
        assert rows.start == self.next
        self.next += r
        full = torch.zeros(b, h, r, self.keys, dtype=rows.weights.dtype)
        full[..., rows.key_start : rows.key_start + s] = rows.weights
        self.blocks.append(full)
        if rows.allowed is not None:
            allowed = rows.allowed.expand(b, h, r, s)
            assert (rows.weights[~allowed] == 0).all()

    @property
    def weights(self) -> torch.Tensor:
        return torch.cat(self.blocks, dim=2)


def both(q: Any, k: Any, v: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor, Any]:
    """Weights, output and empty rows; the way without observers must agree with the other."""
    whole = Whole(k.shape[2])
    out = attend(q, k, v, observers=[whole], **options)
    options.pop("block_rows", None)
    fused = attend(q, k, v, **options)
    torch.testing.assert_close(out.output, fused.output, rtol=1e-4, atol=1e-5)
    if out.empty is None:
        assert fused.empty is None
    else:
        assert torch.equal(*torch.broadcast_tensors(out.empty, fused.empty))
    return whole.weights, out.output, out.empty


def test_vectors() -> None:
    """Causal attention of one head, worked out in float64."""
    q = [[0.2, 0.1, 0.4], [0, 0.5, 0.3], [0.1, 0, 0.2], [0.3, 0.2, 0.1]]
    k = [[0.2, 0, 0.1], [0.1, 0.4, 0.3], [0.3, 0.1, 0.2], [0, 0.2, 0.2]]
    v = [[0.5, 0.0], [-0.2, 0.1], [0.3, -0.1], [0.0, 0.2]]
    q, k, v = (torch.tensor(x, dtype=torch.float64)[None, None] for x in (q, k, v))
    weights, output, _ = both(q, k, v, causal=True, block_rows=3)
    assert output[0, 0, 0].tolist() == [0.5, 0.0]
    # row 1 by hand: scores 0.03 and 0.29 over sqrt(3)
    high = 1 / (1 + math.exp((0.03 - 0.29) / math.sqrt(3)))
    assert weights[0, 0, 1].tolist() == pytest.approx([1 - high, high, 0, 0], abs=1e-12)
    assert output[0, 0, 1].tolist() == pytest.approx([0.5 - 0.7 * high, 0.1 * high], abs=1e-12)
    expected, mixed = attention(q.numpy(), k.numpy(), v.numpy(), np.tri(4, dtype=bool))
    np.testing.assert_allclose(weights, expected, atol=1e-14)
    np.testing.assert_allclose(output, mixed, atol=1e-14)


sizes = st.sampled_from([1, 2, 3, 5, 7, 11, 13])


@given(
    batch=st.sampled_from([1, 2, 3]), groups=st.sampled_from([1, 2, 3]),
    share=st.sampled_from([1, 2, 5]), length=sizes, keys=sizes, width=sizes, value_width=sizes,
    causal=st.booleans(), window=st.sampled_from([None, 1, 2, 4, 50]),
    masking=st.sampled_from(["none", "bool", "additive", "row", "heads"]), padded=st.booleans(),
    biased=st.booleans(), softcap=st.sampled_from([None, 0.7]),
    scale=st.sampled_from([None, 1.0, 0.3]), block_rows=st.sampled_from([1, 2, 3, 100]),
    seed=st.integers(0, 10_000),
)  # fmt: skip
def test_equals_float64_numpy(
    batch, groups, share, length, keys, width, value_width, causal, window, masking, padded,
    biased, softcap, scale, block_rows, seed,
):  # fmt: skip
    rng = np.random.default_rng(seed)
    heads = groups * share
    q = rng.normal(size=(batch, heads, length, width))
    k = rng.normal(size=(batch, groups, keys, width))
    v = rng.normal(size=(batch, groups, keys, value_width))
    i = np.arange(length)[:, None] + keys - length
    j = np.arange(keys)
    allowed = np.ones((batch, 1, length, keys), dtype=bool)
    if causal:
        allowed &= j <= i
    if window:
        allowed &= abs(i - j) < window
    options: dict[str, Any] = {"causal": causal, "window": window, "softcap": softcap}
    if padded:
        padding = rng.random((batch, keys)) < 0.7
        allowed = allowed & padding[:, None, None]
        options["padding"] = torch.tensor(padding)
    bias = np.zeros(())
    if masking != "none":
        shape = {"row": (length, keys), "heads": (batch, heads, length, keys)}
        mask = rng.random(shape.get(masking, (batch, 1, length, keys))) < 0.7
        allowed = allowed & mask
        options["mask"] = torch.tensor(mask)
        if masking == "additive":
            bias = rng.normal(size=mask.shape)
            lowest = np.finfo(np.float64).min
            options["mask"] = torch.tensor(np.where(mask, bias, lowest))
    if biased:
        extra = rng.normal(size=(1, heads, length, keys))
        options["bias"] = torch.tensor(extra)
        bias = bias + extra
    expected, mixed = attention(q, k, v, allowed, bias, scale, softcap)
    tq, tk, tv = (torch.tensor(x) for x in (q, k, v))
    weights, output, empty = both(tq, tk, tv, scale=scale, block_rows=block_rows, **options)
    np.testing.assert_allclose(weights, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(output, mixed, rtol=1e-9, atol=1e-12)
    none_left = ~np.broadcast_to(allowed, expected.shape).any(-1)
    if empty is None:
        assert not none_left.any()
    else:
        assert np.array_equal(np.broadcast_to(empty, none_left.shape), none_left)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
def test_low_precision_keeps_softmax_in_float32(dtype: torch.dtype, causal: bool) -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 4, 37, 16).to(dtype) for _ in range(3))
    whole = Whole(37)
    out = attend(q, k, v, causal=causal, observers=[whole], block_rows=8).output
    assert whole.weights.dtype == torch.float32
    assert out.dtype == dtype
    assert (whole.weights.sum(-1) - 1).abs().max() < 1e-6
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=causal)
    tolerance = {torch.float32: 1e-6, torch.bfloat16: 2e-2, torch.float16: 2e-3}[dtype]
    assert (out.double() - expected).abs().max() < tolerance


def test_causal_blocks_leave_out_unreachable_keys() -> None:
    """The speed of causal attention: row block 0 must not look at the last keys."""
    shapes = []

    class Shapes:
        def observe(self, rows: Rows) -> None:
            shapes.append((rows.start, rows.key_start, rows.weights.shape[-1]))

    q = torch.randn(1, 1, 8, 4)
    attend(q, q, q, causal=True, window=3, block_rows=2, observers=[Shapes()])
    assert shapes == [(0, 0, 2), (2, 0, 4), (4, 2, 4), (6, 4, 4)]


def test_keys_are_not_copied_for_their_query_heads() -> None:
    """Eight query heads on one key head cost no more key memory than one."""
    q, k = torch.randn(1, 8, 3, 64), torch.randn(1, 1, 100_000, 64)
    before = k.data_ptr()
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            if isinstance(out, torch.Tensor) and out.data_ptr() != before:
                seen.append(out.numel())
            return out

    with Watch():
        attend(q, k, k, observers=[Whole(100_000)], block_rows=1)
    assert max(seen) < k.numel()


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_equals_nn_multihead_attention(cross: bool, masked: bool) -> None:
    torch.manual_seed(3)
    mha = torch.nn.MultiheadAttention(20, 5, batch_first=True).double().eval()
    x = torch.randn(3, 7, 20, dtype=torch.float64)
    y = torch.randn(3, 11, 20, dtype=torch.float64) if cross else x
    s = y.shape[1]
    blocked = torch.rand(7, s) < 0.3
    blocked[:, 0] = False
    padding = torch.ones(3, s, dtype=torch.bool)
    padding[1, -2:] = False
    expected, weights = mha(
        x, y, y, average_attn_weights=False,
        attn_mask=blocked if masked else None,
        key_padding_mask=~padding if masked else None,
    )  # fmt: skip
    wq, wk, wv = mha.in_proj_weight.chunk(3)
    bq, bk, bv = mha.in_proj_bias.chunk(3)
    q, k, v = (
        (z @ w.T + b).unflatten(-1, (5, 4)).transpose(1, 2)
        for z, w, b in ((x, wq, bq), (y, wk, bk), (y, wv, bv))
    )
    options = {"mask": ~blocked, "padding": padding} if masked else {}
    mine, output, _ = both(q, k, v, block_rows=2, **options)
    torch.testing.assert_close(mine, weights)
    joined = mha.out_proj(output.transpose(1, 2).flatten(2))
    torch.testing.assert_close(joined, expected)


def test_rows_without_keys_are_zero_and_reported() -> None:
    q = torch.randn(1, 2, 4, 8)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[2] = False
    weights, output, empty = both(q, q, q, mask=mask, block_rows=3)
    assert empty.squeeze().tolist() == [False, False, True, False]
    assert (weights[:, :, 2] == 0).all()
    assert (output[:, :, 2] == 0).all()
    assert torch.isfinite(output).all()


@pytest.mark.parametrize("low", [-1e4, -1e9, float(np.finfo(np.float32).min)])
def test_keys_far_below_their_row_are_blocked(low: float) -> None:
    """Older masks are -10000, with a bias on top of it; such keys are none of the allowed."""
    q = torch.randn(1, 2, 6, 8)
    free = torch.ones(6, 6).tril().bool()
    mask = torch.where(free, 0.0, low) + 0.3 * torch.rand(6, 6)
    seen: list[torch.Tensor] = []

    class Allowed:
        def observe(self, rows: Any) -> None:
            seen.append(rows.allowed)

    attend(q, q, q, mask=mask, observers=[Allowed()], block_rows=4)
    assert torch.equal(torch.cat(seen, 2)[0, 0], free)
    alibi = -0.5 * (torch.arange(400)[:, None] - torch.arange(400)).abs()
    seen.clear()
    long = torch.randn(1, 1, 400, 4)
    attend(long, long, long, mask=alibi, observers=[Allowed()])
    assert all(allowed is None or allowed.all() for allowed in seen)


def test_more_queries_than_keys() -> None:
    """Without masks no row can be empty; with a causal one the first rows are."""
    q, k = torch.randn(1, 2, 7, 4), torch.randn(1, 2, 3, 4)
    assert both(q, k, k)[2] is None
    assert both(q, k, k, causal=True)[2].squeeze().tolist() == [True] * 4 + [False] * 3


def test_dropout_acts_on_the_weights_that_observers_see_whole() -> None:
    torch.manual_seed(0)
    q, v = torch.randn(1, 1, 50, 4), torch.eye(50)[None, None]
    whole = Whole(50)
    dropped = attend(q, q, v, dropout=0.5, observers=[whole]).output
    assert (whole.weights.sum(-1) - 1).abs().max() < 1e-5
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], 2 * whole.weights[kept])
    assert 0.4 < kept.float().mean() < 0.6


def test_gradients_pass_through_the_blocks() -> None:
    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, 5, 3, dtype=torch.float64, requires_grad=True) for _ in range(3))

    def run(*qkv: torch.Tensor) -> torch.Tensor:
        return attend(*qkv, causal=True, observers=[Whole(5)], block_rows=2).output

    assert torch.autograd.gradcheck(run, (q, k, v))


def test_the_site_is_named() -> None:
    sites = []

    class Sites:
        def observe(self, rows: Rows) -> None:
            sites.append(rows.site)

    q = torch.randn(1, 1, 3, 2)
    attend(q, q, q, site=Site("cross", 7), observers=[Sites()])
    assert sites == [Site("cross", 7)]


@pytest.mark.parametrize(
    ("q", "k", "v", "says"),
    [
        ((1, 2, 3, 4), (1, 2, 3, 5), (1, 2, 3, 4), "do not fit"),
        ((1, 3, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), "multiple of key heads"),
        ((2, 3, 4), (2, 3, 4), (2, 3, 4), "batch, heads"),
    ],
)
def test_shapes_that_do_not_fit(q: tuple, k: tuple, v: tuple, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        attend(torch.zeros(q), torch.zeros(k), torch.zeros(v))
