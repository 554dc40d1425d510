"""W_O of a hooked model: found by what goes in, proved by what comes out.

Modules are not known by name. The output projection of a layer is the linear layer that takes its
heads' outputs z_h, number for number; that Σ_h z_h W_O^h + b_O is then what it gives is computed.

What stands between a layer's heads and W_O: read where the model computes it.

Gated attention multiplies every head's output z with σ(g) before W_O mixes the heads (Qiu et al.
2025, arXiv:2505.06708), some families normalize there, some have a learned scale. Nothing is known
by name: while a model runs, :class:`Passage` follows z from the attention function through every
product to the linear layer that takes what became of it, and hands on the product m of all that z
was multiplied with. An RMS normalization is γ / σ, a product like any other with σ held. That
Σ_h (z_h ⊙ m_h) W_O^h + b_O is what the linear layer gives is for the caller to prove.

Shapes: B batch, T queries, H heads, d_v width of a head's output.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from attnviz.core.weights import HeadLayers, Held, OutputProjection, output_slices
from attnviz.models.hooked.layer_sums import first_item
from attnviz.models.hooked.trace import (
    TOLERANCE,
    ModuleCall,
    calls_of,
    close,
    is_low,
    normalization,
)

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


@dataclass(frozen=True)
class _Begun:
    """The layer whose z is on its way."""

    z: Tensor
    listener: Listener
    swap: Callable[[Tensor], Tensor] | None


@dataclass(frozen=True)
class _Followed:
    """A tensor that z became: z ⊙ factor, in the order of z's numbers."""

    begun: _Begun
    tensor: Tensor
    factor: Tensor
    gate: Tensor | None = None
    opens: bool = True
    held: tuple[Held, ...] = ()

    def spread(self, factor: Tensor) -> Tensor:
        """Return a factor of the tensor as [B, T, H, d_v]."""
        return factor.expand(self.tensor.shape).reshape(self.begun.z.shape)

    def fits(self, factor: Tensor) -> bool:
        """Whether a factor spreads over the tensor and not beyond it."""
        pairs = zip(reversed(factor.shape), reversed(self.tensor.shape), strict=False)
        return factor.ndim <= self.tensor.ndim and all(n in (1, size) for n, size in pairs)


