"""Heads taken away while one's own module runs, against their columns of W_O."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import attnviz as av
from attnviz.errors import SelectionError, UsageError
from tests.models import test_written as written
from tests.models.test_watching import Dotted, hooks

B, T, S, D, H = 3, 6, 4, 16, 4
WIDTH = D // H
HEAD = slice(2 * WIDTH, 3 * WIDTH)
"""What head 2 has of a row."""


class Own(nn.Module):
    """Self-attention by PyTorch's module."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(D, H, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x, x, x)[0]


def columns(name: str) -> Callable[[nn.Module, Tensor, float], Tensor]:
    """The module's output with head 2's columns of a matrix multiplied by a gate."""

    def output(module: nn.Module, x: Tensor, gate: float) -> Tensor:
        other = deepcopy(module)
        with torch.no_grad():
            other.get_parameter(name)[:, HEAD] *= gate
        return other(x)

    return output


def part(module: nn.Module, x: Tensor, gate: float) -> Tensor:
    """The module's output, heads side by side, with head 2's part multiplied by a gate."""
    output: Tensor = module(x).clone()
    output[..., HEAD] *= gate
    return output


EINSUM = written.einsum("bqhd,bkhd->hbqk", "hbqk->bhqk", "hbqk,bkhd->bqhd")
MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module, Tensor, float], Tensor]]] = {
    "written out": (lambda: written.Module(written.chunked), columns("o.weight")),
    "einsum": (lambda: written.Module(EINSUM), columns("o.weight")),
    "folded": (lambda: written.Module(written.sequence_first), columns("o.weight")),
    "grouped": (lambda: written.Module(written.grouped), part), "the function": (Dotted, part),
    "the function, grouped": (lambda: Dotted(groups=2, is_causal=True), part),
    "the module": (Own, columns("inner.out_proj.weight")),
}  # fmt: skip


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    """One seed, and one size for all modules."""
    torch.manual_seed(0)
    for name, size in {"B": B, "T": T, "D": D, "H": H, "W": WIDTH}.items():
        monkeypatch.setattr(written, name, size)


@pytest.mark.parametrize("name", list(MODULES))
@pytest.mark.parametrize("gate", [0.0, 0.25])
def test_a_gate_is_what_multiplies_the_heads_columns(name: str, gate: float) -> None:
    build, expected = MODULES[name]
    module = build().eval()
    x = torch.randn(B, T, D)
    with torch.no_grad(), av.watch(module) as watched:
        plain = module(x)
        with watched.ablate("0.2", gate=gate):
            gated = module(x)
        again = module(x)
    with torch.no_grad():
        wanted = expected(module, x, gate)
    torch.testing.assert_close(gated, wanted, atol=1e-6, rtol=1e-5)
    assert (gated - plain).abs().max() > 1e-3
    assert torch.equal(again, plain)
    assert hooks(module) == 0


@pytest.mark.parametrize("name", ["written out", "folded", "the function", "the module"])
def test_gates_have_gradients(name: str) -> None:
    """What a head adds is linear in its gate: the gradient is the sum of what goes with it."""
    module = MODULES[name][0]().eval()
    x = torch.randn(B, T, D)
    gates = torch.ones(H, requires_grad=True)
    with av.watch(module) as watched:
        plain = module(x).sum()
        with watched.ablate("0.*", gate=gates):
            module(x).sum().backward()
        lost = []
        for head in range(H):
            with torch.no_grad(), watched.ablate(f"0.{head}"):
                lost.append(float(plain - module(x).sum()))
    torch.testing.assert_close(gates.grad, torch.tensor(lost), atol=2e-4, rtol=1e-4)


def stack() -> nn.TransformerEncoder:
    layer = nn.TransformerEncoderLayer(D, H, dropout=0.0, batch_first=True)
    return nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)


