"""One pass taken apart: what every part of a model adds to a logit.

Notation in shapes: H query heads, G key/value heads, S keys, d_v width of a head's values, D width
of the residual stream, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.contributions import Carrying, Direction, gain
from attnviz.core import arrays
from attnviz.core.arrays import Array, exact, to_numpy
from attnviz.core.heads import Head, Site
from attnviz.core.source import Output, Rows, Source, tolerance
from attnviz.core.weights import OutputProjection, Readout
from attnviz.errors import ModelError
from attnviz.features.logits.result import LogitPart


@dataclass
class StreamWatch:
    """An observer that keeps, of every layer, what one query sees."""

    position: int  # of the query
    item: int = 0  # of the batch
    # [d_v], what stands for the output of heads at the query in this item (a donor's)
    replaced: Mapping[Head, Array] = field(default_factory=dict)
    # [H, S] by layer, S the keys from the first up to the last that it may see
    weights: dict[Site, Array] = field(default_factory=dict)
    values: dict[Site, Array] = field(default_factory=dict)  # [G, S, d_v] by layer
    # [H, d_v] by layer, what the query's heads' outputs are multiplied with before W_O; of layers
    # that do so
    passes: dict[Site, Array] = field(default_factory=dict)

    def observe(self, rows: Rows) -> None:
        """Copy the query's row, if it is in this block."""
        row = self.position - rows.start
        if rows.values is None or not 0 <= row < rows.weights.shape[2]:
            return
        self.weights[rows.site] = _from_first(rows.weights[self.item, :, row], rows.key_start)
        self.values[rows.site] = _from_first(rows.values[self.item], rows.key_start)
        if rows.passes is not None:
            self.passes[rows.site] = exact(rows.passes[self.item, :, row])

    @property
    def row(self) -> tuple[int, int]:
        """The query's place in a pass: its item, and its position."""
        return self.item, self.position

    def output(self, head: Head) -> Array:
        """Return what attention gives of a head, z [d_v]."""
        if head in self.replaced:
            return arrays.converted(self.replaced[head], self.weights[head.site])
        weights, values = self.weights[head.site], self.values[head.site]
        return weights[head.index] @ values[head.index // (len(weights) // len(values))]


def by_source(watch: StreamWatch, site: Site, out: OutputProjection, toward: Direction) -> Array:
    """Return what every head of a layer adds through every token it sees, [H, S] in float64.

    The sum over S is the head's z_h W_O^h · d; W_O^h · d itself is taken in float32. What replaces
    a head's output came through no token, and stands at the last.
    """
    weights, values = watch.weights[site], watch.values[site]
    assert out.weight is not None
    lib, shared = arrays.of(weights), len(weights) // len(values)
    weight = lib.cast(out.weight, lib.float32)
    along = exact(weight @ lib.cast(toward.vector, lib.float32))  # [H, d_v]
    if site in watch.passes:
        along = along * watch.passes[site]
    values = values[[head // shared for head in range(len(weights))]]  # [H, S, d_v]
    through: Array = weights * (values @ along[..., None])[..., 0]
    for head in watch.replaced:
        if head.site == site:
            through[head.index] = 0
            through[head.index, -1] = watch.output(head) @ along[head.index]
    return through


def written(watch: StreamWatch, head: Head, out: OutputProjection) -> Array:
    """Return what a head adds to the residual stream, (z_h ⊙ m_h) W_O^h, [D] in float64."""
    assert out.weight is not None
    z = watch.output(head)
    if head.site in watch.passes:
        z = z * watch.passes[head.site][head.index]
    return z @ exact(out.weight[head.index])


def behind(
    watch: StreamWatch, site: Site, out: OutputProjection, carrying: Carrying
) -> Array | float:
    """Return what a layer's sum over its heads is multiplied with, [D]; 1 for nothing.

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


def arriving(
    wrote: Array, watch: StreamWatch, site: Site, out: OutputProjection, carrying: Carrying
) -> Array:
    """Return what is left at the end of what a head of a layer writes, [D]."""
    wrote = wrote * behind(watch, site, out, carrying)
    if not carrying.readout.over:
        return wrote
    return carrying.onward(wrote, site.layer, carrying.passed(site.layer)[0])


def split(
    source: Source, output: Output, watch: StreamWatch, toward: Direction, carrying: Carrying
) -> tuple[tuple[LogitPart, ...], dict[Head, NDArray[np.float64]]]:
    """Every part of the logit, and what the heads add by token.

    Returns the parts, and [S] by head.
    """
    query, vector, constant = watch.row, toward.vector, toward.constant
    readout = carrying.readout

    def adds(state: Array, layer: int, passed: int | None = None) -> float:
        return float(exact(state) @ carrying.back(vector, layer, passed))

    parts = [LogitPart("embedding", None, None, adds(output.states[0][query], -1))]
    sources: dict[Head, NDArray[np.float64]] = {}
    for layer, mlp in enumerate(output.mlps):
        entering, between = carrying.passed(layer)
        for site in source.layout.sites:
            if site.layer == layer and site in watch.weights:
                heads, biases, rows = attended(source, site, watch, vector, carrying)
                parts += [*heads, *biases]
                sources |= {Head(site, index): row for index, row in enumerate(rows)}
        mixer = output.mixers.get(layer)
        if mixer is not None:
            name = readout.mixers[layer]
            parts.append(LogitPart("mixer", layer, None, adds(mixer[query], layer, entering), name))
        if layer in readout.biases:
            bias = adds(readout.biases[layer], layer)
            parts.append(LogitPart("bias", layer, None, bias))
        if layer not in readout.without_mlp:
            parts.append(LogitPart("mlp", layer, None, adds(mlp[query], layer, between)))
        shift = carrying.shifts(carrying.back(vector, layer), layer)
        if shift is not None:
            parts.append(LogitPart("bias", layer, None, float(shift)))
    parts.append(LogitPart("bias", None, None, constant))
    return tuple(parts), sources


def attended(
    source: Source, site: Site, watch: StreamWatch, vector: Array, carrying: Carrying
) -> tuple[list[LogitPart], list[LogitPart], NDArray[np.float64]]:
    """Part what a layer's heads add, and its b_O; with what each adds by token, [H, S]."""
    out = source.output(site).moved_to(vector)
    if carrying.readout.over:
        vector = carrying.back(vector, site.layer, carrying.passed(site.layer)[0])
    toward = Direction(vector * behind(watch, site, out, carrying), 0.0)
    rows = to_numpy(by_source(watch, site, out, toward))
    heads = [LogitPart("head", site.layer, n, float(row.sum())) for n, row in enumerate(rows)]
    if out.bias is None:
        return heads, [], rows
    bias = float(exact(out.bias) @ toward.vector)
    return heads, [LogitPart("bias", site.layer, None, bias)], rows


def uncapped(readout: Readout, final: Array, token: int, against: int | None) -> float:
    """Give the logit, or the difference of two, before a cap, from the model's final state, [D]."""
    readout = readout.converted(final)
    assert readout.table is not None
    logits = [
        float(exact(readout.table[id_]) @ exact(final))
        + (0.0 if readout.bias is None else float(readout.bias[id_]))
        for id_ in ([token] if against is None else [token, against])
    ]
    return logits[0] if against is None else logits[0] - logits[1]


def check_closed(source: Source, total: float, logit: float) -> None:
    """Raise ModelError where parts do not add up to the model's own logit."""
    allowed = tolerance(source) * max(1.0, abs(logit))
    if not abs(total - logit) <= allowed:
        raise ModelError(
            f"the parts of {source.info.model} add up to {total:.5g} and the logit is "
            f"{logit:.5g}: they are not shown; an ablated head cannot be split"
        )


def _from_first(block: Array, key_start: int) -> Array:
    """Return a copy in float64, with zeros along axis 1 for the keys before the block's first."""
    lib = arrays.of(block)
    padding = lib.zeros((len(block), key_start, *block.shape[2:]), block.dtype, block)
    return exact(lib.xp.concatenate([padding, block], 1))
