"""Matrices of linear layers, cut into heads."""

from __future__ import annotations

from attnviz.core.arrays import Array


def output_slices(weight: Array, heads: int) -> Array:
    """W_O cut into heads: [D, H*d] as a linear layer stores it -> [H, d, D]."""
    return weight.T.reshape(heads, -1, weight.shape[0])


def input_slices(weight: Array, heads: int) -> Array:
    """W_Q, W_K or W_V cut into heads: [H*d, D] as a linear layer stores it -> [H, D, d]."""
    return weight.reshape(heads, -1, weight.shape[1]).swapaxes(1, 2)
