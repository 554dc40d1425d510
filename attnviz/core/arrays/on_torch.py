"""What arrays need beyond what NumPy and torch spell alike, on torch.

:mod:`attnviz.core.arrays.on_numpy` has the same functions; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

_BYTES = 64
"""Taken for each number of a block: it, and what is worked out of it."""

xp = torch
bool_, int32, int64 = torch.bool, torch.int32, torch.int64
float32, float64 = torch.float32, torch.float64


def together(parts: Sequence[NDArray[Any]], like: Tensor) -> list[Tensor]:
    """NumPy arrays where ``like`` is, moved in one piece."""
    bytes_ = [np.frombuffer(part.tobytes() + bytes(-part.nbytes % 8), np.uint8) for part in parts]
    joint = torch.from_numpy(np.concatenate([*bytes_, np.zeros(8, np.uint8)])).to(like.device)
    tensors, first = [], 0
    for part, buffer in zip(parts, bytes_, strict=True):
        flat = joint[first : first + part.nbytes].view(getattr(torch, str(part.dtype)))
        tensors.append(flat.reshape(part.shape))
        first += len(buffer)
    return tensors


def cast(x: Tensor, dtype: torch.dtype) -> Tensor:
    """In another type, the same tensor where it has it."""
    return x.to(dtype)


def asarray(values: Any, dtype: torch.dtype, like: Tensor) -> Tensor:
    """Numbers from Python, NumPy or torch, where ``like`` is; for float64 its largest float."""
    if dtype == torch.float64:
        dtype = largest_float(like)
    if isinstance(values, Tensor):  # its type first: the device may not have the one it has
        values = values.to(dtype)
    return torch.as_tensor(values, dtype=dtype, device=like.device)


def empty(shape: Sequence[int], dtype: torch.dtype, like: Tensor) -> Tensor:
    """Memory, where ``like`` is."""
    return torch.empty(tuple(shape), dtype=dtype, device=like.device)


def zeros(shape: Sequence[int], dtype: torch.dtype, like: Tensor) -> Tensor:
    """Zeros, where ``like`` is."""
    return torch.zeros(tuple(shape), dtype=dtype, device=like.device)


def full(shape: Sequence[int], value: float, dtype: torch.dtype, like: Tensor) -> Tensor:
    """One number everywhere, where ``like`` is."""
    return torch.full(tuple(shape), value, dtype=dtype, device=like.device)


def arange(start: int, stop: int, dtype: torch.dtype, like: Tensor) -> Tensor:
    """Whole numbers from ``start`` to before ``stop``, where ``like`` is."""
    return torch.arange(start, stop, dtype=dtype, device=like.device)


def is_half(x: Tensor) -> bool:
    """Whether it is in half precision, IEEE's or bfloat16."""
    return x.dtype in (torch.float16, torch.bfloat16)


def on_cpu(x: Tensor) -> bool:
    """Whether it is in the memory of the processor."""
    return x.device.type == "cpu"


def largest_float(like: Tensor) -> torch.dtype:
    """Return the most precise type there is, where ``like`` is: MPS has no float64."""
    return torch.float32 if like.device.type == "mps" else torch.float64


def detached(x: Tensor) -> Tensor:
    """Return the same numbers outside of any gradient."""
    return x.detach()


def tracked(*arrays: Tensor | None) -> bool:
    """Whether gradients are to reach any of them."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in arrays)


def equal(a: Tensor, b: Tensor) -> bool:
    """Whether two have the same shape and the same numbers."""
    return torch.equal(a, b)


def copied(x: Tensor) -> Tensor:
    """Return the same numbers in memory of their own."""
    return x.clone()


def doubles(x: Tensor) -> Tensor:
    """Return the same numbers in float64, on the CPU where their device has none."""
    return (x if largest_float(x) == torch.float64 else x.cpu()).double()


def free_memory(device: torch.device) -> int | None:
    """Bytes that are free on a GPU, those too that torch keeps for itself; None on a CPU."""
    if device.type == "cuda":
        reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserved
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    return None


def at_once(like: Tensor, limit: int) -> int:
    """How many numbers to work on at a time where ``like`` is: by the memory that is free there."""
    free = free_memory(like.device)
    return limit if free is None else min(limit, free // _BYTES)


def column_sums(x: Tensor) -> Tensor:
    """Give sums over the last axis but one, in float64, on the CPU where their device has none."""
    return (x if largest_float(x) == torch.float64 else x.cpu()).sum(-2, dtype=torch.float64)


def contiguous(x: Tensor) -> Tensor:
    """Return the same numbers, row after row in memory."""
    return x.contiguous()


def columns_of_rows(x: Tensor, columns: Tensor) -> Tensor:
    """x[..., i, columns[i, k]] for every row i: [..., r, s] with int64 [r, n] gives [..., r, n]."""
    return x.gather(x.ndim - 1, columns.expand(*x.shape[:-2], -1, -1))


def at_indices(x: Tensor, indices: Tensor) -> Tensor:
    """x[..., indices[..., k]]: as many axes in both."""
    return torch.take_along_dim(x, indices, -1)


def largest(x: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the largest of the last axis, in order, and their indices."""
    values, indices = x.topk(count)
    return values, indices


