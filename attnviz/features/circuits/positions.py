"""Where position embeddings alone send attention.

Learned positions P are rows of the stream that the model starts with (Elhage et al. 2021 read
previous-token heads off them). With nothing but P_i in the stream at position i, a layer's own
normalization, W_Q, W_K and biases give scores, and softmax over what a query may see gives weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, to_numpy
from attnviz.core.weights import Embedding, Reading
from attnviz.features.circuits.compose import repeated
from attnviz.features.circuits.fold import normalized, widened
from attnviz.features.circuits.result import ByPosition

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
    """What uniform attention over so many positions gives."""
    seen = np.ones((length, length))
    seen = np.tril(seen) if causal else seen
    return _means(seen / seen.sum(-1, keepdims=True))


def _weights(reading: Reading, x: Array) -> Array:
    """[H, T, T] for the stream [T, D]."""
    assert reading.query is not None
    assert reading.key is not None
    n = normalized(reading.norm, x)
    q, k = n @ widened(reading.query), n @ widened(reading.key)
    q = q if reading.query_bias is None else q + widened(reading.query_bias)[:, None]
    k = k if reading.key_bias is None else k + widened(reading.key_bias)[:, None]
    scores = reading.scale * (q @ repeated(k, len(q)).swapaxes(1, 2))
    on = arrays.of(scores)
    if reading.causal:
        place = on.arange(0, len(x), on.int64, scores)
        scores = on.xp.where(place > place[:, None], -math.inf, scores)
    weights: Array = on.softmax(scores, None)
    return weights


def _means(weights: NDArray[np.floating[Any]]) -> ByPosition:
    """Over the rows in which every place is another one, [T, T]."""
    i = np.arange(FIRST, len(weights) - 1)
    causal = not np.triu(weights, 1).any()
    places = {"previous": i - 1, "first": i * 0, "same": i, "next": i + 1}
    means = {name: float(weights[i, j].mean(dtype=np.float64)) for name, j in places.items()}
    return ByPosition(
        means["previous"], means["first"], means["same"], None if causal else means["next"]
    )