@pytest.mark.parametrize("heads", ["1.2", "layers.1:2", "layers.1.self_attn:2", " 1.2 "])
def test_one_layer_of_several_and_later_layers_see_it(heads: str) -> None:
    module = stack().eval()
    x = torch.randn(B, T, D)
    with torch.no_grad(), av.watch(module, passes=2) as watched:
        module(x)
        assert watched.layers == {str(n): f"layers.{n}.self_attn" for n in range(3)}
        with watched.ablate(heads):
            gated = module(x)
    other = deepcopy(module)
    with torch.no_grad():
        other.layers[1].self_attn.out_proj.weight[:, HEAD] = 0
        torch.testing.assert_close(gated, other(x), atol=1e-6, rtol=1e-5)
    before, after = (watched.capture(item=0, index=n) for n in (0, 1))
    for layer, changes in enumerate((False, False, True)):
        pair = [c[f"{layer}.0"] for c in (before, after)]
        assert (abs(pair[0] - pair[1]).max() > 1e-4) == changes


def test_training_goes_through_a_module_that_is_gated() -> None:
    """Gradients of all parameters are those of the module with the columns taken away."""
    module = stack()
    x = torch.randn(B, T, D)
    with av.watch(module) as watched:
        module(x)
        with watched.ablate("0.2"):
            module(x).square().mean().backward()
    weight = module.layers[0].self_attn.out_proj.weight
    other = deepcopy(module)
    other.zero_grad()
    with torch.no_grad():
        other.layers[0].self_attn.out_proj.weight[:, HEAD] = 0
    other(x).square().mean().backward()
    assert not weight.grad[:, HEAD].any()
    for ours, theirs in zip(module.layers[1:].parameters(), other.layers[1:].parameters(),
                            strict=True):  # fmt: skip
        torch.testing.assert_close(ours.grad, theirs.grad, atol=1e-6, rtol=1e-4)


def test_everything_is_put_back_after_an_error() -> None:
    module = stack().eval()
    weight = module.layers[0].self_attn.out_proj.weight
    with av.watch(module) as watched:
        module(torch.randn(B, T, D))
        with pytest.raises(ZeroDivisionError), watched.ablate("0.0"):
            raise ZeroDivisionError
        with pytest.raises(RuntimeError), watched.ablate("0.0"):
            # the mask does not fit, which the function finds when the matrix is already gated
            module(torch.randn(B, T, D), mask=torch.zeros(2, 2))
    assert module.layers[0].self_attn.out_proj.weight is weight
    assert hooks(module) == 0


def test_a_module_called_twice_has_two_layers() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attn = written.Module(written.chunked)

        def forward(self, x: Tensor) -> Tensor:
            return self.attn(self.attn(x))

    module = Twice().eval()
    x = torch.randn(B, T, D)
    with torch.no_grad(), av.watch(module) as watched:
        module(x)
        assert watched.layers == {"0": "attn", "1": "attn (call 2)"}
        with watched.ablate("1.2"):
            gated = module(x)
    with torch.no_grad():
        wanted = columns("o.weight")(module.attn, module.attn(x), 0.0)
    torch.testing.assert_close(gated, wanted, atol=1e-6, rtol=1e-5)


def test_kinds_have_their_names() -> None:
    module = nn.Transformer(D, H, 1, 1, batch_first=True).eval()
    with av.watch(module) as watched:
        module(torch.randn(B, T, D), torch.randn(B, S, D))
        assert watched.layers == {
            "enc:0": "encoder.layers.0.self_attn",
            "dec:0": "decoder.layers.0.self_attn",
            "cross:0": "decoder.layers.0.multihead_attn",
        }


def test_what_cannot_be_ablated() -> None:
    module = stack().eval()
    x = torch.randn(B, T, D)
    with av.watch(module) as watched:
        with pytest.raises(UsageError, match="no attention was seen"), watched.ablate("0.0"):
            pass
        module(x)
        for heads, error, message in (
            ("9.9", SelectionError, "no head 9.9; this model has layers 0-2 with heads 0-3"),
            ("layers.7:1", SelectionError, "cannot read 'layers.7:1'"),
        ):
            with pytest.raises(error, match=message), watched.ablate(heads):
                pass
        gates: Any = torch.ones(3)
        with pytest.raises(UsageError, match=r"gate has the shape \(3,\), and 2 heads are chosen"):
            watched.ablate("0.0,0.1", gate=gates).__enter__()
        with watched.ablate("0.0"), pytest.raises(UsageError, match="all of them in one call"):
            watched.ablate("0.1").__enter__()
    with pytest.raises(UsageError, match="inside the with block of watch"), watched.ablate("0.0"):
        pass
