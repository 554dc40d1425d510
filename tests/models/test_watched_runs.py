"""What a pass is, and that a run that is watched is the run that it would be."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import attnviz as av
from attnviz.core.heads import Site
from attnviz.errors import InputError, UsageError

B, T, D, H = 2, 6, 24, 3
W = D // H


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


class Written(nn.Module):
    """Attention written out, which keeps its weights."""

    def __init__(self, heads: int = H, width: int = D) -> None:
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v = (nn.Linear(D, width, bias=False) for _ in range(3))
        self.kept: list[Tensor] = []

    def parts(self, x: Tensor) -> list[Tensor]:
        """Queries, keys and values, [B, H, T, d] each."""
        return [
            f(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for f in (self.q, self.k, self.v)
        ]

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.parts(x)
        a = (q @ k.mT).softmax(-1)
        self.kept.append(a.detach().clone())
        return (a @ v).transpose(1, 2).flatten(2)


class Function(Written):
    """The same by the function."""

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.parts(x)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)


class Stack(nn.Module):
    """Layers, with ways to run them that do not go through ``__call__`` of the whole."""

    def __init__(self, layer: Callable[[], nn.Module], recomputes: bool | None = None) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(layer() for _ in range(3))
        self.recomputes = recomputes
        self.q, self.k, self.v = (nn.Linear(D, D) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            if self.recomputes is None:
                x = x + block(x)
            else:
                x = x + checkpoint(block, x, use_reentrant=self.recomputes)
        return x

    def forward_features(self, x: Tensor) -> Tensor:
        return self.forward(x)

    def predict(self, x: Tensor) -> Tensor:
        q, k, v = (f(x).unflatten(-1, (H, -1)).transpose(1, 2) for f in (self.q, self.k, self.v))
        return F.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize("reentrant", [True, False])
def test_layers_that_backward_runs_again_are_not_another_pass(reentrant: bool) -> None:
    module = Stack(Written, reentrant)
    x = torch.randn(B, T, D, requires_grad=True)
    module(x).square().sum().backward()
    wanted = [p.grad.clone() for p in module.blocks.parameters() if p.grad is not None]
    module.zero_grad()
    for block in module.blocks:
        block.kept.clear()
    with av.watch(module, passes=4) as watched:
        module(x).square().sum().backward()
    assert len(watched) == 1
    for layer, block in enumerate(module.blocks):
        np.testing.assert_array_equal(
            watched.capture(item=1).maps[Site("encoder", layer)], block.kept[0][1].numpy()
        )
    grads = [p.grad for p in module.blocks.parameters() if p.grad is not None]
    assert all(torch.equal(a, b) for a, b in zip(grads, wanted, strict=True))


@pytest.mark.parametrize("reentrant", [True, False])
def test_heads_of_checkpointed_layers_are_refused_where_they_would_differ(reentrant: bool) -> None:
    module = Stack(Written, reentrant)
    x = torch.randn(B, T, D, requires_grad=True)
    with av.watch(module) as watched:
        module(x)
        with watched.ablate("0.0"), pytest.raises(UsageError, match="checkpointing runs again"):
            module(x).sum().backward()


@pytest.mark.parametrize("layer", [Written, Function, lambda: nn.TransformerEncoderLayer(
    D, H, 8, 0.0, batch_first=True)])  # fmt: skip
@pytest.mark.parametrize("way", ["forward", "forward_features"])
def test_methods_of_the_module_are_passes(layer: Any, way: str) -> None:
    module = Stack(layer).eval()
    x = torch.randn(B, T, D)
    with torch.no_grad(), av.watch(module, passes=2) as watched:
        module(x)
        for _ in range(2):
            getattr(module, way)(x)
    assert len(watched) == 2
    for index in (0, 1):
        capture = watched.capture(item=0, index=index)
        assert dict(capture.layout.heads) == {"encoder": (H,) * 3}
    assert [path.partition(".s")[0] for path in watched.layers.values()] == [
        f"blocks.{n}" for n in range(3)
    ]


def test_a_function_in_a_method_of_the_module_is_seen() -> None:
    module = Stack(Function)
    x = torch.randn(B, T, D)
    with av.watch(module, passes=3) as watched:
        module.predict(x)
        module.predict(x)
        F.scaled_dot_product_attention(*[torch.randn(1, 1, 4, 8)] * 3)
    assert len(watched) == 2
    assert watched.layers == {"0": "Stack"}


def test_encoder_and_decoder_called_apart() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = Stack(Written), Stack(Function)

    module = Both()
    with av.watch(module, passes=2) as watched:
        for _ in range(2):
            memory = module.encoder(torch.randn(B, T, D))
            module.decoder(memory)
    assert len(watched) == 2
    assert list(watched.layers.values()) == [
        *(f"encoder.blocks.{n}" for n in range(3)),
        *(f"decoder.blocks.{n}" for n in range(3)),
    ]


def test_a_pool_by_the_function_of_pytorch() -> None:
    class Pool(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v, self.c = (nn.Linear(D, D) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            x = torch.cat([x.mean(0, keepdim=True), x])
            return F.multi_head_attention_forward(
                x[:1], x, x, D, H, None,
                torch.cat([self.q.bias, self.k.bias, self.v.bias]), None, None, False, 0.0,
                self.c.weight, self.c.bias, use_separate_proj_weight=True,
                q_proj_weight=self.q.weight, k_proj_weight=self.k.weight,
                v_proj_weight=self.v.weight, training=self.training, need_weights=False,
            )[0]  # fmt: skip

    module = nn.Sequential(nn.LayerNorm(D), Pool())
    x = torch.randn(T, B, D)
    plain = module(x)
    with torch.no_grad():
        y = torch.cat([module[0](x).mean(0, keepdim=True), module[0](x)])
        q, k = (f(y).view(T + 1, B, H, W).permute(1, 2, 0, 3) for f in (module[1].q, module[1].k))
        wanted = (q[:, :, :1] @ k.mT / W**0.5).softmax(-1)
    with av.watch(module) as watched:
        assert torch.equal(module(x), plain)
    assert watched.layers == {"0": "1"}
    maps = watched.capture(item=1).maps[Site("cross", 0)]
    np.testing.assert_allclose(maps, wanted[1], atol=1e-6)


class Own(nn.MultiheadAttention):
    """PyTorch's module with another call."""

    def forward(self, x: Tensor, *, scale: float = 1.0) -> Tensor:
        return super().forward(x * scale, x, x)[0]


