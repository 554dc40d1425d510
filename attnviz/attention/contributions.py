"""What heads write: attention weights times transformed values, without [H, T, S, D] numbers.

Head h writes α_ij f_h(x_j) to position i for what it reads at j, with f_h(x_j) = (x_j W_V + b_V)_h
W_O^h (Kobayashi et al. 2020, arXiv:2004.10102); the heads of a layer, its b_O and what the residual
path carries add up to what the layer makes of position i. With residual connection and layer
normalization (Kobayashi et al. 2021, arXiv:2109.07152), x_i is part of what i writes to itself, and
every part v becomes γ ⊙ (v - mean v) / σ with the σ of the whole sum.

Where a layer multiplies its heads' outputs with a gate or scale m_i before W_O, that is held at its
value: head h writes α_ij ((x_j W_V + b_V)_h ⊙ m_ih) W_O^h, another vector for every query i.

Norms of single heads need ‖f_h(x_j)‖ alone, for ‖α f(x)‖ = α‖f(x)‖; those of whole layers the
Gram matrices f_h(x_j) · f_h'(x_j), [H, H] for every key; other distances the parts themselves, in
blocks.

Notation: B batch, H query heads, G key/value heads, r query rows, s keys, d_v width of a head's
values, D width of the residual stream.

The way from the residual stream to logits: the last normalization's σ, directions, and words.

The last normalization divides by σ(x) and is linear beside that, so what is added to the stream
adds p · d to the logit of token t, with d = (u - mean u) / σ and u = γ ⊙ W_U[t] (RMS normalization:
d = u / σ); β W_U[t] and the head's own bias come on top (Elhage et al. 2021, "A Mathematical
Framework for Transformer Circuits"). Where an LM head has more layers
(:class:`~attnviz.core.weights.HeadLayers`), W_U[t] goes back through them first, what their
activation leaves of each channel held. Everything is for a
:class:`~attnviz.core.weights.Readout` with a table. Shapes: D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

from attnviz.core import arrays
from attnviz.core.arrays import Array, exact
from attnviz.core.source import Output, Rows
from attnviz.core.weights import Normalization, OutputProjection, Readout

PART_ELEMENTS = 1 << 19
"""Numbers of parts that are in memory at a time: 2 MiB in float32, for a processor's cache."""


