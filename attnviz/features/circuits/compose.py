"""Composition: how much of what a head writes a later head reads.

Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits". With states as rows,
M_OV = W_V W_O and M_QK = W_Q W_K^T, [D, D] of rank d. An earlier head feeds

    queries    ‖M_OV M_QK‖ / (‖M_OV‖ ‖M_QK‖)
    keys       ‖M_OV M_QK^T‖ / (‖M_OV‖ ‖M_QK‖)
    values     ‖M_OV M_OV'‖ / (‖M_OV‖ ‖M_OV'‖)

of a later one, in Frobenius norms. No [D, D] matrix is made: ‖W_V W_O X‖ = ‖R W_O X‖ with
W_V = Q R, so that writers are d rows, [d, D], readers d columns, [D, d], and a pair of heads a
[d, d] matrix.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, array, exact, fetched
from attnviz.core.weights import Normalization, OutputProjection, Reading
from attnviz.features.circuits.result import Chance, Side
from attnviz.statistics.distributions import gamma_above


def widened(x: Array) -> Array:
    """In float32 or better."""
    lib = arrays.of(x)
    return lib.cast(x, lib.float32) if lib.is_half(x) else x


def folded(norm: Normalization | None, weight: Array) -> Array:
    """Return what reads normalized states as what reads the states, but for σ."""
    weight = widened(weight)
    if norm is None:
        return weight
    weight = widened(norm.scale)[:, None] * weight
    return weight - weight.mean(-2)[..., None, :] if norm.centred else weight


def passed(norm: Normalization, weight: Array) -> Array:
    """Get what is written, [..., D], as it leaves a normalization of the whole, but for σ and β."""
    weight = centred(weight) if norm.centred else weight
    return weight * widened(norm.scale)


def written(reading: Reading, output: OutputProjection) -> Array:
    """W_O of every head, [H, d_v, D], as it is added to the stream, but for σ."""
    assert output.weight is not None
    weight = widened(output.weight)
    return weight if reading.gain is None else weight * widened(reading.gain)


def centred(x: Array) -> Array:
    """[..., D] without its mean."""
    x = widened(x)
    return x - x.mean(-1)[..., None]


def divided(norm: Normalization | None, x: Array) -> Array:
    """(x - mean x) / σ, [..., D]: a normalization without γ and β."""
    x = widened(x)
    if norm is None:
        return x
    x = centred(x) if norm.centred else x
    xp = arrays.of(x).xp
    size: Array = xp.sqrt(xp.square(x).mean(-1)[..., None] + norm.eps)
    return x / size


def normalized(norm: Normalization | None, x: Array) -> Array:
    """γ ⊙ (x - mean x) / σ + β, [..., D]."""
    x = divided(norm, x)
    if norm is None:
        return x
    x = x * widened(norm.scale)
    return x if norm.shift is None else x + widened(norm.shift)


DRAWS = 100
"""Pairs of random heads that the chance of a ratio rests on."""

_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class Ends:
    """The heads of a layer as writers and as readers."""

    # [H, d, D], which has the norms that W_V W_O has; None where it is not known
    write: Array | None
    read: Mapping[Side, Array]  # [H, D, d] by side, likewise
    # what is done to all that is written before the next layer
    after: tuple[Normalization, ...] = ()
    # what is done to what earlier layers have written, before that
    before: tuple[Normalization, ...] = ()


def ends(reading: Reading, output: OutputProjection) -> Ends:
    """Return the ends of a layer's heads, with the normalizations around it folded in."""
    read: dict[Side, Array] = {}
    write = None
    if reading.value is not None and output.weight is not None:
        out = written(reading, output)  # [H, d_v, D]
        out = centred(out) if reading.norm is not None and reading.norm.centred else out
        value = repeated(folded(reading.norm, reading.value), len(out))
        write = arrays.of(value).triangle(value) @ out
        read["V"] = value @ _lower(_turned(out))
    meeting = reading.normed or (reading.query, reading.key)
    if meeting[0] is not None and meeting[1] is not None:
        query = folded(reading.norm, meeting[0])
        key = repeated(folded(reading.norm, meeting[1]), len(query))
        read["Q"] = query @ _lower(key)
        read["K"] = key @ _lower(query)
    return Ends(write, read, reading.after, reading.before)


@dataclass(frozen=True, eq=False)
class LayerPair:
    """Two layers."""

    first: int  # number of the writers' layer; ``second`` of the readers'
    second: int
    side: Side  # what of the readers is fed
    ratio: Array  # [writers, readers]
    p: NDArray[np.float64]  # [writers, readers], see :func:`matched`
    ranks: tuple[int, int]  # d of the writers and of the readers
    width: int  # D