class Unlike(nn.MultiheadAttention):
    """PyTorch's module in name only."""

    def forward(self, states: dict[str, Tensor], depth: int) -> Tensor:
        q, k, v = F.linear(states["x"], self.in_proj_weight).chunk(3, -1)
        q, k, v = (y.unflatten(-1, (H, -1)).transpose(1, 2) for y in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, scale=1 / depth)


def test_subclasses_of_pytorchs_module_with_another_call() -> None:
    x = torch.randn(B, T, D)
    for module, call in (
        (Own(D, H, batch_first=True), lambda m: m(x, scale=2.0)),
        (Unlike(D, H), lambda m: m(states={"x": x}, depth=4)),
    ):
        plain = call(module)
        with av.watch(module) as watched:
            assert torch.equal(call(module), plain)
        kind = "encoder" if isinstance(module, Unlike) else "cross"  # queries are scaled
        assert dict(watched.capture(item=1).layout.heads) == {kind: (H,)}


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors_run_and_are_noted(layout: torch.layout) -> None:
    class Nested(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.scaled_dot_product_attention(x, x, x)

    pieces = [torch.randn(n, H, W) for n in (2, 5)]
    if layout is torch.strided:
        pieces = [piece.transpose(0, 1).contiguous() for piece in pieces]
    x = torch.nested.nested_tensor(pieces, layout=layout)
    x = x.transpose(1, 2) if layout is torch.jagged else x
    module = Nested()
    plain = module(x)
    with av.watch(module) as watched:
        seen = module(x)
    assert all(torch.equal(a, b) for a, b in zip(plain.unbind(), seen.unbind(), strict=True))
    with pytest.raises(UsageError, match=r"not read: Nested: .*nested tensors"):
        watched.capture()


@pytest.mark.parametrize("lengths", [(4, 6), (6, 6)])
def test_an_encoder_on_nested_tensors(lengths: tuple[int, ...]) -> None:
    layer = nn.TransformerEncoderLayer(D, 4, 8, batch_first=True)
    module = nn.TransformerEncoder(layer, 2).eval()
    x, padding = torch.randn(2, 6, D), torch.arange(6) >= torch.tensor(lengths)[:, None]
    nested = torch.nested.nested_tensor([row[:n] for row, n in zip(x, lengths, strict=True)])
    with torch.no_grad():
        plain, packed = module(x, src_key_padding_mask=padding), module(nested)
        with av.watch(module) as watched:
            assert torch.equal(module(x, src_key_padding_mask=padding), plain)
            assert watched.capture(item=0).layout.heads == {"encoder": (4, 4)}
            seen = module(nested)
    assert all(torch.equal(a, b) for a, b in zip(packed.unbind(), seen.unbind(), strict=True))
    assert "not read" in repr(watched)


def test_the_function_on_three_and_on_five_axes() -> None:
    class Folded(Written):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (f(x).view(B, T, H, W) for f in (self.q, self.k, self.v))
            deep = [y.permute(2, 0, 1, 3).reshape(1, H, B, T, W) for y in (q, k, v)]
            flat = [y.permute(2, 0, 1, 3).reshape(H * B, T, W) for y in (q, k, v)]
            five = F.scaled_dot_product_attention(*deep)
            return five.reshape(H * B, T, W) + F.scaled_dot_product_attention(*flat)

    module = Folded()
    x = torch.randn(B, T, D)
    plain = module(x)
    q, k = (f(x).view(B, T, H, W).transpose(1, 2) for f in (module.q, module.k))
    wanted = (q.double() @ k.double().mT / W**0.5).softmax(-1).detach()
    with av.watch(module) as watched:
        assert torch.equal(module(x), plain)
    for item in range(B):
        capture = watched.capture(item=item)
        for layer in (0, 1):
            maps = capture.maps[Site("encoder", layer)]
            np.testing.assert_allclose(maps, wanted[item], atol=1e-6)


@pytest.mark.parametrize("shape", [(4, T, W), (B, H, T, W), (2, B, H, T, W)])
def test_axes_that_nothing_tells_are_asked_for(shape: tuple[int, ...]) -> None:
    class Core(nn.Module):
        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return (q @ k.mT).softmax(-1) @ v

    q, k, v = torch.randn(3, *shape)
    weights = (q @ k.mT).softmax(-1)
    with av.watch(Core()) as watched:
        watched._watch._module(q, k, v)
    if len(shape) == 3:  # one axis is items, each with one head
        assert np.array_equal(watched.capture(item=3)["0.0"], weights[3])
        with av.watch(Core(), batch=2, order="hb") as watched:
            watched._watch._module(q, k, v)
        assert np.array_equal(watched.capture(item=1)["0.1"], weights.view(2, 2, T, T)[1, 1])
        with av.watch(Core(), batch=2) as watched:
            watched._watch._module(q, k, v)
        with pytest.raises(UsageError, match="batch=2 leaves 2 heads; order='bh' or 'hb' is mis"):
            watched.capture()
        return
    says = "; say layout='bhqk', or another order" if len(shape) == 4 else "; attnviz.from_arrays"
    with pytest.raises(UsageError, match=f"nothing tells heads from the batch .*{says}"):
        watched.capture()
    if len(shape) == 4:
        with av.watch(Core(), layout="hbqk") as watched:
            watched._watch._module(q, k, v)
        assert np.array_equal(watched.capture(item=1, index=0)["0.0"], weights[0, 1])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"layout": "bhqq"}, "layout='bhqq' names each axis of the weights once"),
        ({"batch": 0}, "batch=0 must be 1 or more"),
        ({"order": "bq", "batch": 2}, "order='bq' takes 'bh' or 'hb'"),
        ({"order": "bh"}, "order='bh' needs the number of items too: batch"),
    ],
)
def test_axes_that_cannot_be_meant(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message), av.watch(Written(), **given):
        pass


