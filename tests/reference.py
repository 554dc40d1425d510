"""Independent float64 NumPy implementations that the tests compare with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def softmax_rows(scores: Array) -> Array:
    """Softmax over the last axis; rows that are -inf throughout become zero."""
    peak = scores.max(-1, keepdims=True)
    peak = np.where(np.isfinite(peak), peak, 0.0)
    e = np.exp(scores - peak)
    total = e.sum(-1, keepdims=True)
    return np.divide(e, total, out=np.zeros_like(e), where=total > 0)


def attention(
    q: Array,
    k: Array,
    v: Array,
    allowed: NDArray[np.bool_] | None = None,
    bias: Array | float = 0.0,
    scale: float | None = None,
    softcap: float | None = None,
) -> tuple[Array, Array]:
    """Loop over batch and heads; returns weights [B, H, T, S] and output [B, H, T, d_v]."""
    b, h, t, d = q.shape
    g, s = k.shape[1:3]
    weights = np.zeros((b, h, t, s))
    output = np.zeros((b, h, t, v.shape[-1]))
    bias = np.broadcast_to(bias, (b, h, t, s))
    for i in range(b):
        for j in range(h):
            scores = q[i, j] @ k[i, j // (h // g)].T * (d**-0.5 if scale is None else scale)
            if softcap is not None:
                scores = softcap * np.tanh(scores / softcap)
            scores = scores + bias[i, j]
            if allowed is not None:
                mine = np.broadcast_to(allowed, (b, h, t, s))[i, j]
                scores = np.where(mine, scores, -np.inf)
            weights[i, j] = softmax_rows(scores)
            output[i, j] = weights[i, j] @ v[i, j // (h // g)]
    return weights, output


def rope(x: Array) -> Array:
    """Rotary embedding, written with complex numbers; component i pairs with i + width / 2."""
    t, width = x.shape[-2:]
    half = width // 2
    z = x[..., :half] + 1j * x[..., half:]
    theta = 10000.0 ** (-np.arange(half) * 2 / width)
    z = z * np.exp(1j * np.outer(np.arange(t), theta))
    return np.concatenate([z.real, z.imag], -1)
