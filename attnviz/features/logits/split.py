"""A logit as a sum: direct logit attribution with the last normalization's σ as it is.

The residual stream x at a position is the sum of the embeddings, of Σ_s α_s v_s W_O^h of every
head (α_s its weight on token s, v_s that token's value), of every b_O and of every MLP. Part p adds
p · d to the logit of a token, d being its direction (:mod:`attnviz.attention.unembedding`). Where a
layer multiplies its heads' outputs with m before W_O, as gated attention does, that is
Σ_s α_s (v_s ⊙ m) W_O^h with m at its value here. A part that mixes tokens without attention, such
as a layer with a state, is one part. Where layers multiply the stream that enters them, or
normalize all of it, with σ at its value here, a part is what is left of it at the end
(:mod:`attnviz.attention.carrying`).
Shapes: H heads, G key/value heads, S keys, d_v width of values, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.carrying import Carrying
from attnviz.attention.unembedding import Direction, gain
from attnviz.core import arrays
from attnviz.core.arrays import Array, exact, to_numpy
from attnviz.core.heads import Head, Site
from attnviz.core.source import Output, Rows, Source
from attnviz.core.weights import OutputProjection, Readout
from attnviz.features.logits.result import LogitPart


@dataclass
class StreamWatch:
    """An observer that keeps, of every layer, what one query sees.

    Attributes:
        position: of the query.
        weights: [H, S] by layer, S the keys from the first up to the last that it may see.
        values: [G, S, d_v] by layer.
        passes: [H, d_v] by layer, what the query's heads' outputs are multiplied with before W_O;
            of layers that do so.
    """

    position: int
    weights: dict[Site, Array] = field(default_factory=dict)
    values: dict[Site, Array] = field(default_factory=dict)
    passes: dict[Site, Array] = field(default_factory=dict)

    def observe(self, rows: Rows) -> None:
        """Copy the query's row, if it is in this block."""
        place = self.position - rows.start
        if rows.values is None or not 0 <= place < rows.weights.shape[2]:
            return
        self.weights[rows.site] = _from_first(rows.weights[0, :, place], rows.key_start)
        self.values[rows.site] = _from_first(rows.values[0], rows.key_start)
        if rows.passes is not None:
            self.passes[rows.site] = exact(rows.passes[0, :, place])


def by_source(watch: StreamWatch, site: Site, out: OutputProjection, toward: Direction) -> Array:
    """What every head of a layer adds through every token it sees, [H, S] in float64.

    The sum over S is the head's z_h W_O^h · d; W_O^h · d itself is taken in float32.
    """
    weights, values = watch.weights[site], watch.values[site]
    assert out.weight is not None
    on, shared = arrays.of(weights), len(weights) // len(values)
    weight = on.cast(out.weight, on.float32)
    each = exact(weight @ on.cast(toward.vector, on.float32))  # [H, d_v]
    if site in watch.passes:
        each = each * watch.passes[site]
    values = values[[head // shared for head in range(len(weights))]]  # [H, S, d_v]
    return weights * (values @ each[..., None])[..., 0]


def written(watch: StreamWatch, head: Head, out: OutputProjection) -> Array:
    """What a head adds to the residual stream, (z_h ⊙ m_h) W_O^h, [D] in float64."""
    weights, values = watch.weights[head.site], watch.values[head.site]
    assert out.weight is not None
    group = head.index // (len(weights) // len(values))
    z = weights[head.index] @ values[group]
    if head.site in watch.passes:
        z = z * watch.passes[head.site][head.index]
    return z @ exact(out.weight[head.index])


def behind(
    watch: StreamWatch, site: Site, out: OutputProjection, carrying: Carrying
) -> Array | float:
    """What a layer's sum over its heads is multiplied with, [D]; 1 for nothing.

    Up to the end, unless later layers normalize the stream; then up to where it is added.
    """
    readout = carrying.readout
    norm = readout.after.get(site.layer)
    factor: Array | float = readout.share(site.layer) * carrying.factor(site.layer)
    if norm is None:
        return factor
    heads = [Head(site, index) for index in range(len(watch.weights[site]))]
    xp = arrays.of(watch.weights[site]).xp
    total: Array = xp.stack([written(watch, head, out) for head in heads]).sum(0)
    total = total if out.bias is None else total + exact(out.bias)
    return gain(norm, total) * factor


def carried(output: Output, watch: StreamWatch, readout: Readout) -> Carrying:
    """The way of the stream through the layers at the query."""
    return Carrying(
        readout, {layer: some[0, watch.position] for layer, some in output.deviations.items()}
    )


def split(
    source: Source, output: Output, watch: StreamWatch, toward: Direction, readout: Readout
) -> tuple[tuple[LogitPart, ...], dict[Head, NDArray[np.float64]]]:
    """Every part of the logit, and what the heads add by token.

    Returns the parts, and [S] by head.
    """
    place, vector, constant = watch.position, toward.vector, toward.constant
    carrying = carried(output, watch, readout.converted(vector))
    readout = carrying.readout

    def adds(state: Array, layer: int, passed: int | None = None) -> float:
        return float(exact(state) @ carrying.back(vector, layer, passed))

    parts = [LogitPart("embedding", None, None, adds(output.states[0][0, place], -1))]
    sources: dict[Head, NDArray[np.float64]] = {}
    for layer, mlp in enumerate(output.mlps):
        before, between = carrying.passed(layer)
        for site in source.layout.sites:
            if site.layer == layer and site in watch.weights:
                heads, biases = _attended(source, site, watch, vector, carrying, sources)
                parts += [*heads, *biases]
        mixer = output.mixers.get(layer)
        if mixer is not None:
            name = readout.mixers[layer]
            parts.append(
                LogitPart("mixer", layer, None, adds(mixer[0, place], layer, before), name)
            )
        if layer in readout.biases:
            bias = adds(readout.biases[layer], layer)
            parts.append(LogitPart("bias", layer, None, bias))
        if layer not in readout.without_mlp:
            parts.append(LogitPart("mlp", layer, None, adds(mlp[0, place], layer, between)))
        shift = carrying.shifts(carrying.back(vector, layer), layer)
        if shift is not None:
            parts.append(LogitPart("bias", layer, None, float(shift)))
    parts.append(LogitPart("bias", None, None, constant))
    return tuple(parts), sources


def _attended(
    source: Source,
    site: Site,
    watch: StreamWatch,
    vector: Array,
    carrying: Carrying,
    sources: dict[Head, NDArray[np.float64]],
) -> tuple[list[LogitPart], list[LogitPart]]:
    """What the heads of a layer add, and its b_O; ``sources`` gets what the heads add by token."""
    out = source.output(site).moved_to(vector)
    if carrying.readout.over:
        vector = carrying.back(vector, site.layer, carrying.passed(site.layer)[0])
    toward = Direction(vector * behind(watch, site, out, carrying), 0.0)
    heads = []
    for index, row in enumerate(to_numpy(by_source(watch, site, out, toward))):
        sources[Head(site, index)] = row
        heads.append(LogitPart("head", site.layer, index, float(row.sum())))
    if out.bias is None:
        return heads, []
    return heads, [LogitPart("bias", site.layer, None, float(exact(out.bias) @ toward.vector))]


def _from_first(block: Array, key_start: int) -> Array:
    """A copy in float64, with zeros along axis 1 for the keys before the block's first."""
    on = arrays.of(block)
    before = on.zeros((len(block), key_start, *block.shape[2:]), block.dtype, block)
    whole: Array = exact(on.xp.concatenate([before, block], 1))
    return whole
