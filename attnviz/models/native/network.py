"""The forward pass of BERT and GPT-2 on :func:`attend`: plain tensors, no modules.

Shapes: B batch, T tokens, D width, H heads, d = D / H.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from attnviz.attention.blocks import attend_unchecked
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Site
from attnviz.core.source import Cuts, Donors, Gates, Observer, Positions, at_positions
from attnviz.core.weights import Normalization
from attnviz.models.native.config import Config, Unsupported
from attnviz.models.native.weights import DrawnWeights, Weights

Function = Callable[[Array], Array]


def _activated(name: str, x: Array) -> Array:
    return getattr(arrays.of(x), name)(x)


ACTIVATIONS: Mapping[str, Function] = {
    "gelu": partial(_activated, "gelu"),
    "relu": partial(_activated, "relu"),
    **dict.fromkeys(
        ("gelu_new", "gelu_pytorch_tanh", "gelu_fast"), partial(_activated, "gelu_tanh")
    ),
}
"""Activations under transformers' names; gelu_new is GELU's tanh form (arXiv:1606.08415)."""


@dataclass(frozen=True)
class Affine:
    """x Wᵀ + b with W [out, in]."""

    weight: Array
    bias: Array

    def __call__(self, x: Array) -> Array:
        """[..., in] -> [..., out]."""
        return arrays.of(x).linear(x, self.weight, self.bias)


@dataclass(frozen=True)
class Norm:
    """Layer normalization (arXiv:1607.06450)."""

    weight: Array
    bias: Array
    eps: float

    @property
    def normalization(self) -> Normalization:
        """The same as a source says it."""
        return Normalization(self.weight, self.eps, self.bias)

    def __call__(self, x: Array) -> Array:
        """[..., D] -> [..., D]."""
        return arrays.of(x).layer_norm(x, self.weight, self.bias, self.eps)


@dataclass(frozen=True)
class NativeLayer:
    """One layer: attention and a feed-forward part, a normalization for each.

    ``project`` makes queries, keys and values of the input, in one matrix or in three.
    """

    project: tuple[Affine, ...]
    out: Affine
    norm_1: Norm
    up: Affine
    down: Affine
    norm_2: Norm


@dataclass(frozen=True)
class Streamed:
    """The layers of a model that is larger than memory: each is read when it is asked for."""

    read: Callable[[int], NativeLayer]
    count: int

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[NativeLayer]:
        return map(self.read, range(self.count))

    def __getitem__(self, number: int) -> NativeLayer:
        return self.read(number)


class Cache:
    """Keys and values of the tokens that ran before, [B, H, S, d] each, by layer."""

    def __init__(self, past: Sequence[tuple[Array, Array]] = ()) -> None:
        self._kept: dict[int, tuple[Array, Array]] = dict(enumerate(past))

    @property
    def length(self) -> int:
        """How many tokens ran."""
        return self._kept[0][0].shape[2] if self._kept else 0

    @property
    def layers(self) -> tuple[tuple[Array, Array], ...]:
        """Of every layer keys and values."""
        return tuple(self._kept[layer] for layer in sorted(self._kept))

    def extend(self, layer: int, key: Array, value: Array) -> tuple[Array, Array]:
        """All keys and values of a layer, the new ones at the end."""
        if layer in self._kept:
            past = self._kept[layer]
            xp = arrays.of(key).xp
            key, value = (xp.concatenate(pair, 2) for pair in zip(past, (key, value), strict=True))
        self._kept[layer] = (key, value)
        return key, value


@dataclass(frozen=True)
class Network:
    """A model's tensors in the order in which they are used; made by :func:`build`."""

    config: Config
    tokens: Array
    positions: Array
    segments: Array | None
    norm: Norm
    layers: tuple[NativeLayer, ...] | Streamed
    activation: Function

    def run(
        self,
        x: Array,
        first: int,
        padding: Array | None,
        observers: Sequence[Observer],
        gates: Gates,
        *,
        donors: Donors,
        cuts: Cuts,
        end: int | None = None,
        full: bool = True,
        positions: Positions = None,
        mlps: list[Array] | None = None,
        cache: Cache | None = None,
    ) -> Iterator[Array]:
        """Run the layers.

        ``x`` [B, T, D], what enters the first layer that runs; [B / n, T, D] where that layer's
        gate or donors repeat it n times, see :class:`~attnviz.core.source.Gate`; ``padding``: bool
        [B, T], True for real tokens; None where all are; ``end``: the layer before which it ends;
        ``full``: whether more than attention is wanted of the last one that runs; ``positions``:
        those at which the model's last layer goes on behind its attention, see
        :func:`~attnviz.core.source.at_positions`; ``mlps``: gets what each feed-forward part
        adds, [B, T, D]; yields the states [B, T, D] that each layer made, before any closing
        normalization.
        """
        family = self.config.family
        end = len(self.layers) if end is None else end
        for number in range(first, end):
            layer = self.layers[number]
            z = self._attend(layer, number, x, padding, observers, gates, donors, cuts, cache)
            if len(z) > len(x):
                x = arrays.of(x).xp.tile(x, (len(z) // len(x), 1, 1))
            if not full and number == end - 1:
                return
            if number == len(self.layers) - 1:
                z, x = at_positions(z, positions), at_positions(x, positions)
            x = x + layer.out(z) if family.pre_norm else layer.norm_1(x + layer.out(z))
            read = layer.norm_2(x) if family.pre_norm else x
            added = layer.down(self.activation(layer.up(read)))
            if mlps is not None:
                mlps.append(added)
            x = x + added if family.pre_norm else layer.norm_2(x + added)
            yield x

    def close(self, x: Array) -> Array:
        """Return the last states as the model does: normalized in pre-norm families."""
        return self.norm(x) if self.config.family.pre_norm else x

    def embed(self, ids: Array, segments: Array, start: int = 0) -> Array:
        """Return what enters the first layer, [B, T, D].

        ``ids``: vocabulary ids, int64 [B, T]; ``segments``: int64 [B, T]; not used by models
        without segments.
        """
        first, *added = (rows for _, rows in self.embedded(ids, segments, start))
        x = sum(added, first)  # [B, T, D]
        return x if self.config.family.pre_norm else self.norm(x)

    def embedded(self, ids: Array, segments: Array, start: int = 0) -> list[tuple[Array, Array]]:
        """Get the tables, and the rows [B, T, D] that each adds; arguments as for :meth:`embed`."""
        family, lib = self.config.family, arrays.of(ids)
        if family.from_padding:
            # RoBERTa counts real tokens from padding id + 1; padding itself stays at the id
            real = ids != self.config.pad
            positions = real.cumsum(1) * real + self.config.pad
        else:
            positions = lib.arange(start, start + ids.shape[1], lib.int64, ids)
        rows = [(self.tokens, ids), (self.positions, positions)]
        rows += [] if self.segments is None else [(self.segments, segments)]
        return [(table, lib.embedding(positions, table)) for table, positions in rows]

    def _attend(
        self,
        layer: NativeLayer,
        number: int,
        x: Array,
        padding: Array | None,
        observers: Sequence[Observer],
        gates: Gates,
        donors: Donors,
        cuts: Cuts,
        cache: Cache | None,
    ) -> Array:
        """Attention up to the heads' outputs side by side, [B, T, D]."""
        family, heads = self.config.family, self.config.heads
        h = layer.norm_1(x) if family.pre_norm else x
        split = (*x.shape[:2], -1, heads, x.shape[2] // heads)
        projected = [affine(h).reshape(split) for affine in layer.project]  # [B, T, 1 or 3, H, d]
        parts = [
            several[:, :, number].swapaxes(1, 2)
            for several in projected
            for number in range(several.shape[2])
        ]
        query, key, value = parts  # [B, H, T, d] each
        if cache is not None:
            key, value = cache.extend(number, key, value)
        site = Site(family.kind, number)
        attended = attend_unchecked(
            query,
            key,
            value,
            padding=padding,
            causal=family.kind == "decoder",
            scale=self.config.scale(number),
            gate=gates.get(site),
            donors=donors.get(site, ()),
            cuts=cuts.get(site),
            residual=x,
            site=site,
            observers=observers,
        )
        return attended.output.swapaxes(1, 2).reshape(-1, *h.shape[1:])


def build(config: Config, weights: Weights | DrawnWeights, *, streamed: bool = False) -> Network:
    """Take a model's tensors out of a checkpoint, or draw them.

    ``streamed``: layers are read when they run, each time, and only one is in memory.
    """
    if config.activation not in ACTIVATIONS:
        raise Unsupported(f"its activation is {config.activation}")
    names, width = config.family.tensors, config.width

    def affine(part: str, number: int, size_in: int, size_out: int) -> Affine:
        name = names[part].format(number)
        if config.family.transposed:
            matrix = weights.take(f"{name}.weight", size_in, size_out).T
        else:
            matrix = weights.take(f"{name}.weight", size_out, size_in)
        return Affine(matrix, weights.take(f"{name}.bias", size_out))

    def norm(part: str, number: int = 0) -> Norm:
        name = names[part].format(number)
        return Norm(
            weights.take(f"{name}.weight", width), weights.take(f"{name}.bias", width), config.eps
        )

    def table(part: str, rows: int) -> Array:
        return weights.take(f"{names[part]}.weight", rows, width)

    def layer(number: int) -> NativeLayer:
        if "qkv" in names:
            project: tuple[Affine, ...] = (affine("qkv", number, width, 3 * width),)
        else:
            project = tuple(affine(p, number, width, width) for p in ("query", "key", "value"))
        return NativeLayer(
            project,
            affine("out", number, width, width),
            norm("norm_1", number),
            affine("up", number, width, config.inner),
            affine("down", number, config.inner, width),
            norm("norm_2", number),
        )

    network = Network(
        config,
        table("tokens", config.vocab),
        table("positions", config.positions),
        table("segments", config.segments) if "segments" in names else None,
        norm("norm"),
        Streamed(layer, config.layers) if streamed else tuple(map(layer, range(config.layers))),
        ACTIVATIONS[config.activation],
    )
    if isinstance(weights, Weights):
        if streamed:  # names and shapes alone are looked at now
            with weights.unread():
                list(network.layers)
        weights.check_all_taken()
    return network
