"""What stands between a layer's heads and W_O: read where the model computes it.

Gated attention multiplies every head's output z with σ(g) before W_O mixes the heads (Qiu et al.
2025, arXiv:2505.06708), some families normalize there, some have a learned scale. Nothing is known
by name: while a model runs, :class:`Passage` follows z from the attention function through every
product to the linear layer that takes what became of it, and hands on the product m of all that z
was multiplied with. An RMS normalization is γ / σ, a product like any other with σ held. That
Σ_h (z_h ⊙ m_h) W_O^h + b_O is what the linear layer gives is for the caller to prove.

Shapes: B batch, T queries, H heads, d_v width of a head's output.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attnviz.core.weights import Held

_PRODUCTS = frozenset({"mul", "__mul__", "__rmul__", "mul_", "__imul__", "multiply"})
_QUOTIENTS = frozenset({"div", "__truediv__", "true_divide", "divide"})
_KEEPS_ORDER = frozenset(
    {"reshape", "view", "flatten", "unflatten", "contiguous", "unsqueeze", "squeeze", "clone"}
    | {"to", "float", "type_as", "type", "bfloat16", "half", "double", "view_as", "reshape_as"}
)
"""What leaves the numbers of a tensor in their order."""
_OPENS = frozenset({"sigmoid", "sigmoid_"})
_SCALES = frozenset({"rsqrt", "sqrt"})

Listener = Callable[["Passed"], None]


@dataclass(frozen=True, eq=False)
class Passed:
    """What became of one layer's z on its way to W_O."""

    # m, [B, T, H, d_v]; z ⊙ m is what the linear layer took, if nothing else was done
    factor: Tensor
    # of m, the product of what was computed from the tokens, [B, T, H, d_v]; None where there is no
    # such
    gate: Tensor | None
    opens: bool  # whether all of that came from sigmoids, so that it is between 0 and 1
    held: tuple[Held, ...]  # what m is made of, in order
    z: Tensor  # as attention gave it, [B, T, H, d_v]
    weight: Tensor  # of the linear layer, [D, H · d_v]
    bias: Tensor | None  # of it, [D], or None
    output: Tensor  # what it gave


@dataclass
class _Followed:
    """A tensor that z became: z ⊙ factor, in the order of z's numbers."""

    tensor: Tensor
    factor: Tensor
    gate: Tensor | None = None
    opens: bool = True
    held: tuple[Held, ...] = ()


@dataclass
class _Begun:
    """The layer whose z is on its way."""

    z: Tensor
    told: Listener
    swap: Callable[[Tensor], Tensor] | None


