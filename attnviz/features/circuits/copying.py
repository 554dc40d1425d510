"""Copying: does a head raise the token that it reads?

A head that looks at token t adds n_t W_V W_O to the stream, n_t what it reads of t, and raises the
logits by n_t W_V W_O W_U: [V, V] for all tokens, of rank d. Where its eigenvalues are positive,
tokens raise themselves; Σλ / Σ|λ| is the score (Elhage et al. 2021). They are those of the [d, d]
matrix W_O (W_U N) W_V, N the rows n_t.

Logits that rise by the same for all words change no probability, but they do change this score.
With W_U less its mean over the vocabulary it is the ``centred`` one, for which raising all words
alike counts for nothing; ``own`` is always so.

What a layer reads of a token are its embedding or, beyond the first layer, that embedding as it
leaves the first one (as Wang et al. 2022, arXiv:2211.00593, took it from the first MLP): the token
alone, at no position.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, exact, fetched, to_numpy
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest, Source, Start
from attnviz.core.weights import Embedding, Normalization, OutputProjection, Reading, Readout
from attnviz.features.circuits.compose import (
    centred,
    divided,
    folded,
    normalized,
    repeated,
    widened,
    written,
)
from attnviz.features.circuits.result import ByPosition, Chance, Copying

DRAWS = 100
"""Random heads that the chance of the score rests on."""

MATCHED = 24
"""And of each layer those that the score with matched singular values rests on."""

_BATCH = 256  # tokens that go through the first layer together, each alone


def words(readout: Readout, chosen: NDArray[np.int64]) -> Array:
    """Return what raises the logit of each chosen token, [V, D]."""
    assert readout.table is not None
    assert readout.scale is not None
    table = widened(readout.table[chosen]) * widened(readout.scale)
    return centred(table) if readout.centred else table


def after_first(source: Source, embedded: Array) -> Array:
    """Embeddings [V, D] as they leave the first layer, each token alone and at no position."""
    inputs = source.prepare(Prompt(ids=(0,)))
    blocks = []
    for first in range(0, len(embedded), _BATCH):
        block = embedded[first : first + _BATCH]
        start = Start(0, block[:, None], end=1)
        output = source.forward(
            [inputs] * len(block), request=ForwardRequest(hidden=False, states=True, start=start)
        )
        blocks.append(output.states[1][:, 0])
    return arrays.of(blocks[0]).xp.concatenate(blocks)


@dataclass
class ReadTokens:
    """Embeddings and the words that they may raise."""

    embedded: Array  # [V, D], what is read
    raising: Array  # [V, D], see :func:`words`

    def __post_init__(self) -> None:
        self._centred = self.raising - self.raising.mean(0)
        self._deviation = (self._centred.T @ self._centred) / len(self.raising)  # [D, D]
        self._met: dict[tuple[float, bool] | None, Array] = {}

    def copying(self, reading: Reading, output: OutputProjection) -> tuple[Copying, ...]:
        """Of every head of a layer; the layer needs values and W_O."""
        assert reading.value is not None
        assert output.weight is not None
        out = written(reading, output)  # [H, d_v, D]
        value = folded(reading.norm, reading.value)  # [G, D, d_v]
        value = repeated(value, len(out))
        read = divided(reading.norm, self.embedded)
        scores = _scores(out, self._meeting(reading.norm), value)
        centred_scores = _scores(out, self._centred.T @ read, value)
        xp, heads = arrays.of(out).xp, list[Array]()
        for w_v, w_o in zip(value, out, strict=True):
            values_read = read @ w_v  # [V, d_v]
            raised = (values_read * (self._centred @ w_o.T)).sum(1)  # of the token itself
            spread = xp.sqrt(((values_read @ (w_o @ self._deviation @ w_o.T)) * values_read).sum(1))
            own = exact(raised / spread.clip(xp.finfo(spread.dtype).tiny)).mean()
            lowered = exact(arrays.of(raised).cast(raised < 0, raised.dtype)).mean()
            heads += [own, lowered]
        shares = list(map(float, fetched(heads)))
        rows = zip(scores, centred_scores, shares[::2], shares[1::2], strict=True)
        return tuple(Copying(*row) for row in rows)

    def chance(self, reading: Reading, output: OutputProjection, seed: int) -> Chance:
        """Return the score of heads with normally distributed matrices of the same shapes."""
        assert output.weight is not None
        met = self._meeting(reading.norm)
        rank, width = output.weight.shape[1:]
        matrices = _drawn(seed, (2, DRAWS, width, rank), met)
        unscaled = None
        if reading.norm is not None:
            scale = arrays.of(met).full((width,), 1.0, met.dtype, met)
            unscaled = Normalization(scale, reading.norm.eps, None, reading.norm.centred)
        scores = _scores(matrices[0].swapaxes(1, 2), met, folded(unscaled, matrices[1]))
        return Chance(float(np.mean(scores)), float(np.std(scores, ddof=1)), DRAWS)

    def matched(self, reading: Reading, output: OutputProjection, seed: int) -> list[float]:
        """Return the scores of random heads whose W_V W_O have the layer's singular values."""
        assert reading.value is not None
        assert output.weight is not None
        out = written(reading, output)
        value = repeated(folded(reading.norm, reading.value), len(out))
        rank, width = out.shape[1:]
        lib = arrays.of(out)
        right = lib.triangle(out.swapaxes(1, 2)).swapaxes(1, 2)
        sizes = lib.singular_values(lib.triangle(value) @ right)  # [H, d]
        matrices = _drawn(seed, (2, MATCHED, width, rank), out)
        if reading.norm is not None and reading.norm.centred:
            matrices = matrices - matrices.mean(2)[:, :, None]
        value_bases, output_bases = lib.orthogonal(matrices)
        of = lib.arange(0, MATCHED, lib.int64, out) % len(out)
        outputs = sizes[of][:, :, None] * output_bases.swapaxes(1, 2)
        return _scores(outputs, self._meeting(reading.norm), value_bases)

    def _meeting(self, norm: Normalization | None) -> Array:
        """W_U N, [D, D], made once for all layers that divide alike."""
        key = None if norm is None else (norm.eps, norm.centred)
        if key not in self._met:
            self._met[key] = self.raising.T @ divided(norm, self.embedded)
        return self._met[key]


