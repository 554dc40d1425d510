"""What the outputs of heads are multiplied by while somebody else's code runs them.

A gate of 0 takes a head away, 1 leaves it as it is; a tensor passes gradients on to whoever set it.
Heads are told apart where they are: in the output of ``scaled_dot_product_attention``, in the
weights that a softmax gave, before they meet values, and in the columns of the matrix that
``nn.MultiheadAttention`` multiplies its heads with.
"""

from __future__ import annotations

from collections.abc import Mapping
from torch import Tensor


def gated_projection(weight: Tensor, gates: Tensor) -> Tensor:
    """The matrix that joins heads, [D, H · d], its columns times the gates [H] of their heads."""
    return weight * gates.to(weight).repeat_interleave(weight.shape[1] // len(gates))


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
