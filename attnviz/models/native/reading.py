"""The weights of a native model as heads read and write with them: views of its own tensors."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.arrays import Array
from attnviz.core.weights import (
    Embedding,
    Normalization,
    OutputProjection,
    Reading,
    Readout,
    Sublayer,
    input_slices,
    output_slices,
)
from attnviz.models.native.network import Network, Norm
from attnviz.models.native.words import Words

POST_NORM = (
    "each of its layers normalizes the sum of what it gets and what it adds, so that nothing "
    "reaches the output as it was written"
)
"""Why a post-norm model's logits are no sum over heads."""


def reading(network: Network, number: int) -> Reading:
    """W_Q, W_K and W_V of a layer, and the normalizations around them."""
    config, layer = network.config, network.layers[number]
    family, heads = config.family, config.heads
    weights = [part for lin in layer.project for part in _split(lin.weight, config.width)]
    biases = [
        part.reshape(heads, -1) for lin in layer.project for part in _split(lin.bias, config.width)
    ]
    query, key, value = (input_slices(weight, heads) for weight in weights)
    first, second = _norm(layer.norm_1), _norm(layer.norm_2)
    return Reading(
        query,
        key,
        value,
        biases[0],
        biases[1],
        norm=first if family.pre_norm else None,
        after=() if family.pre_norm else (first, second),
        scale=config.scale(number),
        causal=family.kind == "decoder",
    )


def _split(stacked: Array, width: int) -> Iterator[Array]:
    """Every ``width`` rows."""
    return (stacked[first : first + width] for first in range(0, len(stacked), width))


def embedding(network: Network) -> Embedding:
    """The tables of tokens and positions; segments are left out."""
    config = network.config
    norm = None if config.family.pre_norm else _norm(network.norm)
    return Embedding(network.tokens, _used(network), norm)


def output(network: Network, number: int) -> OutputProjection:
    """W_O and b_O of a layer."""
    out = network.layers[number].out
    return OutputProjection(output_slices(out.weight, network.config.heads), out.bias)


def sublayer(network: Network, number: int) -> Sublayer:
    """The residual connection around a layer's attention, and its normalization."""
    norm = _norm(network.layers[number].norm_1)
    return Sublayer("pre" if network.config.family.pre_norm else "post", norm)


def readout(network: Network, words: Words | str) -> Readout:
    """How the residual stream becomes logits."""
    if not network.config.family.pre_norm:
        return Readout(None, reason=POST_NORM)
    if isinstance(words, str):
        return Readout(None, reason=words)
    norm = network.norm
    return Readout(words.table, norm.weight, norm.eps, norm.bias, words.bias)


def _used(network: Network) -> Array:
    """The rows of the position table that tokens get, the first token's first."""
    config = network.config
    return network.positions[config.positions - config.max_tokens :]


def _norm(norm: Norm) -> Normalization:
    return Normalization(norm.weight, norm.eps, norm.bias)