@pytest.mark.parametrize("kind", ["module list", "python list", "stack", "pytorch"])
def test_a_list_of_heads_is_one_layer(kind: str) -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            heads = [Written(1, W) for _ in range(H)]
            if kind == "pytorch":
                heads = [nn.MultiheadAttention(D, 1, batch_first=True) for _ in range(H)]
            self.heads = heads if kind == "python list" else nn.ModuleList(heads)
            self.out = nn.Linear(D, D)

        def forward(self, x: Tensor) -> Tensor:
            if kind == "pytorch":
                return torch.cat([h(x, x, x)[0] for h in self.heads], dim=-1)
            if kind == "stack":
                return self.out(torch.stack([h(x) for h in self.heads], 2).flatten(2))
            return self.out(torch.cat([F.dropout(h(x), 0.0) for h in self.heads], dim=-1))

    module = nn.Sequential(Heads()).eval()
    x = torch.randn(B, T, D)
    with torch.no_grad(), av.watch(module) as watched:
        plain = module(x)
        capture = watched.capture(item=1)
        with watched.ablate("0.1"):
            gated = module(x)
    assert dict(capture.layout.heads) == {"encoder": (H,)}
    assert watched.layers == {"0": "0" if kind == "python list" else "0.heads"}
    with torch.no_grad():
        if kind != "pytorch":
            for n, head in enumerate(module[0].heads):
                assert np.array_equal(capture[f"0.{n}"], head.kept[0][1, 0])
            module[0].heads[1].v.weight.zero_()
        else:
            module[0].heads[1].out_proj.weight.zero_()
        torch.testing.assert_close(gated, module(x), atol=1e-6, rtol=1e-5)
    assert not torch.equal(gated, plain)


