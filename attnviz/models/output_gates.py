"""What the outputs of heads are multiplied by while somebody else's code runs them.

A gate of 0 takes a head away, 1 leaves it as it is; a tensor passes gradients on to whoever set it.
Heads are told apart where they are: in the output of ``scaled_dot_product_attention``, in the
weights that a softmax gave, before they meet values, and in the columns of the matrix that
``nn.MultiheadAttention`` multiplies its heads with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from torch import Tensor, nn

from attnviz.errors import InputError


def gated_output(output: Tensor, gates: Tensor | None) -> Tensor:
    """Heads' outputs [B, H, T, d] times a gate for each of the H; as they are without gates."""
    return output if gates is None else output * gates.to(output)[:, None, None]


def gated_weights(weights: Tensor, gates: Tensor) -> Tensor:
    """Weights of H heads times a gate for each.

    Args:
        weights: [T, S], [B, T, S], [B · H, T, S] or [B, H, T, S], as the code has them.
        gates: [H].

    Raises:
        InputError: the heads stand elsewhere.
    """
    leading = weights.shape[:-2]
    items, rest = divmod(prod(leading), len(gates))
    if rest:
        raise InputError(
            f"weights of shape {tuple(weights.shape)} cannot be gated by head: "
            f"there are {len(gates)} heads"
        )
    return weights * gates.to(weights).repeat(items).reshape(*leading, 1, 1)


def gate_module(module: nn.MultiheadAttention, gates: Tensor) -> Callable[[], None]:
    """Multiply the heads of a module by gates [H] until the function that is returned is called."""
    projection = module.out_proj
    weight = projection.weight
    columns = gates.to(weight).repeat_interleave(module.head_dim)
    parameters: dict[str, Any] = projection._parameters
    parameters["weight"] = weight * columns

    def undo() -> None:
        parameters["weight"] = weight

    return undo


def by_call(
    calls: Mapping[int, int], heads: Mapping[int, list[int]], gate: float | Tensor
) -> dict[int, Tensor]:
    """The gates of every call that has heads to gate.

    Args:
        calls: how many heads each call of a pass has.
        heads: which of them are gated, by call.
        gate: one for all, or a tensor with as many as there are heads, in the order of ``heads``.

    Returns:
        [H] for each call: 1 where nothing is gated.
    """
    import torch

    each = torch.as_tensor(gate, dtype=None if isinstance(gate, Tensor) else torch.float32)
    each = each.expand(sum(map(len, heads.values())))
    gates: dict[int, Tensor] = {}
    first = 0
    for call, indices in heads.items():
        own = each[first : first + len(indices)]
        ones = torch.ones(calls[call], dtype=own.dtype, device=own.device)
        gates[call] = ones.index_put((torch.tensor(indices, device=own.device),), own)
        first += len(indices)
    return gates
