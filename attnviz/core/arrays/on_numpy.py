"""What arrays need beyond what NumPy and torch spell alike, on NumPy.

:mod:`attnviz.core.arrays.on_torch` has the same functions; a test holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

Numbers = NDArray[Any]

xp = np
bool_, int32, int64 = np.bool_, np.int32, np.int64
float32, float64 = np.float32, np.float64


def together(parts: Sequence[Numbers], like: Numbers) -> list[Numbers]:
    """Arrays where ``like`` is."""
    return list(parts)


def cast(x: Numbers, dtype: DTypeLike) -> Numbers:
    """In another type, the same array where it has it."""
    return x.astype(dtype, copy=False)


def asarray(values: Any, dtype: DTypeLike, like: Numbers) -> Numbers:
    """Numbers from Python or NumPy, where ``like`` is."""
    return np.asarray(values, dtype)


def empty(shape: Sequence[int], dtype: DTypeLike, like: Numbers) -> Numbers:
    """Memory, where ``like`` is."""
    return np.empty(shape, dtype)


def zeros(shape: Sequence[int], dtype: DTypeLike, like: Numbers) -> Numbers:
    """Zeros, where ``like`` is."""
    return np.zeros(shape, dtype)


def full(shape: Sequence[int], value: float, dtype: DTypeLike, like: Numbers) -> Numbers:
    """One number everywhere, where ``like`` is."""
    return np.full(shape, value, dtype)


def arange(start: int, stop: int, dtype: DTypeLike, like: Numbers) -> Numbers:
    """Whole numbers from ``start`` to before ``stop``, where ``like`` is."""
    return np.arange(start, stop, dtype=dtype)


def is_half(x: Numbers) -> bool:
    """Whether it is in half precision, IEEE's or bfloat16."""
    return bool(x.dtype == np.float16)


def on_cpu(x: Numbers) -> bool:
    """Whether it is in the memory of the processor."""
    return True


def largest_float(like: Numbers) -> DTypeLike:
    """Return the most precise type there is, where ``like`` is."""
    return np.float64


def detached(x: Numbers) -> Numbers:
    """Return the same numbers outside of any gradient."""
    return x


def tracked(*arrays: Numbers | None) -> bool:
    """Whether gradients are to reach any of them."""
    return False


def equal(a: Numbers, b: Numbers) -> bool:
    """Whether two have the same shape and the same numbers."""
    return bool(np.array_equal(a, b))


def copied(x: Numbers) -> Numbers:
    """Return the same numbers in memory of their own."""
    return x.copy()


def doubles(x: Numbers) -> Numbers:
    """Return the same numbers in float64."""
    return cast(x, float64)


def at_once(like: Numbers, limit: int) -> int:
    """How many numbers to work on at a time where ``like`` is."""
    return limit


def column_sums(x: Numbers) -> Numbers:
    """Return the sums over the last axis but one, in float64."""
    return x.sum(-2, dtype=np.float64)


def contiguous(x: Numbers) -> Numbers:
    """Return the same numbers, row after row in memory."""
    return np.ascontiguousarray(x)


def columns_of_rows(x: Numbers, columns: Numbers) -> Numbers:
    """x[..., i, columns[i, k]] for every row i: [..., r, s] with int64 [r, n] gives [..., r, n]."""
    return x[..., np.arange(len(columns))[:, None], columns]


def at_indices(x: Numbers, indices: Numbers) -> Numbers:
    """x[..., indices[..., k]]: as many axes in both."""
    return np.take_along_axis(x, indices, -1)


