"""What the heads of a native model read: views of its own tensors."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.attention.slices import input_slices
from attnviz.core.arrays import Array
from attnviz.core.source import Embedding, Normalization, Reading
from attnviz.models.native.network import Network, Norm


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


def _used(network: Network) -> Array:
    """The rows of the position table that tokens get, the first token's first."""
    config = network.config
    return network.positions[config.positions - config.max_tokens :]


def _norm(norm: Norm) -> Normalization:
    return Normalization(norm.weight, norm.eps, norm.bias)