@dataclass
class Passage(TorchFunctionMode):
    """Follows heads' outputs inside its ``with`` block."""

    pending: bool = False  # whether a layer's outputs have gone no known way to a linear layer
    _followed: dict[int, _Followed] = field(default_factory=dict)
    _kinds: dict[int, tuple[Tensor, Held]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()

    def begin(
        self, z: Tensor, listener: Listener, swap: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        """Follow a layer's heads' outputs from here.

        ``z`` [B, T, H, d_v]; ``swap``: gets the gate [B, H, T, d_v] that the layer computed and
        gives what takes its place; None leaves it.
        """
        ones = torch.ones((), dtype=z.dtype, device=z.device)
        self._followed = {id(z): _Followed(_Begun(z, listener, swap), z, ones)}
        self.pending = True

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
            state = self._followed.get(id(first))
            if state is not None and isinstance(out, Tensor):
                self._keep(out, state)
            return out
        if not self.pending:
            return func(*args, **kwargs)
        if name in _PRODUCTS or name in _QUOTIENTS:
            return self._multiplied(func, name, args, kwargs)
        state = self._followed.get(id(first))
        if state is None:
            if name == "addmm" and len(args) > 2 and id(args[1]) in self._followed:
                out = func(*args, **kwargs)
                return self._taken(self._followed[id(args[1])], args[2].t(), args[0], out)
            return func(*args, **kwargs)
        if name == "rms_norm":
            return self._normalized(func, state, args, kwargs)
        out = func(*args, **kwargs)
        if name == "linear":
            named = dict(zip(("weight", "bias"), args[1:], strict=False)) | kwargs
            return self._taken(state, named["weight"], named.get("bias"), out)
        if name == "dropout" and not kwargs.get("training", False):
            self._keep(out, state)
        return out

    def _keep(self, out: Tensor, state: _Followed) -> None:
        self._followed[id(out)] = replace(state, tensor=out)

    def _multiplied(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Of a product of what is followed and something else, or a quotient."""
        places = [n for n in (0, 1) if n < len(args) and id(args[n]) in self._followed]
        if len(args) < 2 or len(places) != 1 or (name in _QUOTIENTS and places != [0]):
            return func(*args, **kwargs)
        state, operand = self._followed[id(args[places[0]])], args[1 - places[0]]
        if isinstance(operand, Tensor) and not state.fits(operand):
            return func(*args, **kwargs)
        kind, swap = self._kind(operand, state.begun.z), state.begun.swap
        opens = state.opens and (kind != "gate" or id(operand) in self._kinds)
        if kind == "gate" and swap is not None:
            swapped = swap(state.spread(operand).transpose(1, 2))
            operand = swapped.transpose(1, 2).reshape(state.tensor.shape).to(operand.dtype)
            args = (state.tensor, operand, *args[2:])
        out = func(*args, **kwargs)
        factor = operand if name in _PRODUCTS else 1 / operand
        if isinstance(factor, Tensor):
            factor = state.spread(factor).detach()
        gate = state.gate
        if kind == "gate":
            gate = factor if gate is None else gate * factor
        held = state.held
        if kind not in held and not (kind == "scale" and "norm" in held):  # its γ
            held = (*held, kind)
        factor = state.factor * factor
        self._followed[id(out)] = _Followed(state.begun, out, factor, gate, opens, held)
        return out

    def _kind(self, factor: Any, z: Tensor) -> Held:
        """Say what a factor is: a sigmoid's, a normalization's, learned, constant or computed."""
        if not isinstance(factor, Tensor) or isinstance(factor, torch.nn.Parameter):
            return "scale"
        if id(factor) in self._kinds:
            return self._kinds[id(factor)][1]
        by_token = factor.numel() >= z.shape[0] * z.shape[1]
        return "gate" if by_token and factor.numel() > 1 else "scale"

    def _normalized(self, func: Any, state: _Followed, args: Any, kwargs: Any) -> Any:
        """Of :func:`torch.nn.functional.rms_norm`."""
        out = func(*args, **kwargs)
        named = dict(zip(("normalized_shape", "weight", "eps"), args[1:], strict=False)) | kwargs
        x = state.tensor.detach().float()
        eps = named.get("eps")
        eps = torch.finfo(state.tensor.dtype).eps if eps is None else eps
        axes = tuple(range(-len(named["normalized_shape"]), 0))
        scale = (x.square().mean(axes, keepdim=True) + eps).rsqrt()
        weight = named.get("weight")
        scale = scale if weight is None else scale * weight.detach().float()
        gain = state.spread(scale.to(state.tensor.dtype))
        held = state.held if "norm" in state.held else (*state.held, "norm")
        self._followed[id(out)] = replace(state, tensor=out, factor=state.factor * gain, held=held)
        return out

    def _taken(self, state: _Followed, weight: Tensor, bias: Tensor | None, out: Tensor) -> Tensor:
        """Say what a linear layer has taken: that layer is W_O."""
        self.pending, self._followed, self._kinds = False, {}, {}
        z = state.begun.z
        if state.tensor.shape[-1] == z.shape[2] * z.shape[3]:
            factor = state.factor.expand(z.shape)
            state.begun.listener(
                Passed(factor, state.gate, state.opens, state.held, z, weight, bias, out)
            )
        return out


NO_LAYER = "no linear layer takes its heads' outputs as they are"
"""The reason where something may stand between heads and W_O."""
QUANTIZED = "its W_O is stored in 8 or 4 bits, and no matrix of numbers"
"""The reason where the linear layer is known, and not what it multiplies with."""
OFFLOADED = "its weights do not fit in memory and are read again in each pass"
"""The reason where nothing can be looked at once a module has run."""
_TOLERANCE_LOW = 1e-2
""":data:`TOLERANCE` of the projection's output in float16 and bfloat16, to which it is rounded."""


@dataclass
class Projections:
    """Watches which linear layer takes what each call of the attention function returned."""

    # for every call, the projection or the reason why there is none
    by_call: list[OutputProjection] = field(default_factory=list)
    _z: Tensor | None = None

    @contextlib.contextmanager
    def watching(self, model: nn.Module) -> Iterator[None]:
        """Look on while the model runs inside the ``with`` block."""
        from transformers.pytorch_utils import Conv1D

        linear = [m for m in model.modules() if isinstance(m, nn.Linear | Conv1D)]
        try:
            with calls_of(linear, self._ran):
                yield
        finally:
            self._z = None

    def attended(self, z: Tensor) -> None:
        """Take in the heads' outputs of the next call, [B, T, H, d_v]."""
        self._z = z
        self.by_call.append(OutputProjection(None, None, NO_LAYER))

    def _ran(self, call: ModuleCall) -> None:
        """Tell whether a linear layer that has run is the projection of the last call."""
        z, module = self._z, cast("Any", call.module)
        if z is None or not _same(call.entered, z):
            return
        if self.by_call[-1].weight is not None:
            self.by_call[-1] = OutputProjection(None, None, "two layers take its heads' outputs")
            return
        if not is_plain(module):
            reason = OFFLOADED if module.weight.is_meta else QUANTIZED
            self.by_call[-1] = OutputProjection(None, None, reason)
            return
        weight = output_slices(matrix_of(module), z.shape[2])
        bias = None if module.bias is None else module.bias.detach()
        reason = "its output differs from the sum over its heads by {:.0e} of the largest"
        low = is_low(z.dtype)
        self.by_call[-1] = _proved(z, weight, bias, call.output, reason, low=low)


@dataclass
class HeldProjections:
    """Projections of layers where something stands between heads and W_O, call by call."""

    # for every call that reached one, the projection or the reason why there is none
    by_call: dict[int, OutputProjection] = field(default_factory=dict)

    def passed(self, call: int, passed: Passed) -> None:
        """Prove that Σ_h (z_h ⊙ m_h) W_O^h + b_O is what the linear layer gave."""
        z = passed.z
        weight = output_slices(passed.weight.detach(), z.shape[2])
        bias = None if passed.bias is None else passed.bias.detach()
        product = z.detach().float() * passed.factor.float()
        reason = (
            "what stands between its heads and W_O is no product of the heads' outputs (its "
            "output differs by {:.0e} of the largest)"
        )
        output, low = passed.output.detach(), is_low(z.dtype)
        proved = _proved(product, weight, bias, output, reason, low=low)
        self.by_call[call] = replace(proved, held=() if proved.weight is None else passed.held)


def is_plain(module: Any) -> bool:
    """Whether a linear layer keeps its matrix as numbers, not packed in 8 or 4 bits or on disk."""
    weight = module.weight
    return bool(weight.is_floating_point()) and weight.ndim == 2 and not weight.is_meta


def _same(x: Any, z: Tensor) -> bool:
    """Whether a layer's input is the outputs of all heads side by side."""
    if not isinstance(x, Tensor) or x.shape[-1] != z.shape[2] * z.shape[3]:
        return False
    return x.numel() == z.numel() and x.device == z.device and torch.equal(x.flatten(), z.flatten())


def matrix_of(module: Any) -> Tensor:
    """[out, in], a view of a linear layer's own matrix; Conv1D keeps it as [in, out]."""
    weight: Tensor = module.weight.detach()
    return weight if isinstance(module, nn.Linear) else weight.t()


def _proved(
    z: Tensor, weight: Tensor, bias: Tensor | None, output: Tensor, reason: str, *, low: bool
) -> OutputProjection:
    """Return W_O where Σ_h z_h W_O^h + b_O is the output; ``reason`` takes the largest error."""
    rows = z.flatten(0, 1).transpose(0, 1).float()  # [H, B * T, d_v]
    total = (rows @ weight.float()).sum(0)
    if bias is not None:
        total += bias.float()
    output = output.reshape(total.shape).float()
    error = float((total - output).abs().max() / output.abs().max().clamp_min(1e-30))
    if error <= (_TOLERANCE_LOW if low else TOLERANCE):
        return OutputProjection(weight, bias)
    return OutputProjection(None, None, reason.format(error))


_WHY: Mapping[str, str] = {
    "diffllama": "its attention is differential (Ye et al. 2024, arXiv:2410.05258): the outputs of "
    "one half of the heads, less λ times the other's, are normalized before W_O",
    "jetmoe": "a router chooses for each token which expert's W_O takes its heads' outputs "
    "(mixture of attention heads)",
    "prophetnet": "one W_O takes the outputs of several streams, one for each token ahead, in code "
    "of its own",
    "inkling2_text": "its code gives every query a sink of its own, computed from the token",
    "inkling2_loop_text": "its code gives every query a sink of its own, computed from the token",
}


def why_unsplit(family: str, reason: str) -> str:
    """Give the reason, as the end of a sentence: what is known of the family, or what was found."""
    return _WHY.get(family, reason)


def head_layers(
    ran: Mapping[int, ModuleCall], final: Tensor, logits: Tensor, table: Tensor, bias: Tensor | None
) -> HeadLayers | None:
    """Return what stands between the final states and W_U; None where it is not known.

    ``final`` [T, D], what the last normalization gives; ``logits`` [T, V]; ``table``: W_U
    transposed, [V, D]; ``bias`` [V], or None.
    """
    calls = [call for call in ran.values() if isinstance(call.entered, Tensor)]
    for last in calls:
        gave = last.output
        if gave.shape != final.shape or not close(F.linear(gave, table, bias), logits):
            continue
        norm = normalization(last.module, *first_item(last))
        act = None if norm is None else _before(calls, first_item(last)[0])
        dense = None if act is None else _before(calls, first_item(act)[0])
        if norm is None or act is None or dense is None or not _by_number(act):
            continue
        weight = getattr(dense.module, "weight", None)
        if isinstance(weight, Tensor) and weight.shape == (dense.output.shape[-1], final.shape[-1]):
            shift = getattr(dense.module, "bias", None)
            if close(F.linear(final, weight, shift), dense.output):
                shift = None if shift is None else shift.detach()
                return HeadLayers(weight.detach(), act.module, norm, shift)
    return None


def _before(calls: list[ModuleCall], state: Tensor) -> ModuleCall | None:
    """Return the module that gave a state, not one that hands it on."""
    return next(
        (
            call
            for call in calls
            if torch.equal(call.output, state) and not torch.equal(first_item(call)[0], state)
        ),
        None,
    )


def _by_number(call: ModuleCall) -> bool:
    """Whether a module has no numbers of its own, and makes each of one alone, and 0 of 0."""
    module: nn.Module = call.module
    if any(True for _ in module.parameters()):
        return False
    got, gave = first_item(call)
    with torch.no_grad():
        mirrored, at_zero = module(got.flatten().flip(0)), module(torch.zeros_like(got[:1, :1]))
    return close(mirrored.flip(0), gave.flatten()) and not bool(at_zero.any())
