"""Fresh layers against nn.MultiheadAttention and float64 NumPy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from attnviz.attention import contributions
from attnviz.attention.contributions import Writes
from attnviz.attention.layers import attend, build_layer, rotate, split_heads
from attnviz.attention.spec import check_sizes
from attnviz.core.heads import Site, SiteKind
from attnviz.core.source import Gate, Rows
from attnviz.core.weights import Normalization, OutputProjection, output_slices
from attnviz.errors import SizeError
from tests.attention.test_attend import Whole
from tests.reference import attention, rope


def numpy_linear(linear: torch.nn.Linear, x: np.ndarray) -> np.ndarray:
    y = x @ linear.weight.detach().double().numpy().T
    return y if linear.bias is None else y + linear.bias.detach().double().numpy()


def heads_of(x: np.ndarray, heads: int) -> np.ndarray:
    b, t, _ = x.shape
    return np.moveaxis(x.reshape(b, t, heads, -1), 2, 1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("mha", {}), ("gqa", {"kv_heads": 3}), ("mqa", {}), ("mla", {"latent": 7, "rope_dim": 6}),
        ("mla", {"latent": 5, "rope_dim": 0, "head_dim": 3}), ("cross", {}),
    ],
)  # fmt: skip
def test_layer_equals_float64_numpy(kind, options, causal, bias) -> None:
    torch.manual_seed(1)
    layer = build_layer(kind, 30, 6, bias=bias, causal=causal, seed=4, **options).double()
    for parameter in layer.parameters():  # biases start at zero, which would hide a lost one
        if parameter.ndim == 1:
            parameter.data.normal_()
    x = torch.randn(2, 11, 30, dtype=torch.float64)
    y = torch.randn(2, 13, 30, dtype=torch.float64) if kind == "cross" else x
    nx, ny = x.numpy(), y.numpy()
    if kind == "mla":
        r, d_r, d = layer.latent, layer.rope_dim, layer.head_dim
        latent = numpy_linear(layer.w_latent, ny)
        assert latent.shape[-1] == r
        q = heads_of(numpy_linear(layer.w_q, nx), 6)
        k = heads_of(numpy_linear(layer.w_k, latent), 6)
        v = heads_of(numpy_linear(layer.w_v, latent), 6)
        if d_r:
            shared = rope(numpy_linear(layer.w_k_rope, ny))
            q = np.concatenate([q[..., :d], rope(q[..., d:])], -1)
            k = np.concatenate([k, np.repeat(shared[:, None], 6, axis=1)], -1)
    else:
        q = heads_of(numpy_linear(layer.w_q, nx), 6)
        k = heads_of(numpy_linear(layer.w_k, ny), layer.kv_heads)
        v = heads_of(numpy_linear(layer.w_v, ny), layer.kv_heads)
    t, s = nx.shape[1], ny.shape[1]
    allowed = np.tri(t, s, s - t, dtype=bool) if causal else None
    weights, mixed = attention(q, k, v, allowed)
    expected = numpy_linear(layer.w_o, np.moveaxis(mixed, 1, 2).reshape(2, t, -1))

    whole = Whole(s)
    output = layer(x, y, site=Site("encoder", 0), observers=[whole])
    np.testing.assert_allclose(whole.weights, weights, atol=1e-12)
    np.testing.assert_allclose(output.detach(), expected, atol=1e-7)
    np.testing.assert_allclose(layer(x, y).detach(), expected, atol=1e-7)


def beside_torch(
    width: int, heads: int, cross: bool, seed: int
) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Weights and outputs of a layer, each with those of nn.MultiheadAttention with its weights."""
    torch.manual_seed(seed)
    theirs = torch.nn.MultiheadAttention(width, heads, batch_first=True).eval()
    mine = build_layer("cross" if cross else "mha", width, heads).eval()
    with torch.no_grad():
        for linear, w, b in zip(
            (mine.w_q, mine.w_k, mine.w_v),
            theirs.in_proj_weight.chunk(3),
            theirs.in_proj_bias.chunk(3),
            strict=True,
        ):
            linear.weight.copy_(w)
            linear.bias.copy_(b)
        mine.w_o.load_state_dict(theirs.out_proj.state_dict())
    x = torch.randn(2, 12, width)
    y = torch.randn(2, 20, width) if cross else x
    padding = torch.ones(2, y.shape[1], dtype=torch.bool)
    padding[0, -3:] = False
    expected, weights = theirs(
        x, y, y, average_attn_weights=False, key_padding_mask=~padding
    )  # fmt: skip
    whole = Whole(y.shape[1])
    output = mine(x, y, padding=padding, observers=[whole])
    return (whole.weights, weights), (output, expected)


