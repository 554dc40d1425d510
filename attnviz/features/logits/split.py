"""A logit as a sum: direct logit attribution with the last normalization's σ as it is.

The residual stream x at a position is the sum of the embeddings, of Σ_s α_s v_s W_O^h of every head
(α_s its weight on token s, v_s that token's value), of every b_O and of every MLP. The last
normalization divides by σ(x) and is linear beside that, so part p adds p · d to the logit of token
t, with d = (u - mean u) / σ and u = γ ⊙ W_U[t] (RMS normalization: d = u / σ); β W_U[t] and the
head's own bias come on top (Elhage et al. 2021, "A Mathematical Framework for Transformer
Circuits"). Shapes: H heads, G key/value heads, S keys, d_v width of values, D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnviz.core.heads import Head, Site
from attnviz.core.source import Output, OutputProjection, Readout, Rows, Source
from attnviz.features.logits.result import LogitPart


@dataclass
class StreamWatch:
    """An observer that keeps, of every layer, what one query sees.

    Attributes:
        position: of the query.
        weights: [H, S] by layer, S the keys from the first up to the last that it may see.
        values: [G, S, d_v] by layer.
    """

    position: int
    weights: dict[Site, Tensor] = field(default_factory=dict)
    values: dict[Site, Tensor] = field(default_factory=dict)

    def observe(self, rows: Rows) -> None:
        """Copy the query's row, if it is in this block."""
        place = self.position - rows.start
        if rows.values is None or not 0 <= place < rows.weights.shape[2]:
            return
        self.weights[rows.site] = _from_first(rows.weights[0, :, place], rows.key_start)
        self.values[rows.site] = _from_first(rows.values[0], rows.key_start)


@dataclass(frozen=True)
class Direction:
    """The way in the residual stream that raises a logit, or the difference of two.

    Attributes:
        vector: d, [D] in float64: a part p adds p · d.
        constant: what is there without any part.
    """

    vector: Tensor
    constant: float


def direction(readout: Readout, stream: Tensor, token: int, against: int | None) -> Direction:
    """The direction of a token, or of the difference to another.

    Args:
        readout: with a table.
        stream: the whole residual stream at the position, [D], which gives σ.
        token: id.
        against: id of the token whose logit is taken off.
    """
    assert readout.table is not None
    assert readout.scale is not None
    row = readout.table[token].double()
    bias = 0.0 if readout.bias is None else float(readout.bias[token])
    if against is not None:
        row = row - readout.table[against].double()
        bias -= 0.0 if readout.bias is None else float(readout.bias[against])
    if readout.shift is not None:
        bias += float(readout.shift.double() @ row)
    u = readout.scale.double() * row
    u = u - u.mean() if readout.centred else u
    return Direction(u / sigma(readout, stream), bias)


def sigma(readout: Readout, stream: Tensor) -> Tensor:
    """What the last normalization divides by at a position."""
    x = stream.double()
    x = x - x.mean() if readout.centred else x
    return (x.square().mean() + readout.eps).sqrt()


def by_source(watch: StreamWatch, site: Site, out: OutputProjection, toward: Direction) -> Tensor:
    """What every head of a layer adds through every token it sees, [H, S] in float64.

    The sum over S is the head's z_h W_O^h · d; W_O^h · d itself is taken in float32.
    """
    weights, values = watch.weights[site], watch.values[site]
    assert out.weight is not None
    each = (out.weight.float() @ toward.vector.float()).double()  # [H, d_v]
    values = values.repeat_interleave(len(weights) // len(values), dim=0)  # [H, S, d_v]
    return weights * (values @ each[..., None]).squeeze(-1)


def written(watch: StreamWatch, head: Head, out: OutputProjection) -> Tensor:
    """What a head adds to the residual stream, z_h W_O^h, [D] in float64."""
    weights, values = watch.weights[head.site], watch.values[head.site]
    assert out.weight is not None
    group = head.index // (len(weights) // len(values))
    return weights[head.index] @ values[group] @ out.weight[head.index].double()


def split(
    source: Source, output: Output, watch: StreamWatch, toward: Direction
) -> tuple[tuple[LogitPart, ...], dict[Head, Tensor]]:
    """Every part of the logit, and what the heads add by token.

    Args:
        source: with a readout.
        output: of one input, with states and mlps.
        watch: of the same pass.
        toward: see :func:`direction`.

    Returns:
        The parts, and [S] by head.
    """
    place, vector = watch.position, toward.vector
    parts = [
        LogitPart("embedding", None, None, float(output.states[0][0, place].double() @ vector))
    ]
    sources: dict[Head, Tensor] = {}
    for site, mlp in zip(source.layout.sites, output.mlps, strict=True):
        out = source.output(site)
        through = by_source(watch, site, out, toward)
        for index, row in enumerate(through):
            sources[Head(site, index)] = row
            parts.append(LogitPart("head", site.layer, index, float(row.sum())))
        if out.bias is not None:
            parts.append(LogitPart("bias", site.layer, None, float(out.bias.double() @ vector)))
        parts.append(LogitPart("mlp", site.layer, None, float(mlp[0, place].double() @ vector)))
    parts.append(LogitPart("bias", None, None, toward.constant))
    return tuple(parts), sources


def words(readout: Readout, stream: Tensor, parts: Tensor) -> Tensor:
    """What parts [n, D] add to the logit of every token, against their mean, [n, V] in float32."""
    assert readout.table is not None
    assert readout.scale is not None
    parts = parts - parts.mean(-1, keepdim=True) if readout.centred else parts
    moved = readout.scale.double() * parts / sigma(readout, stream)
    found = (moved.to(readout.table.dtype) @ readout.table.t()).float()
    return found - found.mean(-1, keepdim=True)


def _from_first(block: Tensor, key_start: int) -> Tensor:
    """A copy in float64, with zeros along axis 1 for the keys before the block's first."""
    before = block.new_zeros(len(block), key_start, *block.shape[2:])
    return torch.cat([before, block], dim=1).double()
