"""PyTorch's own modules: every weight as they compute it, and nothing else changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import attnviz as av
from attnviz.core.heads import Site
from attnviz.errors import InputError, SelectionError, UsageError

B, T, S, D, H = 3, 5, 7, 16, 4


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


def asked(module: nn.MultiheadAttention, *args: Any, **kwargs: Any) -> Tensor:
    """What the module itself says, head by head."""
    with torch.no_grad():
        return module(*args, **kwargs, need_weights=True, average_attn_weights=False)[1]


def words(count: int) -> list[str]:
    return [f"w{n}" for n in range(count)]


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("asks", [{}, {"need_weights": False}, {"average_attn_weights": False}])
def test_an_attention_module_whatever_it_is_asked_for(batch_first: bool, asks: Any) -> None:
    module = nn.MultiheadAttention(D, H, batch_first=batch_first).eval()
    x = torch.randn(B, T, D) if batch_first else torch.randn(T, B, D)
    plain = module(x, x, x, **asks)
    with av.watch(module) as watched:
        output = module(x, x, x, **asks)
    assert torch.equal(output[0], plain[0])
    assert (output[1] is None) == (plain[1] is None)
    assert output[1] is None or torch.equal(output[1], plain[1])
    expected = asked(module, x, x, x)
    for item in range(B):
        capture = watched.capture(words(T), item=item)
        assert capture.layout.kinds == ("encoder",)
        np.testing.assert_allclose(capture.maps[Site("encoder", 0)], expected[item], atol=1e-7)
    np.testing.assert_allclose(capture["0.3"], expected[2, 3], atol=1e-7)
    assert capture.tokens == tuple(words(T))


def test_two_sequences_masks_and_a_single_item() -> None:
    module = nn.MultiheadAttention(D, H, kdim=6, vdim=9, batch_first=True)
    query, key, value = torch.randn(T, D), torch.randn(S, 6), torch.randn(S, 9)
    mask = torch.rand(T, S) > 0.7
    mask[2] = True  # a query that may look nowhere
    mask[:, 0] &= torch.arange(T) == 2
    with av.watch(module) as watched:
        module(query, key, value, attn_mask=mask)
    capture = watched.capture(words(T), source_tokens=words(S))
    assert capture.layout.kinds == ("cross",)
    expected = asked(module, query, key, value, attn_mask=mask)
    assert expected[0, 2].isnan().all()
    np.testing.assert_allclose(capture.maps[Site("cross", 0)], expected, atol=1e-7)
    assert capture.inputs.notes == (
        "In layer 0 (MultiheadAttention) 1 row has no key left; the module gives NaN there.",
    )
    assert (capture.reach[Site("cross", 0)].allowed(T, S) == ~mask.numpy()).all()
    assert capture.source_tokens == tuple(words(S))
    assert av.heads(capture).heads
    with pytest.raises(InputError, match="have 7 key positions, and there are 5 tokens"):
        watched.capture(words(T), source_tokens=words(T))


def test_padding_and_keys_that_are_no_tokens() -> None:
    module = nn.MultiheadAttention(D, H, batch_first=True, add_bias_kv=True, add_zero_attn=True)
    x = torch.randn(B, T, D)
    padding = torch.arange(T) >= torch.tensor([[5], [3], [4]])
    with av.watch(module) as watched:
        module(x, x, x, key_padding_mask=padding)
    capture = watched.capture(words(T), item=1)
    expected = asked(module, x, x, x, key_padding_mask=padding)[1]
    maps = capture.maps[Site("encoder", 0)]
    np.testing.assert_allclose(maps, expected, atol=1e-7)
    assert capture.source_tokens == (*words(T), "<bias>", "<zero>")
    allowed = capture.reach[Site("encoder", 0)].allowed(T, T + 2)
    assert (allowed == np.array([True] * 3 + [False] * 2 + [True] * 2)).all()


@pytest.mark.parametrize(
    ("fill", "dtype"),
    [
        (fill, dtype)
        for fill in (-100.0, -1e4, -float("inf"))
        for dtype in (torch.float32, torch.half)
    ]
    + [(-1e9, torch.float32)],
)
def test_a_mask_that_adds_little_blocks_as_one_of_booleans(fill: float, dtype: torch.dtype) -> None:
    """In half precision too, where weights of keys that nothing blocks may be 0."""
    module = nn.MultiheadAttention(D, H, batch_first=True, dtype=dtype)
    x, later = torch.randn(1, T, D, dtype=dtype), torch.ones(T, T).triu(1).bool()
    with av.watch(module) as watched:
        module(x, x, x, attn_mask=torch.zeros(T, T, dtype=dtype).masked_fill(later, fill))
    ((site, reach),) = watched.capture().reach.items()
    assert site.kind == "decoder"
    assert (reach.allowed(T, T) == ~later.numpy()).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_precision_that_is_named_is_the_modules(dtype: torch.dtype) -> None:
    module, x = nn.MultiheadAttention(D, H, dtype=dtype), torch.randn(T, D, dtype=dtype)
    with av.watch(module) as watched:
        module(x, x, x)
    assert f"torch.{watched.capture().source.dtype}" == str(dtype)


def encoder() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(D, H, 32, batch_first=True)
    return nn.TransformerEncoder(layer, 3)


def test_an_encoder_on_its_fast_path() -> None:
    """In evaluation its layers never call their attention, and padded texts are packed."""
    module = encoder().eval()
    x = torch.randn(B, T, D)
    padding = torch.arange(T) >= torch.tensor([[5], [3], [4]])
    with torch.no_grad():
        plain = module(x, src_key_padding_mask=padding)
        with av.watch(module) as watched:
            output = module(x, src_key_padding_mask=padding)
        seen = [x]
        with av.watch(module):
            for layer in module.layers:
                seen.append(layer(seen[-1], src_key_padding_mask=padding))
    assert torch.backends.mha.get_fastpath_enabled()
    assert torch.equal(output, plain)
    capture = watched.capture(words(T), item=1)
    for number, layer in enumerate(module.layers):
        expected = asked(layer.self_attn, seen[number], seen[number], seen[number],
                         key_padding_mask=padding)  # fmt: skip
        np.testing.assert_allclose(capture.maps[Site("encoder", number)], expected[1], atol=1e-6)


def test_a_causal_encoder_is_a_decoder() -> None:
    module = encoder()
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    with av.watch(module) as watched:
        module(torch.randn(1, T, D), mask=mask, is_causal=True)
    capture = watched.capture()
    assert capture.layout.kinds == ("decoder",)
    assert capture.tokens == ("0", "1", "2", "3", "4")
    assert not np.triu(capture["2.0"], 1).any()


def test_a_whole_transformer() -> None:
    module = nn.Transformer(D, H, 2, 3, 32, batch_first=True).eval()
    source, target = torch.randn(B, S, D), torch.randn(B, T, D)
    mask = nn.Transformer.generate_square_subsequent_mask(T)
    with av.watch(module) as watched:
        module(source, target, tgt_mask=mask)
    capture = watched.capture(words(T), source_tokens=words(S), item=2)
    assert dict(capture.layout.heads) == {
        "encoder": (H,) * 2, "decoder": (H,) * 3, "cross": (H,) * 3,
    }  # fmt: skip
    assert capture.tokens == tuple(words(T))
    with torch.no_grad():
        memory = module.encoder(source)
        expected = asked(module.decoder.layers[0].self_attn, target, target, target,
                         attn_mask=mask)  # fmt: skip
        np.testing.assert_allclose(capture.maps[Site("decoder", 0)], expected[2], atol=1e-6)
        layer = module.decoder.layers[0]
        own = layer.self_attn(target, target, target, attn_mask=mask)[0]
        crossing = asked(layer.multihead_attn, layer.norm1(target + own), memory, memory)
    np.testing.assert_allclose(capture.maps[Site("cross", 0)], crossing[2], atol=1e-6)
    assert capture["cross:0.1"].shape == (T, S)
    with pytest.raises(SelectionError, match=r"'0\.1' are 3 heads; name one"):
        capture["0.1"]


def test_weights_are_those_before_dropout() -> None:
    module = encoder().train()
    with av.watch(module) as watched:
        module(torch.randn(B, T, D))
    np.testing.assert_allclose(watched.capture(item=0)["0.0"].sum(-1), 1, atol=1e-6)


def hooks(module: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())


@pytest.mark.parametrize("fast", [True, False])
def test_everything_is_put_back_even_after_errors(fast: bool) -> None:
    module = encoder()
    torch.backends.mha.set_fastpath_enabled(fast)
    try:
        with av.watch(module):
            assert torch.backends.mha.get_fastpath_enabled() == fast
        assert torch.backends.mha.get_fastpath_enabled() == fast
        with pytest.raises(AssertionError), av.watch(module) as watched:
            module(torch.randn(1, T, D + 1))
        assert torch.backends.mha.get_fastpath_enabled() == fast
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    assert hooks(module) == 0
    with pytest.raises(UsageError, match="no attention was seen"):
        watched.capture()


def test_passes_end_where_the_module_or_a_part_of_it_is_called_again() -> None:
    module = encoder().eval()
    texts = [torch.randn(1, length, D) for length in (2, 3, 4)]
    with av.watch(module, passes=2) as watched:
        for x in texts:
            module(x)
    assert len(watched) == 2
    assert [watched.capture(index=n).tokens for n in (0, 1)] == [("0", "1", "2"), tuple("0123")]
    with pytest.raises(UsageError, match="2 passes are kept; there is no index=5"):
        watched.capture(index=5)
    with av.watch(module) as watched:
        for layer in (*module.layers, module.layers[0]):
            layer(texts[0])
    assert dict(watched.capture().layout.heads) == {"encoder": (H,)}


def test_what_cannot_be_watched() -> None:
    with pytest.raises(UsageError, match="module takes a torch module, not int"), av.watch(3):
        pass
    module: nn.Module = nn.Linear(2, 2)
    with av.watch(module) as watched:
        module(torch.ones(1, 2))
    assert repr(watched) in ("<Watched: 0 passes>", "<Watched: 1 pass>")
    with pytest.raises(UsageError, match="no attention was seen"):
        watched.capture()
    module = nn.MultiheadAttention(D, H)
    with pytest.raises(UsageError, match="passes=0 must be 1 or more"), av.watch(module, passes=0):
        pass
    x = torch.full((T, D), torch.nan)
    with av.watch(module) as watched:
        module(x, x, x)
    with pytest.raises(InputError, match="not numbers"):
        watched.capture()
    with av.watch(module) as watched:
        module(*[torch.randn(T, 2, D)] * 3)
    for wrong, message in (
        ({}, "batch of 2; choose one with item from 0 to 1"),
        ({"item": 2}, "batch of 2; there is no item=2"),
        ({"item": 0, "source_tokens": words(T)}, "leave out source_tokens"),
        ({"item": 0, "tokens": "w"}, "tokens are a list of strings, one for each position, not st"),
    ):
        with pytest.raises(UsageError, match=message):
            watched.capture(**wrong)


class Dotted(nn.Module):
    """Attention of one's own, which calls PyTorch's function."""

    def __init__(self, groups: int = H, **call: Any) -> None:
        super().__init__()
        self.groups, self.call = groups, call
        self.project = nn.Linear(D, D + 2 * groups * D // H)

    def heads(self, x: Tensor) -> list[Tensor]:
        width = D // H
        parts = self.project(x).split([D, self.groups * width, self.groups * width], -1)
        return [part.unflatten(-1, (-1, width)).transpose(1, 2) for part in parts]

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.heads(x)
        call = self.call | ({"enable_gqa": True} if self.groups < H else {})
        out = nn.functional.scaled_dot_product_attention(query, key, value, **call)
        return out.transpose(1, 2).flatten(-2)


MASK = torch.ones(T, T).tril().bool()
MASK[2] = False


@pytest.mark.parametrize(
    "module",
    [
        Dotted, lambda: Dotted(is_causal=True), lambda: Dotted(groups=2, scale=0.3),
        lambda: Dotted(attn_mask=MASK), lambda: Dotted(attn_mask=torch.randn(B, 1, T, T)),
    ],
)  # fmt: skip
def test_the_function_is_seen_and_nothing_else_changes(module: Any) -> None:
    """Against the function itself: with the unit matrix as values it returns the weights."""
    layer = module()
    x = torch.randn(B, T, D)
    plain = layer(x)
    with av.watch(layer) as watched:
        seen = layer(x)
        nn.functional.scaled_dot_product_attention(*[torch.randn(1, 1, 2, 2)] * 3)
    assert torch.equal(plain, seen)
    assert len(watched) == 1
    query, key, _ = layer.heads(x)
    key = key.repeat_interleave(H // layer.groups, 1)
    with torch.no_grad():
        expected = nn.functional.scaled_dot_product_attention(
            query, key, torch.eye(T).expand(B, H, T, T), **layer.call
        )
    for item in range(B):
        (maps,) = watched.capture(words(T), item=item).maps.values()
        assert np.abs(maps - expected[item].nan_to_num().numpy()).max() < 1e-6


def test_dropout_of_the_function_draws_what_it_would_draw() -> None:
    layer = Dotted(dropout_p=0.5)
    x = torch.randn(1, T, D)
    torch.manual_seed(1)
    plain = layer(x)
    with av.watch(layer) as watched:
        torch.manual_seed(1)
        assert torch.equal(layer(x), plain)
    (maps,) = watched.capture().maps.values()
    assert np.abs(maps.sum(-1) - 1).max() < 1e-6, "before dropout"


def test_modules_and_calls_of_the_function_stand_in_their_order() -> None:
    both = nn.Sequential(Dotted(is_causal=True), nn.TransformerEncoderLayer(D, H, batch_first=True))
    x = torch.randn(1, T, D)
    with av.watch(both) as watched:
        both(x)
    assert dict(watched.capture().layout.heads) == {"encoder": (H,), "decoder": (H,)}


def test_flex_attention_runs_and_is_noted_by_name() -> None:
    from torch.nn.attention import flex_attention

    class Flex(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return flex_attention.flex_attention(x, x, x)

    check, layer = flex_attention._validate_sdpa_input, Flex()
    x = torch.randn(1, H, T, D)
    plain = layer(x)
    with av.watch(layer) as watched:
        assert torch.equal(layer(x), plain)
    with pytest.raises(UsageError, match="not read: Flex: FlexAttention computes its weights"):
        watched.capture()
    assert flex_attention._validate_sdpa_input is check


class _Halved(nn.Module):
    """Attends over all positions, then over every second one, as a pyramid does."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = nn.MultiheadAttention(8, 2, batch_first=True)
        self.second = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.whole(x, x, x)[0]
        y = x[:, ::2]
        return self.second(y, y, y)[0]


def test_layers_of_unlike_sizes_are_taken_one_size_at_a_time() -> None:
    torch.manual_seed(0)
    module, x = _Halved().eval(), torch.randn(1, 6, 8)
    with av.watch(module) as watched:
        module(x)
    with pytest.raises(av.UsageError, match=r"6×6 and over 3×3 positions.*layers=\['1'\]"):
        watched.capture()
    with torch.no_grad():
        y = module.whole(x, x, x)[0]
        y = y[:, ::2]
        expected = module.second(y, y, y, need_weights=True, average_attn_weights=False)[1]
    for name in ("1", "second"):
        capture = watched.capture(layers=[name])
        assert capture.layout.heads == {"encoder": (0, 2)}
        assert np.abs(capture["1.0"] - expected[0, 0].numpy()).max() < 1e-6
    assert watched.capture(layers=["whole"])["0.1"].shape == (6, 6)
    with pytest.raises(av.UsageError, match=r"no layer 'none'.*0 \(whole\), 1 \(second\)"):
        watched.capture(layers=["none"])
