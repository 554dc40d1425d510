"""An LM head of more than one matrix: found in a few tokens' pass, proved by what it gives.

ModernBERT's decoder gives norm(act(n W + b)) W_U, n what the last normalization gives. Modules are
not known by name: the matrix takes n, the activation what the matrix gave, number by number, the
normalization what the activation gave; and the logits must be those of the last matrix.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from attnviz.core.weights import HeadLayers
from attnviz.models.hooked.layer_sums import ModuleCall, first_item
from attnviz.models.hooked.norms import close, normalization


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