def largest(x: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """Return the largest of the last axis, in order, and their indices; of equal ones the first."""
    candidates = np.argpartition(x, -count, -1)[..., -count:] if count < x.shape[-1] else None
    if candidates is None:
        indices = np.argsort(-x, -1, kind="stable")
    else:
        candidates.sort(-1)
        order = np.argsort(-np.take_along_axis(x, candidates, -1), -1, kind="stable")
        indices = np.take_along_axis(candidates, order, -1)
    return np.take_along_axis(x, indices, -1), indices


def address(x: Numbers) -> int:
    """Where its numbers begin in memory."""
    return x.ctypes.data


def outside(x: Numbers) -> Numbers:
    """Return the same numbers, such that gradients may be computed beside them."""
    return x


def sum_by_row(x: Numbers, rows: Numbers, count: int) -> Numbers:
    """[n, H] added up where ``rows``, int64 [n] and ascending, are the same: [count, H]."""
    sums = np.zeros((count, x.shape[1]), x.dtype)
    if len(rows):
        first = np.flatnonzero(np.diff(rows, prepend=-1))
        sums[rows[first]] = np.add.reduceat(x, first, axis=0)
    return sums


def limits(allowed: Numbers, dtype: DTypeLike) -> Numbers:
    """Infinity where a key is allowed, the lowest number elsewhere: what scores may be at most."""
    return np.where(allowed, np.asarray(np.inf, dtype), np.finfo(dtype).min)


def padded_keys(x: Numbers, before: int, after: int, value: float = 0) -> Numbers:
    """With more keys at both ends: zeros are False in a mask, no weight elsewhere."""
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(before, after)], constant_values=value)


def multiplies_exactly(like: Numbers) -> bool:
    """Whether products of half precision can come in float32, without a copy of the factors."""
    return False


def exact_matmul(a: Numbers, b: Numbers) -> Numbers:
    """[n, r, d] @ [n, d, s] of half precision, in float32."""
    return matmul(cast(a, float32), cast(b, float32), None)


def matmul(a: Numbers, b: Numbers, out: Numbers | None) -> Numbers:
    """[n, r, d] @ [n, d, s], into ``out`` if that is given."""
    return np.matmul(a, b, out=out)


def softmax(scores: Numbers, out: Numbers | None) -> Numbers:
    """Softmax over the last axis, into ``out`` if that is given."""
    weights: Numbers = np.subtract(scores, scores.max(-1, keepdims=True), out=out)
    np.exp(weights, out=weights)
    weights /= weights.sum(-1, keepdims=True)
    return weights


def log_softmax(scores: Numbers) -> Numbers:
    """Log of the softmax over the last axis."""
    logarithms: Numbers = scores - scores.max(-1, keepdims=True)
    logarithms -= np.log(np.exp(logarithms).sum(-1, keepdims=True))
    return logarithms