def pairs(layers: Sequence[Ends], *, mean_goes: bool) -> Iterator[LayerPair]:
    """Every two layers whose matrices are known, by side."""
    for first, writer in enumerate(layers):
        write = writer.write
        if write is None:
            continue
        room = write.shape[2] - mean_goes
        for second in range(first, len(layers)):
            if second > first:
                for side, read in layers[second].read.items():
                    ranks = write.shape[1], read.shape[2]
                    ratio = between(write, read)
                    p = matched(ratio, write, read, room)
                    yield LayerPair(first, second, side, ratio, p, ranks, write.shape[2])
            earlier = layers[second].before if second > first else ()
            for norm in (*earlier, *layers[second].after):
                write = passed(norm, write)


def between(write: Array, read: Array) -> Array:
    """Return the ratio of every writer [n, d, D] to every reader [m, D, d'], [n, m]."""
    writers, rank, width = write.shape
    readers, _, reads = read.shape
    rows = write.reshape(writers * rank, width)
    columns = read.swapaxes(0, 1).reshape(width, readers * reads)
    xp = arrays.of(write).xp
    product = (rows @ columns).reshape(writers, rank, readers, reads)
    norms = xp.sqrt(xp.square(product).sum((1, 3)))
    sizes = xp.sqrt(xp.square(write).sum((1, 2)))[:, None] * xp.sqrt(xp.square(read).sum((1, 2)))
    return norms / sizes.clip(xp.finfo(sizes.dtype).tiny)


def matched(ratio: Array, write: Array, read: Array, room: int) -> NDArray[np.float64]:
    """How likely random heads with the same singular values have such a ratio, [n, m].

    Between the right singular vectors of a writer and the left ones of a reader stands a random
    rotation O, and the ratio's square is Σ a_i b_j O_ij², a and b the squares of the singular
    values as shares. With p = Σa² and q = Σb² its mean is 1/D and its variance

        2 (D p - 1) (D q - 1) / (D² (D - 1) (D + 2))

    (from the moments of entries of orthogonal matrices, Weingarten 1978). Its upper tail is that of
    χ² with as many degrees of freedom as give it its skewness, (Σa²)³ / (Σa³)² times the same of b
    (Imhof 1961, doi:10.1093/biomet/48.3-4.419, section 4).

    ``ratio`` [n, m], see :func:`between`; ``write`` [n, d, D]; ``read`` [m, D, d'].
    """
    moments = (*_moments(write @ _turned(write)), *_moments(_turned(read) @ read))
    ratios, p, p3, q, q3 = fetched([ratio, *moments])
    size = float(room)
    variance = 2 * (size * p - 1)[:, None] * (size * q - 1) / (size**2 * (size - 1) * (size + 2))
    squares = np.square(ratios.astype(np.float64))
    deviation = (squares - 1 / size) / np.sqrt(variance.clip(_TINY))
    freedom = (p**3 / p3**2)[:, None] * (q**3 / q3**2)
    above = (freedom + deviation * np.sqrt(2 * freedom)).clip(0)
    return gamma_above(above / 2, freedom / 2)


def _moments(gram: Array) -> tuple[Array, Array]:
    """Σa² and Σa³ of the eigenvalues' shares, [n] each, of Gram matrices [n, d, d]."""
    precise = exact(gram)
    trace = precise.diagonal(0, -2, -1).sum(-1)
    shares = precise / trace.clip(_TINY)[:, None, None]
    squares = shares @ shares
    return (shares * shares).sum((-2, -1)), (squares * shares).sum((-2, -1))


def chance(width: int, write: int, read: int, *, mean_goes: bool, seed: int) -> Chance:
    """Return the ratio of random heads with normally distributed matrices."""
    generator = np.random.default_rng(seed)

    def draw(rank: int) -> Array:
        matrix = generator.standard_normal((width, rank), np.float32)
        return array(matrix - matrix.mean(0) if mean_goes else matrix)

    ratios = []
    for _ in range(DRAWS):
        value, out, query, key = draw(write), draw(write), draw(read), draw(read)
        writer = arrays.of(value).triangle(value) @ _turned(out)
        ratios.append(between(writer[None], (query @ _lower(key))[None]).item())
    return Chance(float(np.mean(ratios)), float(np.std(ratios, ddof=1)), DRAWS)


def repeated(shared: Array, heads: int) -> Array:
    """[G, ...] -> [H, ...]: heads of a group have the same keys and values."""
    lib = arrays.of(shared)
    return shared[lib.arange(0, heads, lib.int64, shared) // (heads // len(shared))]


def _turned(matrix: Array) -> Array:
    """[..., n, m] -> [..., m, n]."""
    return matrix.swapaxes(-1, -2)


def _lower(matrix: Array) -> Array:
    """Rᵀ of [..., D, d] = Q R."""
    return _turned(arrays.of(matrix).triangle(matrix))
