"""Fresh attention layers: seeded, readable, and nothing but attention.

Every layer projects with ``w_q``, ``w_k``, ``w_v``, attends per head with :func:`attend`, joins the
heads and mixes them with ``w_o``. Kinds differ only in how keys and values come about.

Notation: B batch, T queries, S keys, D model width, H query heads, G key/value heads, d head width.

``attnviz.attend`` is ``softmax(Q Kᵀ / √d + M) V`` (Vaswani et al. 2017, arXiv:1706.03762) on
tensors, as :mod:`attnviz.attention.blocks` computes it for all models. Without observers the same
result comes from PyTorch's own fused kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor, nn

from attnviz.attention.blocks import UNNAMED, Attended, attend_unchecked
from attnviz.attention.spec import Kind, check_sizes
from attnviz.core.heads import Site
from attnviz.core.interface import interface
from attnviz.core.source import Cut, Donor, Gate, Observer
from attnviz.core.weights import output_slices


@interface
def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    padding: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    window: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    dropout: float = 0.0,
    cuts: Cut | None = None,
    gate: Gate | None = None,
    donors: Sequence[Donor] = (),
    residual: Tensor | None = None,
    site: Site = UNNAMED,
    observers: Sequence[Observer] = (),
    block_rows: int | None = None,
) -> Attended:
    """Attend, and hand the weights to ``observers`` in blocks of query rows.

    Args:
        query: [B, H, T, d].
        key: [B, G, S, d] with H divisible by G; query head h reads key head h // (H / G).
        value: [B, G, S, d_v].
        mask: broadcastable to [B, H, T, S]; boolean (True = may attend) or additive (a value at or
            below half of its dtype's minimum blocks).
        padding: bool [B, S], True for real keys.
        bias: additive position bias, broadcastable to [B, H, T, S]; never blocks.
        causal: query i sees keys up to i + S - T, so that the last query sees every key.
        window: a query sees only keys less than ``window`` positions away (in the causal sense when
            ``causal``, otherwise on both sides).
        scale: factor on the scores, 1/√d by default.
        softcap: c · tanh(scores / c) before bias and mask (Gemma 2, arXiv:2408.00118).
        sinks: [H], learned scores of a key without a value that every row may rest on (GPT-OSS,
            arXiv:2508.10925); rows then sum to less than 1.
        dropout: probability, on the weights after softmax; observers see them before.
        cuts: edges whose weights are cut; observers see what is left of them.
        gate: what passes of each head's output, and what takes its place; with shares for n · B
            items the output has as many.
        donors: what another run gives in place of queries, keys, values, weights or outputs;
            before the gate, and as many items as it.
        residual: [B, T, D], what goes past attention to each query; only handed to observers.
        site: named in the blocks that observers get.
        observers: each gets every block, in order of the rows.
        block_rows: query rows per block; chosen from the sizes by default. It changes memory and
            time, not the result.

    Returns:
        The output and the rows that had no key to attend to. Softmax is computed in float32, or in
        float64 for float64 inputs.

    Raises:
        ValueError: shapes that do not fit together, named with their sizes.
        ModelError: weights that observers would see are not numbers.
    """
    return attend_unchecked(
        query, key, value, mask=mask, padding=padding, bias=bias, causal=causal, window=window,
        scale=scale, softcap=softcap, sinks=sinks, dropout=dropout, cuts=cuts, gate=gate,
        donors=donors, residual=residual, site=site, observers=observers, block_rows=block_rows,
    )  # fmt: skip


ROPE_BASE = 10_000.0


class LayerOptions(TypedDict, total=False):
    """What of :func:`attend` a layer takes beside its sequences."""

    padding: Tensor | None
    cuts: Cut | None
    gate: Gate | None
    donors: Sequence[Donor]
    residual: Tensor | None
    site: Site
    observers: Sequence[Observer]


class AttentionLayer(nn.Module):
    """What every kind shares: the output projection, and how the layer is run."""

    w_o: nn.Linear

    def __init__(
        self, d_model: int, heads: int, head_dim: int, causal: bool, dropout: float
    ) -> None:
        super().__init__()
        if not 0.0 <= dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {dropout}")
        self.d_model, self.heads, self.head_dim = d_model, heads, head_dim
        self.causal, self.dropout = causal, dropout

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give queries [B, H, T, d_qk] from ``x``, keys [B, G, S, d_qk] and values [B, G, S, d]."""
        raise TypeError(f"{type(self).__name__} is not a kind of attention by itself")

    def forward(
        self, x: Tensor, context: Tensor | None = None, **options: Unpack[LayerOptions]
    ) -> Tensor:
        """Run the layer, [B, T, D]; arguments as for :meth:`attend`."""
        attended = self.attend(x, context, **options)
        mixed: Tensor = attended.output.transpose(1, 2).contiguous().flatten(2)  # [B, T, H*d]
        return self.w_o(mixed)

    def attend(
        self, x: Tensor, context: Tensor | None = None, **options: Unpack[LayerOptions]
    ) -> Attended:
        """Return the heads' outputs [B, H, T, d], before ``w_o`` mixes them.

        ``x`` [B, T, D], the queries' sequence; ``context`` [B, S, D], the keys' and values'
        sequence; ``x`` by default.
        """
        query, key, value = self.project(x, x if context is None else context)
        dropout = self.dropout if self.training else 0.0
        return attend_unchecked(query, key, value, causal=self.causal, dropout=dropout, **options)

    def contributions(self, head_outputs: Tensor) -> Tensor:
        """Return what each head adds to the layer's output.

        ``head_outputs`` [B, H, T, d], from :meth:`attend`; returns [B, H, T, D]; summed over H this
        is the layer's output minus the bias of ``w_o``.
        """
        return head_outputs @ output_slices(self.w_o.weight, self.heads)


class MultiHeadAttention(AttentionLayer):
    """Multi-head, grouped-query, multi-query and cross-attention.

    ``kv_heads`` = H is multi-head attention (Vaswani et al. 2017, arXiv:1706.03762), 1 < G < H
    grouped-query (Ainslie et al. 2023, arXiv:2305.13245), G = 1 multi-query (Shazeer 2019,
    arXiv:1911.02150). Called with a ``context`` it is cross-attention.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        kv_heads: int | None = None,
        head_dim: int | None = None,
        bias: bool = True,
        causal: bool = False,
        dropout: float = 0.0,
        seed: int | torch.Generator = 0,
    ) -> None:
        sizes = check_sizes(d_model, heads, kv_heads=kv_heads, head_dim=head_dim)
        super().__init__(d_model, heads, sizes.head_dim, causal, dropout)
        self.kv_heads = sizes.kv_heads
        inner, shared = heads * sizes.head_dim, sizes.kv_heads * sizes.head_dim
        self.w_q = _linear(d_model, inner, bias)
        self.w_k = _linear(d_model, shared, bias)
        self.w_v = _linear(d_model, shared, bias)
        self.w_o = _linear(inner, d_model, bias)
        _initialize(self, seed)

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries [B, H, T, d], keys and values [B, G, S, d]."""
        return (
            split_heads(self.w_q(x), self.heads),
            split_heads(self.w_k(context), self.kv_heads),
            split_heads(self.w_v(context), self.kv_heads),
        )


class LatentAttention(AttentionLayer):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434, section 2.1).

    Keys and values are rebuilt from a latent of width r that all heads share; position travels in a
    decoupled rotary key of width d_r, shared by all heads too. A cache keeps r + d_r numbers a
    token. Queries are projected at full rank, and the latent is not normalized.
    """

    def __init__(
        self,
        d_model: int,
        heads: int,
        *,
        latent: int,
        rope_dim: int = 0,
        head_dim: int | None = None,
        bias: bool = True,
        causal: bool = False,
        dropout: float = 0.0,
        seed: int | torch.Generator = 0,
    ) -> None:
        sizes = check_sizes(d_model, heads, head_dim=head_dim, latent=latent, rope_dim=rope_dim)
        super().__init__(d_model, heads, sizes.head_dim, causal, dropout)
        self.latent, self.rope_dim = latent, rope_dim
        inner = heads * sizes.head_dim
        self.w_q = _linear(d_model, inner + heads * rope_dim, bias)
        self.w_latent = _linear(d_model, latent, bias)
        self.w_k = _linear(latent, inner, bias)
        self.w_v = _linear(latent, inner, bias)
        self.w_k_rope = _linear(d_model, rope_dim, bias) if rope_dim else None
        self.w_o = _linear(inner, d_model, bias)
        _initialize(self, seed)

    def project(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Give queries and keys [B, H, T, d + d_r] and [B, H, S, d + d_r], values [B, H, S, d]."""
        query = split_heads(self.w_q(x), self.heads)
        latent = self.w_latent(context)  # [B, S, r]: what a cache would keep
        key = split_heads(self.w_k(latent), self.heads)
        value = split_heads(self.w_v(latent), self.heads)
        if self.w_k_rope is not None:
            content, position = query[..., : self.head_dim], query[..., self.head_dim :]
            query = torch.cat([content, rotate(position)], dim=-1)
            shared = rotate(split_heads(self.w_k_rope(context), 1))  # [B, 1, S, d_r]
            key = torch.cat([key, shared.expand(-1, self.heads, -1, -1)], dim=-1)
        return query, key, value