def log_probabilities(scores: Numbers, ids: Numbers) -> Numbers:
    """Of one entry of each row, the log of the softmax: of [n, V] and [n], [n]."""
    logarithms = np.empty(len(scores), scores.dtype)
    step = max(1, 4 * _NEAR // scores.shape[-1])
    for start in range(0, len(scores), step):
        part = scores[start : start + step]
        shifted = part - part.max(-1, keepdims=True)
        chosen = shifted[np.arange(len(part)), ids[start : start + step]]
        logarithms[start : start + step] = chosen - np.log(np.exp(shifted, out=shifted).sum(-1))
    return logarithms


def log_sum_exp(scores: Numbers) -> Numbers:
    """Log Σ e^s over the last axis, which stays with one entry."""
    peak = scores.max(-1, keepdims=True)
    return np.log(np.exp(scores - peak).sum(-1, keepdims=True)) + peak


def sigmoid(x: Numbers) -> Numbers:
    """1 / (1 + e^-x)."""
    return 0.5 * np.tanh(0.5 * x) + 0.5


def dropout(weights: Numbers, probability: float) -> Numbers:
    """Of layers in training, which are torch's."""
    raise TypeError("dropout belongs to training, which runs on torch; give attend tensors")


def linear(x: Numbers, weight: Numbers, bias: Numbers | None) -> Numbers:
    """X Wᵀ + b with W [out, in]; one product for all items."""
    product: Numbers = x.reshape(-1, x.shape[-1]) @ weight.T
    product = product.reshape(*x.shape[:-1], len(weight))
    if bias is not None:
        product += bias
    return product


def embedding(ids: Numbers, table: Numbers) -> Numbers:
    """Return the rows of a table that ids name."""
    return table[ids]


def layer_norm(x: Numbers, weight: Numbers, bias: Numbers, eps: float) -> Numbers:
    """(x - mean x) / √(var x + ε) γ + β over the last axis (arXiv:1607.06450)."""
    centred: Numbers = x - x.mean(-1, keepdims=True)
    variance = np.square(centred).mean(-1, keepdims=True)
    centred /= np.sqrt(variance + eps)
    centred *= weight
    centred += bias
    return centred


def gelu(x: Numbers) -> Numbers:
    """X Φ(x) (arXiv:1606.08415), to 2e-7 of x."""
    return _in_cache(_gelu, x)


def gelu_tanh(x: Numbers) -> Numbers:
    """GELU's tanh form, x/2 (1 + tanh(√(2/π) (x + 0.044715 x³)))."""
    return _in_cache(_gelu_tanh, x)


def relu(x: Numbers) -> Numbers:
    """max(x, 0)."""
    return np.maximum(x, 0)


def triangle(x: Numbers) -> Numbers:
    """R of x = Q R, [..., D, d] to [..., d, d]."""
    upper: Numbers = np.linalg.qr(x, mode="r")  # type: ignore[assignment]
    return upper


def orthogonal(x: Numbers) -> Numbers:
    """Q of x = Q R, [..., D, d]."""
    return np.linalg.qr(x)[0]


def singular_values(x: Numbers) -> Numbers:
    """Of [..., n, n], the largest first."""
    return np.linalg.svd(x, compute_uv=False)


_NEAR = 1 << 14
"""Numbers that stay in a processor's nearest cache while many operations go over them."""


def _in_cache(function: Callable[[Numbers], Numbers], x: Numbers) -> Numbers:
    """Return a function of single numbers, a part of them at a time: up to four times faster."""
    flat = np.ascontiguousarray(x).reshape(-1)
    result = np.empty_like(flat)
    for start in range(0, len(flat), _NEAR):
        part = slice(start, start + _NEAR)
        result[part] = function(flat[part])
    return result.reshape(x.shape)


def _gelu(x: Numbers) -> Numbers:
    y = _erf(x * x.dtype.type(math.sqrt(0.5)))
    y += 1
    y *= x
    y *= 0.5
    return y


def _gelu_tanh(x: Numbers) -> Numbers:
    y: Numbers = x * x
    y *= 0.044715
    y += 1
    y *= x
    y *= math.sqrt(2 / math.pi)
    np.tanh(y, out=y)
    y += 1
    y *= x
    y *= 0.5
    return y


_ERF_POLE = 0.35
_ERF = (-0.192612165, 0.745124265, -0.623304957, 0.620510443, 0.0315717061, 0.222536255,
        0.196174449)  # fmt: skip
"""1 - erf x = e^(-x²) Σ c_k t^k with t = 1 / (1 + 0.35 x), from c_7 down to c_1: fitted to the
smallest largest error, 4e-9 before rounding. SciPy's own takes longer to import than a text."""


def _erf(x: Numbers) -> Numbers:
    """Return the error function, to 5e-7 in single precision about 0; exact far from it."""
    size: Numbers = np.abs(x)
    t: Numbers = size * x.dtype.type(_ERF_POLE)
    t += 1
    np.reciprocal(t, out=t)
    y = t * x.dtype.type(_ERF[0])
    for coefficient in _ERF[1:]:
        y += x.dtype.type(coefficient)
        y *= t
    size *= size
    np.negative(size, out=size)
    np.exp(size, out=size)
    y *= size
    np.subtract(1, y, out=y)
    return np.copysign(y, x, out=y)
