"""The way from the residual stream to logits: the last normalization's σ, directions, and words.

The last normalization divides by σ(x) and is linear beside that, so what is added to the stream
adds p · d to the logit of token t, with d = (u - mean u) / σ and u = γ ⊙ W_U[t] (RMS normalization:
d = u / σ); β W_U[t] and the head's own bias come on top (Elhage et al. 2021, "A Mathematical
Framework for Transformer Circuits"). Where an LM head has more layers
(:class:`~attnviz.core.weights.HeadLayers`), W_U[t] goes back through them first, what their
activation leaves of each channel held. Everything is for a
:class:`~attnviz.core.weights.Readout` with a table. Shapes: D width, V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.core import arrays
from attnviz.core.arrays import Array, exact
from attnviz.core.weights import Normalization, Readout


@dataclass(frozen=True)
class Direction:
    """The way in the residual stream that raises a logit, or the difference of two."""

    vector: Array  # d, [D] in float64: a part p adds p · d
    constant: float  # what is there without any part


def sigma(readout: Readout, stream: Array) -> Array:
    """What the last normalization divides by, [...] in float64 for a stream [..., D]."""
    if not readout.normed:
        x = exact(stream[..., 0])
        return arrays.of(x).xp.ones_like(x)
    return deviation(readout, stream)


def deviation(norm: Normalization | Readout, given: Array) -> Array:
    """σ of a normalization, [...] in float64, of what it gets, [..., D]."""
    x, xp = exact(given), arrays.of(given).xp
    x = x - x.mean(-1)[..., None] if norm.centred else x
    return xp.sqrt(xp.square(x).mean(-1) + norm.eps)


def gain(norm: Normalization, given: Array) -> Array:
    """γ / σ of an RMS normalization, [..., D] in float64, of what it gets, [..., D]."""
    x, xp = exact(given), arrays.of(given).xp
    deviation = xp.sqrt(xp.square(x).mean(-1) + norm.eps)
    return exact(norm.scale) / deviation[..., None]


def _slopes(readout: Readout, streams: Array) -> tuple[Array, Array]:
    """What an LM head's activation leaves of each channel, f(y) / y, [..., D], and its σ, [...]."""
    head = readout.head
    assert head is not None
    xp = arrays.of(streams).xp
    given = scaled_once(readout, streams, streams)
    given = given if readout.shift is None else given + exact(readout.shift)
    y = given @ exact(head.weight).T
    y = y if head.bias is None else y + exact(head.bias)
    made = exact(head.act(y))
    one = xp.ones_like(y)
    slopes = made / xp.where(y == 0, one, y)
    return slopes, one[..., 0] if head.norm is None else deviation(head.norm, made)


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
    """The direction of a token, or of the difference to another.

    ``stream``: the whole residual stream at the position, [D], which gives σ; ``against``: id of
    the token whose logit is taken off.
    """
    on = arrays.of(stream)
    vectors, constants = directions(readout, stream[None], on.asarray([token], on.int64, stream))
    if against is None:
        return Direction(vectors[0], float(constants[0]))
    others, more = directions(readout, stream[None], on.asarray([against], on.int64, stream))
    return Direction(vectors[0] - others[0], float(constants[0] - more[0]))


def directions(readout: Readout, streams: Array, tokens: Array) -> tuple[Array, Array]:
    """The direction of one token at each of n positions.

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
        rows, more = _before_head(readout, streams, rows)
        constants = constants + more
    if readout.shift is not None:
        constants = constants + rows @ exact(readout.shift)
    u = exact(readout.scale) * rows
    u = u - u.mean(-1)[..., None] if readout.centred else u
    return u / sigma(readout, streams)[:, None], constants


def scaled(readout: Readout, streams: Array, parts: Array) -> Array:
    """γ ⊙ (p - mean p) / σ: parts [..., D] as the matrix of the LM head gets them, in float64."""
    made = scaled_once(readout, streams, parts)
    head = readout.head
    if head is None:
        return made
    slopes, sigmas = _slopes(readout, streams)
    made = made @ exact(head.weight).T * slopes
    if head.norm is None:
        return made
    made = made - made.mean(-1)[..., None] if head.norm.centred else made
    return exact(head.norm.scale) * made / sigmas[..., None]


def scaled_once(readout: Readout, streams: Array, parts: Array) -> Array:
    """The same as the last normalization gives them, before what else an LM head may do."""
    assert readout.scale is not None
    parts = exact(parts)
    parts = parts - parts.mean(-1)[..., None] if readout.centred else parts
    return exact(readout.scale) * parts / sigma(readout, streams)[..., None]


def moved(readout: Readout, made: Array) -> Array:
    """What :func:`scaled` parts [n, D] add to every logit, less their mean, [n, V] in float32."""
    assert readout.table is not None
    on = arrays.of(made)
    parts = arrays.converted(on.cast(made, readout.table.dtype), readout.table)
    logits = on.cast(parts @ readout.table.T, on.float32)
    return logits - logits.mean(-1)[..., None]


def words(readout: Readout, stream: Array, parts: Array) -> Array:
    """What parts [n, D] add to the logit of every token, against their mean, [n, V] in float32.

    ``stream``: the whole residual stream, [D] for all parts or [n, D].
    """
    return moved(readout, scaled(readout, stream, parts))
