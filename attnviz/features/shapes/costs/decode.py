"""Decoding one token: what it reads from memory, and what it computes with that.

A decoding step reads every weight once for all sequences of the batch, and of each sequence the
whole cache. Few FLOPs a byte (its arithmetic intensity) mean that memory, not arithmetic, sets its
pace: a roofline argument, Williams et al. 2009 (doi:10.1145/1498765.1498785), for decoding Shazeer
2019 (arXiv:1911.02150). Where an indexer selects keys, its own keys are read whole and the cache of
those selected. Attention alone: what else a model holds is read besides.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from attnviz.attention.costs import (
    cache_elements,
    cached_tokens,
    parameters,
    projections,
    read_elements,
)
from attnviz.attention.spec import AttentionSpec, RunSizes

Stack = Sequence[tuple[AttentionSpec, int]]
"""The layers that keep a cache: each kind of layer, and how many there are of it."""


class Decoding(NamedTuple):
    """One step that decodes a token of every sequence.

    Attributes:
        weights: bytes of the layers' weights. cache: bytes read of all sequences' keys and values.
        flops: 2 per multiply-add. batch: how many sequences.
    """

    weights: int
    cache: int
    flops: int
    batch: int

    @property
    def bytes_per_token(self) -> float:
        """Bytes read for one decoded token: a share of the weights, and its own cache."""
        return (self.weights + self.cache) / self.batch

    @property
    def intensity(self) -> float:
        """FLOPs per byte that is read."""
        return self.flops / (self.weights + self.cache)


def cache_bytes(stack: Stack, tokens: int, width: int) -> int:
    """The KV cache of one sequence: every layer's tokens (a window's at most) times its numbers."""
    return sum(
        layers * cached_tokens(spec, tokens) * cache_elements(spec) * width
        for spec, layers in stack
    )


def decoding(stack: Stack, tokens: int, run: RunSizes) -> Decoding:
    """A step on a cache that holds ``tokens`` tokens of every sequence, the new one among them.

    Args:
        stack: the layers.
        tokens: keys that a query without a window sees.
        run: the batch and the dtypes.
    """
    batch = run.batch or 1
    return Decoding(
        weights=sum(layers * parameters(spec).total for spec, layers in stack) * run.width,
        cache=batch
        * sum(layers * read_elements(spec, tokens) for spec, layers in stack)
        * run.cache_width,
        flops=batch * sum(layers * step_flops(spec, tokens) for spec, layers in stack),
        batch=batch,
    )


def step_flops(spec: AttentionSpec, tokens: int, *, absorbed: bool = True) -> int:
    """FLOPs of one token in one layer: projections, scores and mixing.

    Args:
        spec: the layer.
        tokens: that it sees, itself among them.
        absorbed: of MLA, whether W_K and W_V are absorbed, as it is served (DeepSeek-V2, section
            2.1.2): queries meet the latents themselves, and only the mixed latent is turned into
            values. Else keys and values of all tokens are made of their latents at every step.
    """
    keys, index = cached_tokens(spec, tokens), 0
    if spec.indexer is not None:
        keys, index = min(tokens, spec.indexer.keep), spec.indexer.heads * (spec.indexer.width + 1)
    matrices = projections(spec)
    if spec.kind == "mla" and not absorbed:
        learned = sum(p.weights * (keys if p.over == "all keys" else 1) for p in matrices)
    else:
        learned = sum(p.weights for p in matrices)
    learned += index * tokens
    if spec.kind == "mla" and absorbed:
        return 2 * (learned + spec.heads * keys * (2 * spec.latent + spec.rope_dim))
    return 2 * (learned + spec.heads * keys * (spec.score_dim + spec.value_dim))