def split_heads(x: Tensor, heads: int) -> Tensor:
    """[B, T, H*d] -> [B, T, H, d] -> [B, H, T, d]."""
    return x.view(*x.shape[:-1], heads, -1).transpose(1, 2)


def rotate(x: Tensor) -> Tensor:
    """Rotary position embedding of positions 0..T-1 (Su et al. 2021, arXiv:2104.09864)."""
    length, width = x.shape[-2:]
    exponents = torch.arange(0, width, 2, dtype=torch.float64) / width  # no device need have it
    angles = torch.arange(length, dtype=torch.float64)[:, None]
    angles = angles * ROPE_BASE**-exponents  # [T, d_r / 2]
    cos, sin = angles.cos().to(x), angles.sin().to(x)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def build_layer(
    kind: Kind,
    d_model: int,
    heads: int,
    *,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    latent: int | None = None,
    rope_dim: int | None = None,
    bias: bool = True,
    causal: bool = False,
    dropout: float = 0.0,
    seed: int | torch.Generator = 0,
) -> AttentionLayer:
    """Build a layer by the name of its kind; arguments as for the classes.

    ``gqa`` takes a quarter of the heads as key heads unless told otherwise (or the nearest number
    that divides H), ``mqa`` one, ``mla`` a latent of 4·d and a rotary key of d/2 (DeepSeek-V2's
    proportions).
    """
    sizes = check_sizes(
        d_model, heads, kind=kind, kv_heads=kv_heads, head_dim=head_dim, latent=latent,
        rope_dim=rope_dim,
    )  # fmt: skip
    shared: dict[str, Any] = {"head_dim": sizes.head_dim, "bias": bias, "causal": causal}
    shared |= {"dropout": dropout, "seed": seed}
    if kind == "mla":
        return LatentAttention(
            d_model, heads, latent=sizes.latent, rope_dim=sizes.rope_dim, **shared
        )
    return MultiHeadAttention(d_model, heads, kv_heads=sizes.kv_heads, **shared)


def _linear(width_in: int, width_out: int, bias: bool) -> nn.Linear:
    """Make a projection whose weights are not drawn yet: no global random state is touched."""
    return nn.utils.skip_init(nn.Linear, width_in, width_out, bias=bias)  # type: ignore[no-untyped-call]


def _initialize(layer: nn.Module, seed: int | torch.Generator) -> None:
    """Draw every weight from one stream, in the order in which they are declared."""
    if isinstance(seed, int):
        seed = torch.Generator().manual_seed(seed)
    for parameter in layer.parameters():
        with torch.no_grad():
            if parameter.ndim == 1:
                parameter.zero_()
            else:
                bound = math.sqrt(6 / sum(parameter.shape))
                parameter.uniform_(-bound, bound, generator=seed)