@dataclass
class Passage(TorchFunctionMode):
    """Follows heads' outputs inside its ``with`` block."""

    _begun: _Begun | None = None
    _followed: dict[int, _Followed] = field(default_factory=dict)
    _kinds: dict[int, tuple[Tensor, Held]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def begin(
        self, z: Tensor, told: Listener, swap: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        """Follow a layer's heads' outputs from here.

        ``z`` [B, T, H, d_v]; ``swap``: gets the gate [B, H, T, d_v] that the layer computed and
        gives what takes its place; None leaves it.
        """
        self._begun = _Begun(z, told, swap)
        self._followed = {id(z): _Followed(z, torch.ones((), dtype=z.dtype, device=z.device))}

    @property
    def pending(self) -> bool:
        """Whether a layer's outputs have gone no known way to a linear layer."""
        return self._begun is not None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Let a function run, and see what it does with what is followed."""
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if name in _OPENS or name in _SCALES:
            out = func(*args, **kwargs)
            if isinstance(out, Tensor):
                self._kinds[id(out)] = (out, "gate" if name in _OPENS else "norm")
            return out
        first = args[0] if args else None
        if name in _KEEPS_ORDER:
            out = func(*args, **kwargs)
            kind = self._kinds.get(id(first))
            if kind is not None and isinstance(out, Tensor):
                self._kinds[id(out)] = (out, kind[1])
            known = self._followed.get(id(first))
            if known is not None and isinstance(out, Tensor):
                self._keep(out, known)
            return out
        if self._begun is None:
            return func(*args, **kwargs)
        if name in _PRODUCTS or name in _QUOTIENTS:
            return self._multiplied(func, name, args, kwargs)
        known = self._followed.get(id(first))
        if known is None:
            if name == "addmm" and len(args) > 2 and id(args[1]) in self._followed:
                out = func(*args, **kwargs)
                return self._taken(self._followed[id(args[1])], args[2].t(), args[0], out)
            return func(*args, **kwargs)
        if name == "rms_norm":
            return self._normalized(func, known, args, kwargs)
        out = func(*args, **kwargs)
        if name == "linear":
            rest = dict(zip(("weight", "bias"), args[1:], strict=False)) | kwargs
            return self._taken(known, rest["weight"], rest.get("bias"), out)
        if name == "dropout" and not kwargs.get("training", False):
            self._keep(out, known)
        return out

    def _keep(self, out: Tensor, known: _Followed) -> None:
        self._followed[id(out)] = replace(known, tensor=out)

    def _multiplied(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Of a product of what is followed and something else, or a quotient."""
        places = [n for n in (0, 1) if n < len(args) and id(args[n]) in self._followed]
        if len(args) < 2 or len(places) != 1 or (name in _QUOTIENTS and places != [0]):
            return func(*args, **kwargs)
        known, other = self._followed[id(args[places[0]])], args[1 - places[0]]
        if isinstance(other, Tensor) and not _fits(other, known.tensor):
            return func(*args, **kwargs)
        kind = self._kind(other)
        opens = known.opens and (kind != "gate" or id(other) in self._kinds)
        begun = self._begun
        assert begun is not None
        if kind == "gate" and begun.swap is not None:
            swapped = begun.swap(self._spread(other, known.tensor).transpose(1, 2))
            other = swapped.transpose(1, 2).reshape(known.tensor.shape).to(other.dtype)
            args = (known.tensor, other, *args[2:])
        out = func(*args, **kwargs)
        by = other if name in _PRODUCTS else 1 / other
        if isinstance(by, Tensor):
            by = self._spread(by, known.tensor).detach()
        gate = known.gate
        if kind == "gate":
            gate = by if gate is None else gate * by
        held = known.held
        if kind not in held and not (kind == "scale" and "norm" in held):  # its γ
            held = (*held, kind)
        self._followed[id(out)] = _Followed(out, known.factor * by, gate, opens, held)
        return out

    def _kind(self, other: Any) -> Held:
        """What a factor is: of a sigmoid, of a normalization, learned or constant, or computed."""
        if not isinstance(other, Tensor) or isinstance(other, torch.nn.Parameter):
            return "scale"
        if id(other) in self._kinds:
            return self._kinds[id(other)][1]
        return "scale" if other.numel() == 1 or not self._by_token(other) else "gate"

    def _by_token(self, other: Tensor) -> bool:
        """Whether a factor is another at every token."""
        begun = self._begun
        assert begun is not None
        return other.numel() >= begun.z.shape[0] * begun.z.shape[1]

    def _normalized(self, func: Any, known: _Followed, args: Any, kwargs: Any) -> Any:
        """Of :func:`torch.nn.functional.rms_norm`."""
        out = func(*args, **kwargs)
        rest = dict(zip(("normalized_shape", "weight", "eps"), args[1:], strict=False)) | kwargs
        x = known.tensor.detach().float()
        eps = rest.get("eps")
        eps = torch.finfo(known.tensor.dtype).eps if eps is None else eps
        axes = tuple(range(-len(rest["normalized_shape"]), 0))
        scale = (x.square().mean(axes, keepdim=True) + eps).rsqrt()
        weight = rest.get("weight")
        scale = scale if weight is None else scale * weight.detach().float()
        by = self._spread(scale.to(known.tensor.dtype), known.tensor)
        held = known.held if "norm" in known.held else (*known.held, "norm")
        self._followed[id(out)] = replace(known, tensor=out, factor=known.factor * by, held=held)
        return out

    def _spread(self, other: Tensor, beside: Tensor) -> Tensor:
        """A factor of a tensor that z became, as [B, T, H, d_v]."""
        begun = self._begun
        assert begun is not None
        return other.expand(beside.shape).reshape(begun.z.shape)

    def _taken(self, known: _Followed, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
        """A linear layer has taken it: that is W_O."""
        begun = self._begun
        assert begun is not None
        self._begun, self._followed, self._kinds = None, {}, {}
        if known.tensor.shape[-1] != begun.z.shape[2] * begun.z.shape[3]:
            return out
        factor = known.factor.expand(begun.z.shape)
        begun.told(Passed(factor, known.gate, known.opens, known.held, begun.z, weight, bias, out))
        return out


def _fits(other: Tensor, beside: Tensor) -> bool:
    """Whether one tensor spreads over the other and not beyond it."""
    pairs = zip(reversed(other.shape), reversed(beside.shape), strict=False)
    return other.ndim <= beside.ndim and all(own in (1, size) for own, size in pairs)
