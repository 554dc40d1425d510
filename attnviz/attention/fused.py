"""Attention whose weights nobody sees: PyTorch's own fused kernel."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor

from attnviz.attention.masks import Masks


def attend_fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    masks: Masks,
    bias: Tensor | None,
    scale: float,
    dropout: float,
) -> tuple[Tensor, Tensor | None]:
    """The same result from ``scaled_dot_product_attention``, which hands out no weights."""
    empty = None
    additive: Tensor | None = None
    if not (masks.fused_causal and bias is None):
        allowed = masks.whole()
        if allowed is not None and masks.may_be_empty:
            empty = ~allowed.any(-1)
        extras = [extra for extra in (bias, masks.additive) if extra is not None]
        additive = allowed
        if extras:
            additive = sum(extras[1:], start=extras[0]).to(query.dtype)
            if allowed is not None:
                additive = additive.masked_fill(~allowed, -math.inf)
    output = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=additive,
        is_causal=masks.fused_causal and bias is None,
        dropout_p=dropout,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    if empty is not None and empty.any():
        output = output.masked_fill(empty[..., None], 0.0)
    return output, empty