@dataclass(frozen=True, eq=False)
class Writes:
    """What the keys of a block write to its query rows, and what else ends up there."""

    weights: Array  # [B, H, r, s], α, times what a gate lets pass
    values: Array  # [B, G, s, d_v]
    matrix: Array  # [H, d_v, D], W_O cut into heads
    # what no key writes, broadcastable to [B, r, D]: b_O, and what gates put in a head's place;
    # None for nothing
    bias: Array | None = None
    # the column of the first row's own key, which may lie outside of the block; None where queries
    # and keys are not the same tokens (cross-attention)
    offset: int | None = None
    residual: Array | None = None  # [B, r, D], what goes past attention; None leaves it out
    norm: Normalization | None = None  # what the sum goes through; None for nothing
    # [B, H, r, d_v], what heads' outputs are multiplied with before ``matrix``; None for nothing
    passes: Array | None = None

    @classmethod
    def of(
        cls,
        rows: Rows,
        projection: OutputProjection,
        *,
        residual: bool = False,
        norm: Normalization | None = None,
    ) -> Writes:
        """Return what a block of rows writes."""
        assert rows.values is not None
        assert projection.weight is not None
        weights, lib = rows.weights, arrays.of(rows.weights)
        projection = projection.converted(weights)
        matrix, bias = projection.weight, projection.bias
        assert matrix is not None
        if rows.gate is not None:
            share, fill = rows.gate.by_head(weights)
            weights = weights * share
            if fill is not None:
                if fill.ndim == 4:
                    fill = fill[:, :, rows.start : rows.start + weights.shape[2]]
                filled = (1 - share) * fill  # [(B,) H, 1 or r, d_v]
                if rows.passes is not None:
                    filled = filled * lib.cast(rows.passes, weights.dtype)
                filled = filled @ matrix  # [(B,) H, 1 or r, D]
                bias = filled.sum(-3) if bias is None else bias + filled.sum(-3)
        offset = None if rows.site.kind == "cross" else rows.start - rows.key_start
        past = rows.residual if residual else None
        if residual:
            assert past is not None
            past = lib.cast(past, weights.dtype)
        norm = None if norm is None else norm.converted(weights)
        values = lib.cast(rows.values, weights.dtype)
        passes = None if rows.passes is None else lib.cast(rows.passes, weights.dtype)
        return cls(weights, values, matrix, bias, offset, past, norm, passes)

    @cached_property
    def heads(self) -> Array:
        """[B, H, r, d_v], Σ_j α_ij v_j of every head, as W_O gets it."""
        (batch, heads, rows, keys), groups = self.weights.shape, self.values.shape[1]
        stacked = self.weights.reshape(batch, groups, heads // groups * rows, keys)
        outputs: Array = (stacked @ self.values).reshape(batch, heads, rows, -1)
        return outputs if self.passes is None else outputs * self.passes

    @cached_property
    def mixed(self) -> Array:
        """[B, r, D], Σ_h Σ_j α_ij f_h(x_j)."""
        batch, _, rows, _ = self.heads.shape
        concatenated: Array = self.heads.swapaxes(1, 2).reshape(batch, rows, -1)
        return concatenated @ self.matrix.reshape(-1, self.matrix.shape[2])

    @cached_property
    def total(self) -> Array:
        """[B, r, D], the whole sum, before any normalization."""
        total = self.mixed if self.bias is None else self.mixed + self.bias
        return total if self.residual is None else total + self.residual

    @property
    def output(self) -> Array:
        """[B, r, D], what the sum becomes: normalized, γ and β among it."""
        if self.norm is None:
            return self.total
        normalized = shaped(self.total, self.norm) / self.deviation
        return normalized if self.norm.shift is None else normalized + self.norm.shift

    @cached_property
    def deviation(self) -> Array:
        """[B, r, 1], σ of the whole sum; 1 where nothing is normalized."""
        xp = arrays.of(self.weights).xp
        if self.norm is None:
            return xp.ones_like(self.total[..., :1])
        x = self.total
        x = x - x.mean(-1)[..., None] if self.norm.centred else x
        return xp.sqrt(xp.square(x).mean(-1)[..., None] + self.norm.eps)

    @cached_property
    def diagonal(self) -> tuple[slice, Array] | None:
        """Rows whose own key is in the block, and its column for each; None if there are none."""
        if self.offset is None:
            return None
        first = max(0, -self.offset)
        last = min(self.weights.shape[2], self.weights.shape[3] - self.offset)
        if last <= first:
            return None
        lib = arrays.of(self.weights)
        columns = lib.arange(first + self.offset, last + self.offset, lib.int64, self.weights)
        return slice(first, last), columns

    @cached_property
    def preserved(self) -> Array:
        """[B, r, D], what a position writes to itself: Σ_h α_ii f_h(x_i), and x_i if it counts."""
        total: Array = arrays.of(self.mixed).xp.zeros_like(self.mixed)
        if self.diagonal is not None:
            rows, _ = self.diagonal
            for head in range(self.weights.shape[1]):
                total[:, rows] += self.alone(head) @ self.matrix[head]
        return total if self.residual is None else total + self.residual

    def alone(self, head: int) -> Array:
        """[B, n, d_v], α_ii v_i of one head for the rows of :attr:`diagonal`."""
        assert self.diagonal is not None
        rows, columns = self.diagonal
        lib = arrays.of(self.weights)
        queries = lib.arange(rows.start, rows.stop, lib.int64, self.weights)
        weights = self.weights[:, head, queries, columns]
        group = head // (self.weights.shape[1] // self.values.shape[1])
        outputs: Array = weights[..., None] * self.values[:, group, columns]
        return outputs if self.passes is None else outputs * self.passes[:, head, rows]


def transformed(values: Array, matrix: Array, head: int) -> Array:
    """f_h(x_j) of one head.

    ``values`` [B, G, s, d_v]; ``matrix`` [H, d_v, D]; returns [B, s, D].
    """
    return values[:, head // (len(matrix) // values.shape[1])] @ matrix[head]


def shaped(v: Array, norm: Normalization | None) -> Array:
    """γ ⊙ (v - mean v), what a normalization does to a part but for σ; [..., D]."""
    if norm is None:
        return v
    scale: Array = arrays.of(v).cast(norm.scale, v.dtype)
    return (v - v.mean(-1)[..., None] if norm.centred else v) * scale


def value_norms(values: Array, matrix: Array) -> Array:
    """‖f_h(x_j)‖, [B, H, s]; arguments as for :func:`transformed`.

    A head's ‖α_ij f_h(x_j)‖ is α_ij times it.
    """
    xp = arrays.of(values).xp
    norms = [
        xp.linalg.norm(transformed(values, matrix, head), None, -1) for head in range(len(matrix))
    ]
    return xp.stack(norms, 1)


def head_norms(writes: Writes) -> Array:
    """‖α_ij (v_j ⊙ m_i) W_O^h‖ of every head, [B, H, r, s], where queries pass values differently.

    With W_O^h = R Q, Q of orthonormal rows, ‖u W_O^h‖ = ‖u R‖, so that no part is D wide.
    """
    assert writes.passes is not None
    (batch, heads, rows, keys), width = writes.weights.shape, writes.values.shape[3]
    shared, xp = heads // writes.values.shape[1], arrays.of(writes.weights).xp
    norms: Array = xp.empty_like(writes.weights)
    step = max(1, PART_ELEMENTS // (batch * keys * width))
    for head in range(heads):
        root = xp.linalg.qr(writes.matrix[head].T)[1].T  # [d_v, min(d_v, D)]
        values = writes.values[:, head // shared, None]  # [B, 1, s, d_v]
        for first in range(0, rows, step):
            block = slice(first, first + step)
            parts = values * writes.passes[:, head, block, None] @ root
            norms[:, head, block] = xp.linalg.norm(parts, None, -1)
    norms *= abs(writes.weights)
    return norms


def grams(values: Array, matrix: Array, norm: Normalization | None = None) -> Array:
    """f_h(x_j) · f_h'(x_j) for every key and pair of heads.

    ``values`` [B, G, s, d_v]; ``matrix`` [H, d_v, D]; returns [B, s, H, H] in float64, for what
    heads write may all but cancel.
    """
    (heads, _, width), keys = matrix.shape, values.shape[2]
    lib = arrays.of(values)
    step = max(1, PART_ELEMENTS // (len(values) * heads * width))
    products = []
    for first in range(0, keys, step):
        block = values[:, :, first : first + step]
        parts = lib.xp.stack([transformed(block, matrix, head) for head in range(heads)], 2)
        parts = arrays.exact(shaped(parts, norm))  # [B, s', H, D]
        products.append(parts @ parts.swapaxes(-1, -2))
    return lib.xp.concatenate(products, 1)


def passed_norms(writes: Writes) -> Array:
    """:func:`layer_norms` where queries pass values differently: of the parts themselves."""
    norms: Array = arrays.of(writes.weights).xp.empty_like(writes.weights[:, 0])
    for rows, keys, block in parts(writes):
        norms[:, rows, keys] = arrays.of(block).xp.linalg.norm(block, None, -1)
    return norms


def layer_norms(writes: Writes, products: Array) -> Array:
    """Return the norm of what all heads of a layer write from each key to each query together.

    ‖Σ_h α_ij f_h(x_j)‖, with what the residual path carries on the diagonal and through the
    normalization where these belong to ``writes``.

    Returns [B, r, s].
    """
    lib = arrays.of(products)
    converted = arrays.converted(writes.weights, products)
    weights = lib.cast(converted.swapaxes(1, 3), products.dtype)  # [B, s, r, H]
    squares = weights @ products
    squares *= weights
    norms = lib.xp.sqrt(squares.sum(-1).clip(0)).swapaxes(1, 2)  # [B, r, s]
    norms = arrays.converted(lib.cast(norms, writes.weights.dtype), writes.weights)
    if writes.diagonal is not None and writes.residual is not None:
        rows, columns = writes.diagonal
        preserved = lib.xp.linalg.norm(shaped(writes.preserved[:, rows], writes.norm), None, -1)
        norms[:, lib.arange(rows.start, rows.stop, lib.int64, norms), columns] = preserved
    return norms / writes.deviation


def parts(writes: Writes) -> Iterator[tuple[slice, slice, Array]]:
    """T_i(x_j): everything that key j adds to what the layer makes of query i.

    T_i(x_j) = N_i(Σ_h α_ij f_h(x_j) + δ_ij x_i), N_i being γ ⊙ (v - mean v) / σ_i or nothing. Over
    the keys they add up to ``writes.output``, but for N_i(bias) and β, and in cross-attention for
    N_i(x_i), which is no key's (:func:`remainder`).

    Yields: some rows and keys of the block, and their parts [B, rows, keys, D].
    """
    batch, heads, rows, keys = writes.weights.shape
    width, lib = writes.matrix.shape[2], arrays.of(writes.weights)
    step = max(1, PART_ELEMENTS // (batch * heads * width))  # keys whose f_h fit
    for first in range(0, keys, step):
        columns = slice(first, min(first + step, keys))
        values = writes.values[:, :, columns]
        vectors = lib.xp.stack(
            [transformed(values, writes.matrix, head) for head in range(heads)], 2
        )
        vectors = shaped(vectors, writes.norm)  # [B, s', H, D]
        count = max(1, PART_ELEMENTS // (batch * vectors.shape[1] * width))
        for start in range(0, rows, count):
            block = slice(start, min(start + count, rows))
            weights = writes.weights[:, :, block, columns].swapaxes(1, 3)  # [B, s', r', H]
            if writes.passes is None:
                shares = (weights @ vectors).swapaxes(1, 2)  # [B, r', s', D]
            else:
                shares = shaped(_passed(writes, block, columns), writes.norm)
            if writes.residual is not None and writes.offset is not None:
                past = shaped(writes.residual[:, block], writes.norm)
                offset = block.start + writes.offset - columns.start
                carried = _along(past, offset, shares.shape[2])
                queries = lib.arange(0, carried.shape[1], lib.int64, carried) + max(0, -offset)
                shares[:, queries, queries + offset] += carried
            shares /= writes.deviation[:, block, None]
            yield block, columns, shares


def _passed(writes: Writes, block: slice, columns: slice) -> Array:
    """[B, r', s', D], Σ_h α_ij (v_j ⊙ m_ih) W_O^h of some rows and keys."""
    assert writes.passes is not None
    heads = len(writes.matrix)
    total: Array | None = None
    for head in range(heads):
        values = writes.values[:, head // (heads // writes.values.shape[1]), None, columns]
        passed = values * writes.passes[:, head, block, None]  # [B, r', s', d_v]
        passed = passed * writes.weights[:, head, block, columns, None]
        part: Array = passed @ writes.matrix[head]
        total = part if total is None else total + part
    assert total is not None
    return total


def remainder(writes: Writes) -> Array:
    """[B, r, D], what of ``writes.output`` is no key's: N_i(bias) + β, and N_i(x_i) across."""
    lib = arrays.of(writes.total)
    total = lib.xp.zeros_like(writes.total) if writes.bias is None else writes.bias
    if writes.residual is not None and writes.offset is None:
        total = total + writes.residual
    total = shaped(lib.xp.broadcast_to(total, writes.total.shape), writes.norm) / writes.deviation
    if writes.norm is None or writes.norm.shift is None:
        return total
    return total + lib.cast(writes.norm.shift, total.dtype)


def distances(writes: Writes) -> Array:
    """‖y_i - T_i(x_j)‖₁ with y_i = ``writes.output``, [B, r, s] (Ferrando et al. 2022).

    ALTI (arXiv:2203.04212) makes shares of them: max(0, ‖y_i‖₁ - ‖y_i - T_i(x_j)‖₁), each row then
    divided by its sum.
    """
    lengths: Array = arrays.of(writes.weights).xp.empty_like(writes.weights[:, 0])
    output = writes.output
    for rows, keys, block in parts(writes):
        lengths[:, rows, keys] = abs(block - output[:, rows, None]).sum(-1)
    return lengths


def mixing_ratios(writes: Writes) -> tuple[Array, Array]:
    """How much of what arrives comes from elsewhere: ‖Σ_{j≠i}‖ / (‖Σ_{j≠i}‖ + ‖j = i‖).

    Kobayashi et al. 2021, section 3.3; σ divides both and is left out.

    Returns [B, H, r] of every head by itself, without residual and normalization; [B, r] of the
    layer, with those that belong to ``writes``. NaN where nothing arrives at all.
    """
    (batch, _, rows, _), width = writes.weights.shape, writes.matrix.shape[2]
    lib = arrays.of(writes.weights)
    mixed = lib.zeros((batch, rows, width), writes.weights.dtype, writes.weights)
    carried, heads = lib.xp.zeros_like(mixed), []
    for head, matrix in enumerate(writes.matrix):
        mixing = writes.heads[:, head]  # [B, r, d_v]
        preserved = lib.xp.zeros_like(mixing)
        if writes.diagonal is not None:
            preserved[:, writes.diagonal[0]] = writes.alone(head)
        mixing, preserved = (mixing - preserved) @ matrix, preserved @ matrix
        heads.append(_ratio(mixing, preserved))
        mixed += mixing
        carried += preserved
    if writes.residual is not None:
        carried += writes.residual
    return lib.xp.stack(heads, 1), _ratio(shaped(mixed, writes.norm), shaped(carried, writes.norm))


def _ratio(mixing: Array, preserved: Array) -> Array:
    """Norms over the last axis; NaN where nothing arrives at all."""
    norm = arrays.of(preserved).xp.linalg.norm
    across, local = (norm(part, None, -1) for part in (mixing, preserved))
    return across / (across + local)


def _along(x: Array, offset: int, keys: int) -> Array:
    """Return the rows of [B, r, D] that a diagonal of an r × keys block with that offset passes."""
    return x[:, max(0, -offset) : max(0, min(x.shape[1], keys - offset))]


@dataclass(frozen=True)
class Carrying:
    """The way of the stream through a model's layers, at one row or several."""

    readout: Readout  # of the model, its arrays of the kind of what is carried
    # σ of the normalizations that each layer puts over the stream at these rows, [..., n] by layer
    # (:attr:`attnviz.core.source.Output.deviations`).
    deviations: Mapping[int, Array] = field(default_factory=dict)

    @classmethod
    def at(cls, readout: Readout, output: Output, rows: tuple[int, int | Sequence[int]]) -> Self:
        """Take the deviations of a pass at some rows: its item, and one position or several."""
        return cls(readout, {layer: part[rows] for layer, part in output.deviations.items()})

    def factor(self, layer: int) -> Any:
        """Get what alone is left to multiply with behind a layer, a number or [D]; 1 with norms."""
        return 1.0 if self.readout.over else self.readout.onward(layer)

    def back(self, toward: Array, layer: int, passed: int | None = None) -> Array:
        """Give the direction in which what a layer adds moves what ``toward`` measures at the end.

        ``toward`` [..., D] in float64.
        """
        readout = self.readout
        if not readout.over:
            return toward * readout.onward(layer)
        for later in reversed(range(layer + 1, self._layers)):
            toward = self.inside(toward, later)
            if readout.residual_scales:
                toward = toward * readout.residual_scales[later]
        return toward if passed is None else self.inside(toward, layer, passed)

    def inside(self, toward: Array, layer: int, passed: int = 0) -> Array:
        """Return the same through the normalizations of one layer, of a direction behind it."""
        norms = self._norms(layer)
        for number in reversed(range(passed, len(norms))):
            norm = norms[number]
            toward = exact(norm.scale) * toward
            toward = toward - toward.mean(-1)[..., None] if norm.centred else toward
            toward = toward / self.deviations[layer][..., number, None]
        return toward

    def onward(self, part: Array, layer: int, passed: int = 0) -> Array:
        """Return what is left at the end of what a layer adds, [..., D] in float64."""
        readout = self.readout
        if not readout.over:
            return part * readout.onward(layer)
        for later in range(max(layer, 0), self._layers):
            if later > layer and readout.residual_scales:
                part = part * readout.residual_scales[later]
            norms = self._norms(later)
            for number in range(passed if later == layer else 0, len(norms)):
                norm = norms[number]
                part = part - part.mean(-1)[..., None] if norm.centred else part
                part = exact(norm.scale) * part / self.deviations[later][..., number, None]
        return part

    def shifts(self, toward: Array, layer: int) -> Array | None:
        """Return what the β of a layer's normalizations add along a direction behind it, [...].

        Returns None where there is no β.
        """
        total = None
        for number, norm in enumerate(self._norms(layer)):
            if norm.shift is not None:
                adds = self.inside(toward, layer, number + 1) @ exact(norm.shift)
                total = adds if total is None else total + adds
        return total

    def passed(self, layer: int) -> tuple[int, int]:
        """How many of a layer's normalizations stand before its heads, and before its MLP."""
        over = self.readout.over.get(layer)
        return (0, 0) if over is None else (over.heads, over.mlp)

    @property
    def _layers(self) -> int:
        """The layers that change what enters them."""
        return max(len(self.readout.residual_scales), 1 + max(self.readout.over))

    def _norms(self, layer: int) -> tuple[Normalization, ...]:
        over = self.readout.over.get(layer)
        return () if over is None else over.norms


@dataclass(frozen=True)
class Direction:
    """The way in the residual stream that raises a logit, or the difference of two."""

    vector: Array  # d, [D] in float64: a part p adds p · d
    constant: float  # what is there without any part


def sigma(readout: Readout, stream: Array) -> Array:
    """Return what the last normalization divides by, [...] in float64 for a stream [..., D]."""
    if not readout.normed:
        x = exact(stream[..., 0])
        return arrays.of(x).xp.ones_like(x)
    return deviation(readout, stream)


def deviation(norm: Normalization | Readout, inputs: Array) -> Array:
    """σ of a normalization, [...] in float64, of what it gets, [..., D]."""
    x, xp = exact(inputs), arrays.of(inputs).xp
    x = x - x.mean(-1)[..., None] if norm.centred else x
    return xp.sqrt(xp.square(x).mean(-1) + norm.eps)


def gain(norm: Normalization, inputs: Array) -> Array:
    """γ / σ of an RMS normalization, [..., D] in float64, of what it gets, [..., D]."""
    return exact(norm.scale) / deviation(norm, inputs)[..., None]


def _slopes(readout: Readout, streams: Array) -> tuple[Array, Array]:
    """Give what an LM head's activation leaves of each channel, f(y) / y, [..., D], and its σ."""
    head = readout.head
    assert head is not None
    xp = arrays.of(streams).xp
    inputs = scaled_once(readout, streams, streams)
    inputs = inputs if readout.shift is None else inputs + exact(readout.shift)
    y = inputs @ exact(head.weight).T
    y = y if head.bias is None else y + exact(head.bias)
    outputs = exact(head.act(y))
    ones = xp.ones_like(y)
    slopes = outputs / xp.where(y == 0, ones, y)
    return slopes, ones[..., 0] if head.norm is None else deviation(head.norm, outputs)


def _before_head(readout: Readout, streams: Array, rows: Array) -> tuple[Array, Array]:
    """Directions [n, D] behind an LM head's layers as they are before them, and their constants."""
    head = readout.head
    assert head is not None
    slopes, sigmas = _slopes(readout, streams)
    constants = arrays.of(rows).xp.zeros_like(rows[:, 0])
    u = rows
    if head.norm is not None:
        if head.norm.shift is not None:
            constants = constants + rows @ exact(head.norm.shift)
        u = exact(head.norm.scale) * rows
        u = u - u.mean(-1)[..., None] if head.norm.centred else u
    u = u / sigmas[..., None] * slopes
    if head.bias is not None:
        constants = constants + u @ exact(head.bias)
    return u @ exact(head.weight), constants


def direction(readout: Readout, stream: Array, token: int, against: int | None) -> Direction:
    """Return the direction of a token, or of the difference to another.

    ``stream``: the whole residual stream at the position, [D], which gives σ; ``against``: id of
    the token whose logit is taken off.
    """
    lib = arrays.of(stream)
    vectors, constants = directions(readout, stream[None], lib.asarray([token], lib.int64, stream))
    if against is None:
        return Direction(vectors[0], float(constants[0]))
    subtracted, offsets = directions(
        readout, stream[None], lib.asarray([against], lib.int64, stream)
    )
    return Direction(vectors[0] - subtracted[0], float(constants[0] - offsets[0]))


def directions(readout: Readout, streams: Array, tokens: Array) -> tuple[Array, Array]:
    """Return the direction of one token at each of n positions.

    ``streams``: the residual stream there, [n, D], which gives σ; ``tokens``: ids, [n]; returns: d,
    [n, D] in float64, and what is there without any part, [n].
    """
    assert readout.table is not None
    assert readout.scale is not None
    tokens = arrays.converted(tokens, readout.table)
    rows = exact(readout.table[tokens])
    constants: Array = arrays.of(rows).xp.zeros_like(rows[:, 0])
    if readout.bias is not None:
        constants = constants + exact(readout.bias[tokens])
    if readout.head is not None:
        rows, offsets = _before_head(readout, streams, rows)
        constants = constants + offsets
    if readout.shift is not None:
        constants = constants + rows @ exact(readout.shift)
    u = exact(readout.scale) * rows
    u = u - u.mean(-1)[..., None] if readout.centred else u
    return u / sigma(readout, streams)[:, None], constants


def scaled(readout: Readout, streams: Array, parts: Array) -> Array:
    """γ ⊙ (p - mean p) / σ: parts [..., D] as the matrix of the LM head gets them, in float64."""
    vectors = scaled_once(readout, streams, parts)
    head = readout.head
    if head is None:
        return vectors
    slopes, sigmas = _slopes(readout, streams)
    vectors = vectors @ exact(head.weight).T * slopes
    if head.norm is None:
        return vectors
    vectors = vectors - vectors.mean(-1)[..., None] if head.norm.centred else vectors
    return exact(head.norm.scale) * vectors / sigmas[..., None]


def scaled_once(readout: Readout, streams: Array, parts: Array) -> Array:
    """Return the same as the last normalization gives them, before what else an LM head may do."""
    assert readout.scale is not None
    parts = exact(parts)
    parts = parts - parts.mean(-1)[..., None] if readout.centred else parts
    return exact(readout.scale) * parts / sigma(readout, streams)[..., None]


def moved(readout: Readout, vectors: Array) -> Array:
    """Give what :func:`scaled` parts [n, D] add to every logit, less their mean, float32 [n, V]."""
    assert readout.table is not None
    lib = arrays.of(vectors)
    parts = arrays.converted(lib.cast(vectors, readout.table.dtype), readout.table)
    logits = lib.cast(parts @ readout.table.T, lib.float32)
    return logits - logits.mean(-1)[..., None]


def words(readout: Readout, stream: Array, parts: Array) -> Array:
    """Get what parts [n, D] add to the logit of every token, against their mean, [n, V] in float32.

    ``stream``: the whole residual stream, [D] for all parts or [n, D].
    """
    return moved(readout, scaled(readout, stream, parts))
