"""Where position embeddings alone send attention.

Learned positions P are rows of the stream that the model starts with (Elhage et al. 2021 read
previous-token heads off them). With nothing but P_i in the stream at position i, a layer's own
normalization, W_Q, W_K and biases give scores, and softmax over what a query may see gives weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from attnviz.core.source import Embedding, Reading
from attnviz.features.circuits.fold import normalized
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
    """Of every layer its heads' mean weights; None where queries or keys are not known.

    Args:
        embedding: with positions.
        readings: of all layers.
    """
    assert embedding.positions is not None
    x = normalized(embedding.norm, embedding.positions[:MOST])
    for reading in readings:
        if reading.query is None or reading.key is None or reading.turned:
            yield None
        else:
            yield tuple(map(_means, _weights(reading, x)))
        for norm in reading.after:
            x = normalized(norm, x)


def uniform(length: int, *, causal: bool) -> ByPosition:
    """What uniform attention over so many positions gives."""
    seen = torch.ones(length, length, dtype=torch.float64)
    seen = seen.tril() if causal else seen
    return _means(seen / seen.sum(-1, keepdim=True))


def _weights(reading: Reading, x: Tensor) -> Tensor:
    """[H, T, T] for the stream [T, D]."""
    assert reading.query is not None
    assert reading.key is not None
    n = normalized(reading.norm, x)
    q, k = n @ reading.query.to(n), n @ reading.key.to(n)
    q = q if reading.query_bias is None else q + reading.query_bias.to(n)[:, None]
    k = k if reading.key_bias is None else k + reading.key_bias.to(n)[:, None]
    scores = reading.scale * (q @ k.repeat_interleave(len(q) // len(k), 0).mT)
    if reading.causal:
        ones = torch.ones(scores.shape[1:], dtype=torch.bool, device=scores.device)
        scores = scores.masked_fill(ones.triu(1), -torch.inf)
    return scores.softmax(-1)


def _means(weights: Tensor) -> ByPosition:
    """Over the rows in which every place is another one, [T, T]."""
    rows = range(FIRST, len(weights) - 1)
    i = torch.tensor(rows, device=weights.device)
    causal = not bool(weights.triu(1).any())
    places = {"previous": i - 1, "first": i * 0, "same": i, "next": i + 1}
    means = {name: float(weights[i, j].double().mean()) for name, j in places.items()}
    return ByPosition(
        means["previous"], means["first"], means["same"], None if causal else means["next"]
    )
