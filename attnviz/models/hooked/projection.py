"""W_O of a hooked model: found by what goes in, proved by what comes out.

Modules are not known by name. The output projection of a layer is the linear layer that takes its
heads' outputs z_h, number for number; that Σ_h z_h W_O^h + b_O is then what it gives is computed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnviz.core.weights import HeadLayers, OutputProjection, output_slices
from attnviz.models.hooked.layer_sums import first_item
from attnviz.models.hooked.passage import Passed
from attnviz.models.hooked.trace import ModuleCall, calls_of, close, is_low, normalization

NO_LAYER = "no linear layer takes its heads' outputs as they are"
"""The reason where something may stand between heads and W_O."""
QUANTIZED = "its W_O is stored in 8 or 4 bits, and no matrix of numbers"
"""The reason where the linear layer is known, and not what it multiplies with."""
TOLERANCE = 1e-5
"""Largest difference of the projection's output, relative to the largest, that counts as none."""

TOLERANCE_LOW = 1e-2
"""The same for float16 and bfloat16, to which the projection rounds what it gives."""


@dataclass
class Projections:
    """Watches which linear layer takes what each call of the attention function returned."""

    # for every call, the projection or the reason why there is none
    seen: list[OutputProjection] = field(default_factory=list)
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
        self.seen.append(OutputProjection(None, None, NO_LAYER))

    def _ran(self, call: ModuleCall) -> None:
        """A linear layer has run: is it the projection of the last call?"""
        z, module = self._z, cast("Any", call.module)
        if z is None or not _same(call.entered, z):
            return
        if self.seen[-1].weight is not None:
            self.seen[-1] = OutputProjection(None, None, "two layers take its heads' outputs")
            return
        if not is_plain(module):
            self.seen[-1] = OutputProjection(None, None, QUANTIZED)
            return
        weight = _slices(module, z.shape[2])
        bias = None if module.bias is None else module.bias.detach()
        error = _error(z, weight, bias, call.left)
        if error <= (TOLERANCE_LOW if is_low(z.dtype) else TOLERANCE):
            self.seen[-1] = OutputProjection(weight, bias)
        else:
            reason = f"its output differs from the sum over its heads by {error:.0e} of the largest"
            self.seen[-1] = OutputProjection(None, None, reason)


@dataclass
class HeldProjections:
    """Projections of layers where something stands between heads and W_O, call by call."""

    # for every call that reached one, the projection or the reason why there is none
    seen: dict[int, OutputProjection] = field(default_factory=dict)

    def passed(self, call: int, passed: Passed) -> None:
        """Prove that Σ_h (z_h ⊙ m_h) W_O^h + b_O is what the linear layer gave."""
        z, low = passed.z, is_low(passed.z.dtype)
        weight = output_slices(passed.weight.detach(), z.shape[2])
        bias = None if passed.bias is None else passed.bias.detach()
        made = z.detach().float() * passed.factor.float()
        error = _error(made, weight, bias, passed.output.detach())
        if error <= (TOLERANCE_LOW if low else TOLERANCE):
            self.seen[call] = OutputProjection(weight, bias, held=passed.held)
            return
        reason = (
            f"what stands between its heads and W_O is no product of the heads' outputs (its "
            f"output differs by {error:.0e} of the largest)"
        )
        self.seen[call] = OutputProjection(None, None, reason)


def is_plain(module: Any) -> bool:
    """Whether a linear layer keeps its matrix as numbers, and not packed in 8 or 4 bits."""
    return bool(module.weight.is_floating_point()) and module.weight.ndim == 2


def _same(x: Any, z: Tensor) -> bool:
    """Whether a layer's input is the outputs of all heads side by side."""
    if not isinstance(x, Tensor) or x.shape[-1] != z.shape[2] * z.shape[3]:
        return False
    return x.numel() == z.numel() and x.device == z.device and torch.equal(x.flatten(), z.flatten())


def _slices(module: Any, heads: int) -> Tensor:
    """[H, d_v, D], a view of the module's own matrix; Conv1D keeps it as [in, out]."""
    weight: Tensor = module.weight.detach()
    return output_slices(weight if isinstance(module, nn.Linear) else weight.t(), heads)


def _error(z: Tensor, weight: Tensor, bias: Tensor | None, output: Tensor) -> float:
    """Largest |Σ_h z_h W_O^h + b_O - output|, relative to the largest output."""
    rows = z.flatten(0, 1).transpose(0, 1).float()  # [H, B * T, d_v]
    made = (rows @ weight.float()).sum(0)
    if bias is not None:
        made += bias.float()
    output = output.reshape(made.shape).float()
    return float((made - output).abs().max() / output.abs().max().clamp_min(1e-30))


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
    """The reason, as the end of a sentence: what is known of the family, or what was found."""
    return _WHY.get(family, reason)


def head_layers(
    ran: Mapping[int, ModuleCall], final: Tensor, logits: Tensor, table: Tensor, bias: Tensor | None
) -> HeadLayers | None:
    """What stands between the final states and W_U; None where it is not known.

    ``final`` [T, D], what the last normalization gives; ``logits`` [T, V]; ``table``: W_U
    transposed, [V, D]; ``bias`` [V], or None.
    """
    calls = [call for call in ran.values() if isinstance(call.entered, Tensor)]
    for last in calls:
        if last.left.shape != final.shape or not close(F.linear(last.left, table, bias), logits):
            continue
        norm = normalization(last.module, *first_item(last))
        act = None if norm is None else _before(calls, first_item(last)[0])
        dense = None if act is None else _before(calls, first_item(act)[0])
        if norm is None or act is None or dense is None or not _by_number(act):
            continue
        weight = getattr(dense.module, "weight", None)
        if isinstance(weight, Tensor) and weight.shape == (dense.left.shape[-1], final.shape[-1]):
            shift = getattr(dense.module, "bias", None)
            if close(F.linear(final, weight, shift), dense.left):
                shift = None if shift is None else shift.detach()
                return HeadLayers(weight.detach(), act.module, norm, shift)
    return None


def _before(calls: list[ModuleCall], state: Tensor) -> ModuleCall | None:
    """The module that gave a state, not one that hands it on."""
    return next(
        (
            call
            for call in calls
            if torch.equal(call.left, state) and not torch.equal(first_item(call)[0], state)
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
        again, none = module(got.flatten().flip(0)), module(torch.zeros_like(got[:1, :1]))
    return close(again.flip(0), gave.flatten()) and not bool(none.any())