@pytest.mark.parametrize(
    ("fill", "what"),
    [(-torch.inf, "NaN"), (-1e9, "uniform weights"), (-1e4, "weights over keys that are masked")],
)
def test_rows_without_a_key_are_those_of_the_module(fill: float, what: str, tmp_path: Path) -> None:
    class Masked(Written):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.parts(x)
            scores = q @ k.mT
            mask = torch.arange(T) < 3  # padding on the left, and nothing ahead
            blocked = mask | torch.ones(T, T).triu(1).bool()
            scores = scores + blocked * fill if fill == -1e4 else scores.masked_fill(blocked, fill)
            self.kept.append(scores.softmax(-1).detach())
            return scores.softmax(-1) @ v

    module = Masked()
    with av.watch(module) as watched:
        module(torch.randn(B, T, D))
    capture = watched.capture(item=1)
    np.testing.assert_array_equal(capture.maps[Site("decoder", 0)], module.kept[0][1].numpy())
    assert (
        f"In layer 0 (Masked) 3 rows have no key left; the module gives {what} there."
        in capture.inputs.notes
    )
    assert "svg" in av.heatmap(capture, "0.1").to_bytes("svg").decode()
    assert av.view(capture) is not None
    path = av.write_capture(capture, tmp_path / "rows.npz")
    assert np.isfinite(av.read(path)["0.1"]).all()
    scored = av.heads(capture)
    assert any("no key left" in note for note in scored.notes)
    values = [score.mean for head in scored.heads for score in head.scores.values()]
    assert values
    assert np.isfinite([value for value in values if value is not None]).all()


@pytest.mark.parametrize("asks", [True, False])
def test_an_item_of_padding_alone_is_as_the_call_has_it(asks: bool) -> None:
    """NaN where the call asks for weights; where it does not, PyTorch gives zero."""
    module = nn.MultiheadAttention(D, H, batch_first=True)
    x, padding = torch.randn(B, T, D), torch.tensor([[False] * T, [True] * T])
    with av.watch(module) as watched:
        output, _ = module(x, x, x, key_padding_mask=padding, need_weights=asks)
    assert bool(output[1].isnan().all()) == asks
    capture = watched.capture(item=1)
    maps = capture.maps[Site("encoder", 0)]
    assert np.isnan(maps).all() if asks else not maps.any()
    assert any("6 rows have no key left" in note for note in capture.inputs.notes) == asks
    assert capture.empty_rows == (0 if asks else 6)


