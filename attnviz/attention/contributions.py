"""What heads write: attention weights times transformed values, without [H, T, S, D] numbers.

Head h writes α_ij f_h(x_j) to position i for what it reads at j, with f_h(x_j) = (x_j W_V + b_V)_h
W_O^h (Kobayashi et al. 2020, arXiv:2004.10102); the heads of a layer, its b_O and what the residual
path carries add up to what the layer makes of position i. With residual connection and layer
normalization (Kobayashi et al. 2021, arXiv:2109.07152), x_i is part of what i writes to itself, and
every part v becomes γ ⊙ (v - mean v) / σ with the σ of the whole sum.

Norms of single heads need ‖f_h(x_j)‖ alone, for ‖α f(x)‖ = α‖f(x)‖; those of whole layers the
Gram matrices f_h(x_j) · f_h'(x_j), [H, H] for every key; other distances the parts themselves, in
blocks.

Notation: B batch, H query heads, G key/value heads, r query rows, s keys, d_v width of a head's
values, D width of the residual stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from attnviz.core.source import Normalization, OutputProjection, Rows

PART_ELEMENTS = 1 << 19
"""Numbers of parts that are in memory at a time: 2 MiB in float32, for a processor's cache."""


@dataclass(frozen=True, eq=False)
class Writes:
    """What the keys of a block write to its query rows, and what else ends up there.

    Attributes:
        weights: [B, H, r, s], α, times what a gate lets pass.
        values: [B, G, s, d_v].
        matrix: [H, d_v, D], W_O cut into heads.
        bias: what no key writes, broadcastable to [B, r, D]: b_O, and what gates put in a head's
            place; None for nothing.
        own: the column of the first row's own key, which may lie outside of the block; None where
            queries and keys are not the same tokens (cross-attention).
        residual: [B, r, D], what goes past attention; None leaves it out.
        norm: what the sum goes through; None for nothing.
    """

    weights: Tensor
    values: Tensor
    matrix: Tensor
    bias: Tensor | None = None
    own: int | None = None
    residual: Tensor | None = None
    norm: Normalization | None = None

    @classmethod
    def of(
        cls,
        rows: Rows,
        projection: OutputProjection,
        *,
        residual: bool = False,
        norm: Normalization | None = None,
    ) -> Writes:
        """What a block of rows writes.

        Args:
            rows: with values, and with what goes past them if ``residual``.
            projection: the layer's W_O, which is known.
            residual: whether what the residual path carries belongs to it.
            norm: the normalization after the sum, of a post-norm layer.
        """
        assert rows.values is not None
        assert projection.weight is not None
        weights, matrix = rows.weights, projection.weight.to(rows.weights.dtype)
        bias = None if projection.bias is None else projection.bias.to(weights.dtype)
        if rows.gate is not None:
            share = rows.gate.share.to(weights.dtype)[..., None, None]  # [(B,) H, 1, 1]
            weights = weights * share
            if rows.gate.fill is not None:
                fill = rows.gate.fill.to(weights.dtype)
                if fill.ndim == 2:  # [H, d_v]
                    fill = fill[:, None]
                else:  # [B, T, H, d_v]
                    fill = fill[:, rows.start : rows.start + weights.shape[2]].transpose(1, 2)
                filled = ((1 - share) * fill) @ matrix  # [(B,) H, 1 or r, D]
                bias = filled.sum(-3) if bias is None else bias + filled.sum(-3)
        own = None if rows.site.kind == "cross" else rows.start - rows.key_start
        past = rows.residual if residual else None
        if residual:
            assert past is not None
            past = past.to(weights.dtype)
        return cls(weights, rows.values.to(weights.dtype), matrix, bias, own, past, norm)

    @cached_property
    def heads(self) -> Tensor:
        """[B, H, r, d_v], Σ_j α_ij v_j of every head."""
        (batch, heads, rows, keys), groups = self.weights.shape, self.values.shape[1]
        stacked = self.weights.reshape(batch, groups, heads // groups * rows, keys)
        return (stacked @ self.values).reshape(batch, heads, rows, -1)

    @cached_property
    def mixed(self) -> Tensor:
        """[B, r, D], Σ_h Σ_j α_ij f_h(x_j)."""
        return self.heads.transpose(1, 2).flatten(2) @ self.matrix.flatten(0, 1)

    @cached_property
    def total(self) -> Tensor:
        """[B, r, D], the whole sum, before any normalization."""
        total = self.mixed if self.bias is None else self.mixed + self.bias
        return total if self.residual is None else total + self.residual

    @property
    def output(self) -> Tensor:
        """[B, r, D], what the sum becomes: normalized, γ and β among it."""
        if self.norm is None:
            return self.total
        made = shaped(self.total, self.norm) / self.deviation
        return made if self.norm.shift is None else made + self.norm.shift

    @cached_property
    def deviation(self) -> Tensor:
        """[B, r, 1], σ of the whole sum; 1 where nothing is normalized."""
        if self.norm is None:
            return torch.ones_like(self.total[..., :1])
        x = self.total
        x = x - x.mean(-1, keepdim=True) if self.norm.centred else x
        return (x.square().mean(-1, keepdim=True) + self.norm.eps).sqrt()

    @cached_property
    def diagonal(self) -> tuple[slice, Tensor] | None:
        """Rows whose own key is in the block, and its column for each; None if there are none."""
        if self.own is None:
            return None
        first = max(0, -self.own)
        last = min(self.weights.shape[2], self.weights.shape[3] - self.own)
        if last <= first:
            return None
        columns = torch.arange(first + self.own, last + self.own, device=self.weights.device)
        return slice(first, last), columns

    @cached_property
    def kept(self) -> Tensor:
        """[B, r, D], what a position writes to itself: Σ_h α_ii f_h(x_i), and x_i if it counts."""
        kept = torch.zeros_like(self.mixed)
        if self.diagonal is not None:
            rows, _ = self.diagonal
            for head in range(self.weights.shape[1]):
                kept[:, rows] += self.alone(head) @ self.matrix[head]
        return kept if self.residual is None else kept + self.residual

    def alone(self, head: int) -> Tensor:
        """[B, n, d_v], α_ii v_i of one head for the rows of :attr:`diagonal`."""
        assert self.diagonal is not None
        rows, columns = self.diagonal
        own = self.weights[:, head, torch.arange(rows.start, rows.stop), columns]
        group = head // (self.weights.shape[1] // self.values.shape[1])
        return own[..., None] * self.values[:, group, columns]


def transformed(values: Tensor, matrix: Tensor, head: int) -> Tensor:
    """f_h(x_j) of one head.

    Args:
        values: [B, G, s, d_v].
        matrix: [H, d_v, D].
        head: its number.

    Returns:
        [B, s, D].
    """
    return values[:, head // (len(matrix) // values.shape[1])] @ matrix[head]


def shaped(v: Tensor, norm: Normalization | None) -> Tensor:
    """γ ⊙ (v - mean v), what a normalization does to a part but for σ; [..., D]."""
    if norm is None:
        return v
    return (v - v.mean(-1, keepdim=True) if norm.centred else v) * norm.scale.to(v.dtype)


def value_norms(values: Tensor, matrix: Tensor) -> Tensor:
    """‖f_h(x_j)‖, [B, H, s]; arguments as for :func:`transformed`.

    A head's ‖α_ij f_h(x_j)‖ is α_ij times it.
    """
    norms = [
        torch.linalg.vector_norm(transformed(values, matrix, head), dim=-1)
        for head in range(len(matrix))
    ]
    return torch.stack(norms, 1)


def grams(values: Tensor, matrix: Tensor, norm: Normalization | None = None) -> Tensor:
    """f_h(x_j) · f_h'(x_j) for every key and pair of heads.

    Args:
        values: [B, G, s, d_v].
        matrix: [H, d_v, D].
        norm: what the parts go through, but for σ.

    Returns:
        [B, s, H, H] in float64, for what heads write may all but cancel.
    """
    (heads, _, width), keys = matrix.shape, values.shape[2]
    step = max(1, PART_ELEMENTS // (len(values) * heads * width))
    products = []
    for first in range(0, keys, step):
        some = values[:, :, first : first + step]
        parts = torch.stack([transformed(some, matrix, head) for head in range(heads)], 2)
        parts = shaped(parts, norm).double()  # [B, s', H, D]
        products.append(parts @ parts.mT)
    return torch.cat(products, 1)


def layer_norms(writes: Writes, products: Tensor) -> Tensor:
    """The norm of what all heads of a layer write from each key to each query together.

    ‖Σ_h α_ij f_h(x_j)‖, with what the residual path carries on the diagonal and through the
    normalization where these belong to ``writes``.

    Args:
        writes: of the block.
        products: :func:`grams` of the block's values and the same normalization.

    Returns:
        [B, r, s].
    """
    weights = writes.weights.permute(0, 3, 2, 1).to(products.dtype)  # [B, s, r, H]
    squares = (weights @ products).mul_(weights).sum(-1)  # [B, s, r]
    norms = squares.clamp_(min=0).sqrt_().mT.to(writes.weights.dtype)
    if writes.diagonal is not None and writes.residual is not None:
        rows, columns = writes.diagonal
        kept = torch.linalg.vector_norm(shaped(writes.kept[:, rows], writes.norm), dim=-1)
        norms[:, torch.arange(rows.start, rows.stop), columns] = kept
    return norms / writes.deviation


def parts(writes: Writes) -> Iterator[tuple[slice, slice, Tensor]]:
    """T_i(x_j): everything that key j adds to what the layer makes of query i.

    T_i(x_j) = N_i(Σ_h α_ij f_h(x_j) + δ_ij x_i), N_i being γ ⊙ (v - mean v) / σ_i or nothing. Over
    the keys they add up to ``writes.output``, but for N_i(bias) and β, and in cross-attention for
    N_i(x_i), which is no key's (:func:`remainder`).

    Args:
        writes: of the block.

    Yields:
        Some rows and keys of the block, and their parts [B, rows, keys, D].
    """
    batch, heads, rows, keys = writes.weights.shape
    width = writes.matrix.shape[2]
    step = max(1, PART_ELEMENTS // (batch * heads * width))  # keys whose f_h fit
    for first in range(0, keys, step):
        columns = slice(first, min(first + step, keys))
        some = writes.values[:, :, columns]
        made = torch.stack([transformed(some, writes.matrix, head) for head in range(heads)], 2)
        made = shaped(made, writes.norm)  # [B, s', H, D]
        count = max(1, PART_ELEMENTS // (batch * made.shape[1] * width))
        for start in range(0, rows, count):
            block = slice(start, min(start + count, rows))
            weights = writes.weights[:, :, block, columns].permute(0, 3, 2, 1)  # [B, s', r', H]
            shares = (weights @ made).transpose(1, 2)  # [B, r', s', D]
            if writes.residual is not None and writes.own is not None:
                past = shaped(writes.residual[:, block], writes.norm)
                offset = block.start + writes.own - columns.start
                shares.diagonal(offset, 1, 2).add_(_along(past, offset, shares.shape[2]).mT)
            yield block, columns, shares.div_(writes.deviation[:, block, None])


def remainder(writes: Writes) -> Tensor:
    """[B, r, D], what of ``writes.output`` is no key's: N_i(bias) + β, and N_i(x_i) across."""
    rest = torch.zeros_like(writes.total) if writes.bias is None else writes.bias
    if writes.residual is not None and writes.own is None:
        rest = rest + writes.residual
    rest = shaped(rest.expand_as(writes.total), writes.norm) / writes.deviation
    if writes.norm is None or writes.norm.shift is None:
        return rest
    return rest + writes.norm.shift.to(rest.dtype)


def distances(writes: Writes) -> Tensor:
    """‖y_i - T_i(x_j)‖₁ with y_i = ``writes.output``, [B, r, s] (Ferrando et al. 2022).

    ALTI (arXiv:2203.04212) makes shares of them: max(0, ‖y_i‖₁ - ‖y_i - T_i(x_j)‖₁), each row then
    divided by its sum.
    """
    lengths = torch.empty_like(writes.weights[:, 0])
    output = writes.output
    for rows, keys, made in parts(writes):
        lengths[:, rows, keys] = made.sub_(output[:, rows, None]).abs_().sum(-1)
    return lengths


def mixing_ratios(writes: Writes) -> tuple[Tensor, Tensor]:
    """How much of what arrives comes from elsewhere: ‖Σ_{j≠i}‖ / (‖Σ_{j≠i}‖ + ‖j = i‖).

    Kobayashi et al. 2021, section 3.3; σ divides both and is left out.

    Args:
        writes: of a block with the keys of its own rows (self-attention).

    Returns:
        [B, H, r] of every head by itself, without residual and normalization; [B, r] of the layer,
        with those that belong to ``writes``. NaN where nothing arrives at all.
    """
    (batch, _, rows, _), width = writes.weights.shape, writes.matrix.shape[2]
    mixed = writes.weights.new_zeros(batch, rows, width)
    kept, heads = torch.zeros_like(mixed), []
    for head, matrix in enumerate(writes.matrix):
        others = writes.heads[:, head]  # [B, r, d_v]
        own = torch.zeros_like(others)
        if writes.diagonal is not None:
            own[:, writes.diagonal[0]] = writes.alone(head)
        others, own = (others - own) @ matrix, own @ matrix
        heads.append(_ratio(others, own))
        mixed += others
        kept += own
    if writes.residual is not None:
        kept += writes.residual
    return torch.stack(heads, 1), _ratio(shaped(mixed, writes.norm), shaped(kept, writes.norm))


def _ratio(others: Tensor, own: Tensor) -> Tensor:
    """Norms over the last axis; NaN where nothing arrives at all."""
    mixing, kept = (torch.linalg.vector_norm(part, dim=-1) for part in (others, own))
    ratio: Tensor = mixing / (mixing + kept)
    return ratio


def _along(x: Tensor, offset: int, keys: int) -> Tensor:
    """The rows of [B, r, D] that a diagonal of an r × keys block with that offset passes."""
    return x[:, max(0, -offset) : max(0, min(x.shape[1], keys - offset))]