def address(x: Tensor) -> int:
    """Where its numbers begin in memory."""
    return x.data_ptr()


def outside(x: Tensor) -> Tensor:
    """Return the same numbers, such that gradients may be computed beside them."""
    return x.clone() if x.is_inference() else x


def sum_by_row(x: Tensor, rows: Tensor, count: int) -> Tensor:
    """[n, H] added up where ``rows``, int64 [n] and ascending, are the same: [count, H]."""
    sums = x.new_zeros(count, x.shape[1])  # CUDA's index_add_ has no fixed order
    return sums.index_put_((rows,), x, True) if x.is_cuda else sums.index_add_(0, rows, x)


def limits(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """Infinity where a key is allowed, the lowest number elsewhere: what scores may be at most."""
    lowest = torch.full_like(allowed, torch.finfo(dtype).min, dtype=dtype)
    return lowest.masked_fill_(allowed, float("inf"))


def padded_keys(x: Tensor, before: int, after: int, value: float = 0) -> Tensor:
    """With more keys at both ends: zeros are False in a mask, no weight elsewhere."""
    return F.pad(x, (before, after), value=value)


def multiplies_exactly(like: Tensor) -> bool:
    """Whether products of half precision can come in float32 there, without a copy of the factors.

    torch has it for CUDA alone, from 2.8 on.
    """
    return like.is_cuda and "out_dtype" in (torch.bmm.__doc__ or "")


def exact_matmul(a: Tensor, b: Tensor) -> Tensor:
    """[n, r, d] @ [n, d, s] of half precision, in float32."""
    if multiplies_exactly(a):
        return torch.bmm(a, b, out_dtype=torch.float32)
    return torch.bmm(a.float(), b.float())


def matmul(a: Tensor, b: Tensor, out: Tensor | None) -> Tensor:
    """[n, r, d] @ [n, d, s], into ``out`` if that is given."""
    return torch.bmm(a, b, out=out)


def softmax(scores: Tensor, out: Tensor | None) -> Tensor:
    """Softmax over the last axis, into ``out`` if that is given."""
    return torch.softmax(scores, dim=-1, out=out)


def log_softmax(scores: Tensor) -> Tensor:
    """Log of the softmax over the last axis."""
    return torch.log_softmax(scores, -1)


def log_probabilities(scores: Tensor, ids: Tensor) -> Tensor:
    """Of one entry of each row, the log of the softmax: of [n, V] and [n], [n]."""
    return torch.log_softmax(scores, -1).gather(-1, ids[:, None])[:, 0]


def log_sum_exp(scores: Tensor) -> Tensor:
    """Log Σ e^s over the last axis, which stays with one entry."""
    return scores.logsumexp(-1, keepdim=True)


def sigmoid(x: Tensor) -> Tensor:
    """1 / (1 + e^-x)."""
    return torch.sigmoid(x)


def dropout(weights: Tensor, probability: float) -> Tensor:
    """Of layers in training, which are torch's."""
    return F.dropout(weights, probability)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """X Wᵀ + b with W [out, in]; one product for all items."""
    return F.linear(x, weight, bias)


def embedding(ids: Tensor, table: Tensor) -> Tensor:
    """Return the rows of a table that ids name."""
    return F.embedding(ids, table)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    """(x - mean x) / √(var x + ε) γ + β over the last axis (arXiv:1607.06450)."""
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def gelu(x: Tensor) -> Tensor:
    """X Φ(x) (arXiv:1606.08415)."""
    return F.gelu(x)


def gelu_tanh(x: Tensor) -> Tensor:
    """GELU's tanh form, x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    return F.gelu(x, approximate="tanh")


def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return F.relu(x)


def triangle(x: Tensor) -> Tensor:
    """R of x = Q R, [..., D, d] to [..., d, d]."""
    return torch.linalg.qr(x, mode="r").R


def orthogonal(x: Tensor) -> Tensor:
    """Q of x = Q R, [..., D, d]."""
    return torch.linalg.qr(x).Q


def singular_values(x: Tensor) -> Tensor:
    """Of [..., n, n], the largest first."""
    return torch.linalg.svdvals(x)