@pytest.mark.parametrize("layer", [Written, Function, lambda: nn.TransformerEncoderLayer(
    D, H, 8, 0.0, batch_first=True)])  # fmt: skip
def test_autocast_is_noted_and_weights_are_those_of_the_run(layer: Any) -> None:
    module = layer()
    x = torch.randn(B, T, D)
    with torch.autocast("cpu", torch.bfloat16):
        plain = module(x)
        with av.watch(module) as watched:
            assert torch.equal(module(x), plain)
    capture = watched.capture(item=0)
    assert any("ran under autocast (bfloat16)" in note for note in capture.inputs.notes)
    assert capture.source.dtype == "bfloat16"
    if isinstance(module, Function):
        with torch.autocast("cpu", torch.bfloat16):
            q, k = (f(x).view(B, T, H, W).transpose(1, 2) for f in (module.q, module.k))
        wanted = (q.double() @ k.double().mT / W**0.5).softmax(-1)[0].detach()
        np.testing.assert_allclose(capture.maps[Site("encoder", 0)], wanted, atol=1e-6)


def test_two_watches_of_one_module_see_the_same() -> None:
    module = nn.Sequential(Written(), Function(), nn.TransformerEncoderLayer(
        D, 4, 8, batch_first=True)).eval()  # fmt: skip
    x = torch.randn(B, T, D)
    plain = module(x)
    with av.watch(module) as first, av.watch(module[1]) as second, av.watch(module) as third:
        assert torch.equal(module(x), plain)
    for watched in (first, second, third):
        assert "not read" not in repr(watched)
    one, other = (watched.capture(item=0) for watched in (first, third))
    assert all(np.array_equal(one.maps[site], other.maps[site]) for site in one.layout.sites)
    assert np.array_equal(second.capture(item=0)["0.0"], one["1.0"])


def test_a_copy_of_a_module_that_is_watched_is_a_module_of_its_own() -> None:
    module = Stack(Written)
    x = torch.randn(B, T, D)
    with av.watch(module) as watched:
        copied = copy.deepcopy(module)
        module(x)
        copied.blocks[0].q.weight.data.zero_()
        copied(x)
    assert len(watched) == 1
    assert not torch.equal(copied(x), module(x))


def test_a_compiled_part_runs_as_it_would() -> None:
    module = nn.Sequential(Written(), torch.compile(Function(), backend="eager"))
    x = torch.randn(B, T, D)
    plain = module(x)
    with av.watch(module) as watched:
        assert torch.equal(module(x), plain)
    assert "0" in watched.layers


def test_vmap_and_gradients_of_gradients_run_as_they_would() -> None:
    module = Function()
    x = torch.randn(4, B, T, D)
    call = torch.vmap(module)
    plain = call(x)
    with av.watch(module):
        assert torch.equal(call(x), plain)
        y = x[0].clone().requires_grad_()
        (grad,) = torch.autograd.grad(module(y).sum(), y, create_graph=True)
        assert grad.square().sum().item() >= 0


def test_attention_inside_a_transform_is_noted_and_its_heads_are_not_ablated_in_silence() -> None:
    layer = Written().eval()
    x = torch.randn(B, T, D)
    once = torch.vmap(lambda row: layer(row[None])[0])
    plain = once(x)
    with av.watch(layer) as watched:
        assert torch.equal(once(x), plain)
    assert "softmax ran inside torch.vmap or another transform" in repr(watched)
    with pytest.raises(UsageError, match="call the module without it"):
        watched.capture()
    with av.watch(layer) as watched:
        layer(x)
        with (
            pytest.raises(InputError, match=r"cannot be ablated inside torch.vmap"),
            watched.ablate("0.1"),
        ):
            once(x)


def test_what_has_no_numbers_runs_and_what_is_compiled_to_torchscript_is_named() -> None:
    with torch.device("meta"):
        layer = Written().eval()
    with av.watch(layer):
        assert layer(torch.empty(B, T, D, device="meta")).shape == (B, T, D)
    inner = nn.Sequential(torch.jit.script(nn.Sequential(nn.Linear(D, D), nn.Softmax(-1))))
    with av.watch(inner) as watched:
        inner(torch.randn(B, T, D))
    assert "TorchScript, inside which no call is seen" in repr(watched)