@pytest.mark.parametrize("cross", [False, True])
def test_layer_equals_nn_multihead_attention(cross: bool) -> None:
    for ours, theirs in beside_torch(24, 4, cross, seed=2):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", ["mha", "gqa", "mqa", "mla", "cross"])
def test_contributions_of_the_heads_add_up(kind: str) -> None:
    layer = build_layer(kind, 40, 8, seed=5).double()
    layer.w_o.bias.data.normal_()
    x, y = (torch.randn(3, n, 40, dtype=torch.float64) for n in (5, 9))
    context = y if kind == "cross" else None
    parts = layer.contributions(layer.attend(x, context).output)
    assert parts.shape == (3, 8, 5, 40)
    torch.testing.assert_close(parts.sum(1) + layer.w_o.bias, layer(x, context))
    one = layer.attend(x, context).output[:, 2] @ output_slices(layer.w_o.weight, layer.heads)[2]
    torch.testing.assert_close(parts[:, 2], one)


def test_shapes_of_the_background() -> None:
    layer = build_layer("mha", 128, 8, causal=True)
    whole = Whole(16)
    assert layer(torch.randn(4, 16, 128), observers=[whole]).shape == (4, 16, 128)
    assert whole.weights.shape == (4, 8, 16, 16)
    cross = build_layer("cross", 256, 8)
    whole = Whole(20)
    cross(torch.randn(2, 12, 256), torch.randn(2, 20, 256), observers=[whole])
    assert whole.weights.shape == (2, 8, 12, 20)
    big = build_layer("mha", 512, 8, bias=False)
    assert sum(p.numel() for p in big.parameters()) == 1_048_576
    assert sum(p.numel() for p in build_layer("mha", 512, 8).parameters()) == 1_048_576 + 2_048


def test_seed_decides_the_weights_and_leaves_the_global_state_alone() -> None:
    state = torch.random.get_rng_state()
    a, b, c = (build_layer("gqa", 16, 4, seed=s).state_dict() for s in (7, 7, 8))
    assert torch.equal(state, torch.random.get_rng_state())
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not torch.equal(a["w_q.weight"], c["w_q.weight"])


def test_dropout_only_while_training() -> None:
    layer = build_layer("mha", 16, 4, dropout=0.5)
    x = torch.randn(1, 9, 16)
    assert not torch.allclose(layer.train()(x), layer(x))
    assert torch.allclose(layer.eval()(x), layer(x))


def test_rotary_scores_depend_on_distance_only() -> None:
    q, k = torch.randn(2, 8, dtype=torch.float64)
    many_q, many_k = (rotate(z.expand(10, 8)) for z in (q, k))
    scores = many_q @ many_k.T
    for distance in range(10):
        diagonal = scores.diagonal(-distance)
        torch.testing.assert_close(diagonal, diagonal[:1].expand_as(diagonal))
    assert not torch.allclose(scores[0], scores[0, 0].expand(10))


def test_split_heads_keeps_heads_together() -> None:
    x = torch.arange(2 * 4 * 8).view(2, 4, 8)
    assert split_heads(x, 2).shape == (2, 2, 4, 4)
    assert split_heads(x, 2)[1, 1, 3].tolist() == x[1, 3, 4:].tolist()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((512, 6, {}), r"85\.33 per head.*nearest: 4 or 8"),
        ((7, 2, {}), "head counts that work: 1, 7"),
        ((0, 2, {}), "d-model must be at least 1, got 0"),
        ((8, -1, {}), "heads must be at least 1, got -1"),
        ((8, 4, {"kv_heads": 3}), "kv-heads that work: 1, 2, 4"),
        ((8, 4, {"kind": "mqa", "kv_heads": 4}), "one key/value head, not 4"),
        ((8, 4, {"kind": "mha", "kv_heads": 2}), "use kind='gqa'"),
        ((8, 4, {"kind": "gqa", "latent": 2}), "latent 2 belongs to kind mla"),
        ((8, 4, {"kind": "mla", "rope_dim": 3}), "the rotary width must be even"),
        ((8, 4, {"kind": "mla", "kv_heads": 2}), "leave out kv-heads 2"),
        ((10**9, 4, {}), "no model is that wide"),
    ],
)
def test_sizes_explain_themselves(arguments: tuple, says: str) -> None:
    d_model, heads, options = arguments
    with pytest.raises(SizeError, match=says):
        check_sizes(d_model, heads, **options)