def _scores(out: Array, met: Array, value: Array) -> list[float]:
    """Σλ / Σ|λ| of W_O (W_U N) W_V, [H, d, D], [D, D] and [H, D, d]."""
    small = arrays.to_numpy(out @ met @ value).astype(np.float64)
    values = np.linalg.eigvals(small)
    sizes = np.abs(values).sum(-1).clip(np.finfo(np.float64).tiny)
    return (values.real.sum(-1) / sizes).tolist()


def _drawn(seed: int, shape: tuple[int, ...], like: Array) -> Array:
    """Return normally distributed numbers, of the kind of an array and where that is."""
    numbers = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return arrays.of(like).asarray(numbers, like.dtype, like)


def unknown(readings: Sequence[Reading], outputs: Sequence[OutputProjection]) -> Mapping[int, str]:
    """Return the layers whose values or W_O are not known, and why."""
    return {
        number: output.reason or reading.reason
        for number, (reading, output) in enumerate(zip(readings, outputs, strict=True))
        if reading.value is None or output.weight is None
    }


MOST = 128
"""Positions that are looked at, at most."""

LEAST = 4
"""Fewer show nothing."""

FIRST = 2
"""The first row that counts: before it, places coincide."""


def by_position(
    embedding: Embedding, readings: Sequence[Reading]
) -> Iterator[tuple[ByPosition, ...] | None]:
    """Of every layer its heads' mean weights; None where queries or keys are not known."""
    assert embedding.positions is not None
    x = normalized(embedding.norm, embedding.positions[:MOST])
    for reading in readings:
        if reading.query is None or reading.key is None or reading.turned:
            yield None
        else:
            yield tuple(map(_means, to_numpy(_weights(reading, x))))
        for norm in reading.after:
            x = normalized(norm, x)


def uniform(length: int, *, causal: bool) -> ByPosition:
    """Return what uniform attention over so many positions gives."""
    weights = np.ones((length, length))
    weights = np.tril(weights) if causal else weights
    return _means(weights / weights.sum(-1, keepdims=True))


def _weights(reading: Reading, x: Array) -> Array:
    """[H, T, T] for the stream [T, D]."""
    assert reading.query is not None
    assert reading.key is not None
    n = normalized(reading.norm, x)
    q, k = n @ widened(reading.query), n @ widened(reading.key)
    q = q if reading.query_bias is None else q + widened(reading.query_bias)[:, None]
    k = k if reading.key_bias is None else k + widened(reading.key_bias)[:, None]
    scores = reading.scale * (q @ repeated(k, len(q)).swapaxes(1, 2))
    lib = arrays.of(scores)
    if reading.causal:
        position = lib.arange(0, len(x), lib.int64, scores)
        scores = lib.xp.where(position > position[:, None], -math.inf, scores)
    return lib.softmax(scores, None)


def _means(weights: NDArray[np.floating[Any]]) -> ByPosition:
    """Over the rows in which every place is another one, [T, T]."""
    i = np.arange(FIRST, len(weights) - 1)
    causal = not np.triu(weights, 1).any()
    previous, first, same, following = (
        float(weights[i, j].mean(dtype=np.float64)) for j in (i - 1, i * 0, i, i + 1)
    )
    return ByPosition(previous, first, same, None if causal else following)