def _written_over(a: Tensor) -> Tensor:
    a = a.clone()
    a[..., 0] = 0
    return a


@pytest.mark.parametrize(
    ("change", "noted"),
    [
        (_written_over, True), (lambda a: a.masked_fill(a < 0.2, 0.0), True),
        (lambda a: a.masked_fill_(a < 0.2, 0.0), True),
        (lambda a: torch.where(a > a.mean(-1, keepdim=True), a, 0.0), True),
        (lambda a: a.mT.masked_fill(a.mT < 0.2, 0.0).mT, True),
        (lambda a: a.nan_to_num(0.0), False), (lambda a: a.masked_fill(a < 0, 0.0), False),
        (lambda a: a.clone().contiguous(), False),
    ],
)  # fmt: skip
def test_weights_that_are_written_over_are_noted_where_a_number_changes(
    change: Callable[[Tensor], Tensor], noted: bool
) -> None:
    class Changed(Written):
        def forward(self, x: Tensor) -> Tensor:
            q, k, v = self.parts(x)
            a = change((q @ k.mT).softmax(-1))
            return (a @ v).transpose(1, 2).flatten(2)

    layer = Changed().eval()
    with torch.no_grad(), av.watch(layer) as watched:
        layer(torch.randn(B, T, D))
    notes = watched.capture(item=0).inputs.notes
    assert any("changed after the softmax" in note for note in notes) is noted


def draw(depth: random.Random) -> nn.Module:
    """A layer of a random kind."""
    kinds: list[Callable[[], nn.Module]] = [
        Written, Function, lambda: nn.TransformerEncoderLayer(D, 4, 8, 0.3, batch_first=True),
        lambda: nn.TransformerEncoderLayer(D, H, 8, 0.3, batch_first=True, norm_first=True),
        lambda: nn.Sequential(nn.Linear(D, D), nn.Dropout(0.5), nn.GELU()),
        lambda: Own(D, H, batch_first=True, dropout=0.2),
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(D, 4, 8, 0.1, batch_first=True), 2
        ),
        lambda: Stack(depth.choice([Written, Function]), depth.choice([None, True, False])),
        lambda: nn.Sequential(nn.LSTM(D, D, batch_first=True), First()),
        lambda: nn.Sequential(Across(), nn.Conv1d(T, T, 3, padding=1)),
    ]  # fmt: skip
    return depth.choice(kinds)()


class First(nn.Module):
    """The first of several results."""

    def forward(self, given: tuple[Tensor, ...]) -> Tensor:
        return given[0]


class Across(nn.Module):
    """Odd things: attention without a matrix, in-place work, indices, a softmax of all kinds."""

    def forward(self, x: Tensor) -> Tensor:
        a = (x @ x.transpose(-2, -1)).softmax(-1).clone()
        y = a.mul_(0.5).add_(a.mean()) @ x
        y[:, torch.tensor([0, 2])] += x[:, :2].softmax(1)
        return torch.where(y > 0, y, x.flip(1)) + torch.einsum("bij,bjd,bkd->bkd", a, x, x)


@pytest.mark.parametrize("seed", range(24))
def test_runs_that_are_watched_are_the_same_to_the_bit(seed: int) -> None:
    """Results, gradients and random numbers, in training and evaluation."""
    depth = random.Random(seed)
    torch.manual_seed(seed)
    module = nn.Sequential(*(draw(depth) for _ in range(depth.randint(1, 4))))
    module.train(depth.random() < 0.5)
    x = torch.randn(B, T, D)
    tracks = depth.random() < 0.6

    def run() -> list[Tensor]:
        torch.manual_seed(7)
        module.zero_grad()
        with torch.set_grad_enabled(tracks):
            y = module(x)
        found = [y.detach(), torch.rand(3)]
        if y.requires_grad:
            y.square().mean().backward()
            found += [p.grad.clone() for p in module.parameters() if p.grad is not None]
        return found

    plain = run()
    with av.watch(module) as watched:
        seen = run()
    again = run()
    for a, b, c in zip(plain, seen, again, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)
    repr(watched)