@pytest.mark.parametrize(("heads", "groups"), [(32, 8), (12, 3), (8, 2), (7, 1), (6, 1)])
def test_gqa_default(heads: int, groups: int) -> None:
    assert check_sizes(heads * 4, heads, kind="gqa").kv_heads == groups


B, H, G, T, D_V, D = 2, 4, 2, 9, 3, 10


class Blocks:
    def __init__(self) -> None:
        self.rows: list[Rows] = []

    def observe(self, rows: Rows) -> None:
        self.rows.append(replace(rows, weights=rows.weights.clone()))


class Case:
    """A layer with everything written out: c[b, i, j, d] of all heads, and per head."""

    def __init__(
        self, *, causal: bool, keys: int = T, kind: SiteKind = "encoder", gate: Gate | None = None,
        rms: bool = False, window: int | None = None,
    ) -> None:  # fmt: skip
        random = torch.Generator().manual_seed(7)

        def draw(*shape: int) -> Tensor:
            return torch.randn(shape, generator=random, dtype=torch.float64)

        q, k, v = draw(B, H, T, 5), draw(B, G, keys, 5), draw(B, G, keys, D_V)
        self.matrix, self.bias, self.x = draw(H, D_V, D), draw(D), draw(B, T, D)
        self.norm = Normalization(draw(D), 1e-3, None if rms else draw(D), centred=not rms)
        blocks, put = Blocks(), Whole(keys)
        out = attend(q, k, v, causal=causal, window=window, gate=gate, residual=self.x,
                     site=Site(kind, 0), observers=[blocks, put], block_rows=4)  # fmt: skip
        self.rows, self.across = blocks.rows, kind == "cross"
        self.attended = torch.einsum("bhtv,hvd->btd", out.output, self.matrix) + self.bias
        share = torch.ones(H).double() if gate is None else gate.share.double()
        self.f = torch.einsum("bhsv,hvd->bhsd", v.repeat_interleave(H // G, 1), self.matrix)
        self.heads = torch.einsum("bhts,bhsd->bhtsd", put.weights * share[:, None, None], self.f)
        self.layer = self.heads.sum(1)

    def writes(self, rows: Rows, *, residual: bool = False, norm: bool = False) -> Writes:
        projection = OutputProjection(self.matrix, self.bias)
        chosen = self.norm if norm else None
        return Writes.of(rows, projection, residual=residual, norm=chosen)

    def parts(self, *, residual: bool, norm: bool) -> tuple[Tensor, Tensor]:
        """T_i(x_j) [B, T, S, D] and y_i [B, T, D], from the definition."""
        parts, whole = self.layer.clone(), self.attended
        if residual:
            whole = whole + self.x
            if not self.across:
                for i in range(T):
                    parts[:, i, i] += self.x[:, i]
        if not norm:
            return parts, whole
        scale, eps, shift = self.norm.scale, self.norm.eps, self.norm.shift
        if self.norm.centred:
            sigma = (whole.var(-1, unbiased=False, keepdim=True) + eps).sqrt()
            parts = parts - parts.mean(-1, keepdim=True)
            whole = F.layer_norm(whole, (D,), scale, shift, eps)
        else:
            sigma = (whole.square().mean(-1, keepdim=True) + eps).sqrt()
            whole = F.rms_norm(whole, (D,), scale, eps)
        return parts * scale / sigma[:, :, None], whole


CASES = {
    "whole": {"causal": False},
    "causal": {"causal": True},
    "window": {"causal": True, "window": 3},
    "cross": {"causal": False, "keys": 6, "kind": "cross"},
    "rms": {"causal": False, "rms": True},
    "gated": {
        "causal": True,
        "gate": Gate(
            torch.tensor([1.0, 0.0, 0.5, 1.0], dtype=torch.float64),
            torch.arange(12.0, dtype=torch.float64).view(H, D_V),
        ),
    },
    "resampled": {
        "causal": True,
        "gate": Gate(
            torch.tensor([0.0, 1.0, 0.5, 1.0], dtype=torch.float64),
            torch.arange(B * T * H * D_V).double().sin().view(B, T, H, D_V),
        ),
    },
}
SORTS = [(False, False), (True, False), (True, True)]


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return Case(**CASES[request.param])  # type: ignore[arg-type]


def whole(case: Case, blocks: list[Tensor]) -> Tensor:
    """Blocks [..., r, s] put together, zero elsewhere."""
    keys = case.f.shape[2]
    out = blocks[0].new_zeros(*blocks[0].shape[:-2], T, keys)
    for rows, block in zip(case.rows, blocks, strict=True):
        r, s = block.shape[-2:]
        out[..., rows.start : rows.start + r, rows.key_start : rows.key_start + s] = block
    return out


def test_norms_of_heads(case: Case) -> None:
    found = []
    for rows in case.rows:
        writes = case.writes(rows)
        norms = contributions.value_norms(writes.values, writes.matrix)
        found.append(writes.weights * norms[:, :, None])
    torch.testing.assert_close(whole(case, found), case.heads.norm(dim=-1))


@pytest.mark.parametrize(("residual", "norm"), SORTS)
def test_norms_of_layers_by_gram_matrices(case: Case, residual: bool, norm: bool) -> None:
    found = []
    for rows in case.rows:
        writes = case.writes(rows, residual=residual, norm=norm)
        grams = contributions.grams(writes.values, writes.matrix, writes.norm)
        found.append(contributions.layer_norms(writes, grams))
    expected, _ = case.parts(residual=residual, norm=norm)
    torch.testing.assert_close(whole(case, found), expected.norm(dim=-1), rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("residual", "norm", "size"),
    [*((*sort, 200) for sort in SORTS), (True, True, 1), (True, True, 1 << 20)],
)
def test_parts_add_up_and_alti_distances(
    case: Case, residual: bool, norm: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contributions, "PART_ELEMENTS", size)
    expected, output = case.parts(residual=residual, norm=norm)
    far = (output[:, :, None] - expected).abs().sum(-1)
    for rows in case.rows:
        writes = case.writes(rows, residual=residual, norm=norm)
        r, s = rows.weights.shape[2:]
        here = slice(rows.start, rows.start + r)
        keys = slice(rows.key_start, rows.key_start + s)
        torch.testing.assert_close(writes.output, output[:, here])
        summed = contributions.remainder(writes).clone()
        for some, columns, made in contributions.parts(writes):
            torch.testing.assert_close(made, expected[:, here, keys][:, some, columns])
            summed[:, some] += made.sum(2)
        torch.testing.assert_close(summed, output[:, here])
        torch.testing.assert_close(contributions.distances(writes), far[:, here, keys])


@pytest.mark.parametrize(("residual", "norm"), SORTS)
def test_mixing_ratios(case: Case, residual: bool, norm: bool) -> None:
    if case.across:
        return
    expected, _ = case.parts(residual=residual, norm=norm)
    diagonal = torch.eye(T, dtype=torch.float64)[:, :, None]

    def ratio(parts: Tensor) -> Tensor:
        mixing, kept = (parts * (1 - diagonal)).sum(-2), (parts * diagonal).sum(-2)
        return mixing.norm(dim=-1) / (mixing.norm(dim=-1) + kept.norm(dim=-1))

    for rows in case.rows:
        here = slice(rows.start, rows.start + rows.weights.shape[2])
        heads, layer = contributions.mixing_ratios(case.writes(rows, residual=residual, norm=norm))
        torch.testing.assert_close(heads, ratio(case.heads)[:, :, here], equal_nan=True)
        torch.testing.assert_close(layer, ratio(expected)[:, here])
