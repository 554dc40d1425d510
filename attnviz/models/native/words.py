"""The LM head on a native model.

GPT-2 multiplies with its token embeddings; BERT, DistilBERT and RoBERTa transform and normalize
first, and add a bias for each token.

What a native model adds to its residual stream, and the derivatives of queries and keys to that.

Every normalization's σ is held, so that each step back is a matrix; see
:mod:`attnviz.models.traced`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Site
from attnviz.core.prompt import Generation
from attnviz.core.source import Cuts, Gates, Observer
from attnviz.models.native.network import Affine, Cache, Function, Network, Norm
from attnviz.models.native.weights import Weights
from attnviz.models.traced import StreamPart, TracedPass


@dataclass(frozen=True)
class Words:
    """[..., D] -> [..., V]."""

    table: Array  # [V, D], the token embeddings where the two are tied
    bias: Array | None = None  # [V], or None
    # what comes before the table: a layer, its activation and a normalization
    transform: tuple[Affine, Function, Norm] | None = None

    def __call__(self, hidden: Array) -> Array:
        """Logits of every token of the vocabulary."""
        if self.transform is not None:
            dense, activation, norm = self.transform
            hidden = norm(activation(dense(hidden)))
        return arrays.of(hidden).linear(hidden, self.table, self.bias)


def read(weights: Weights, network: Network) -> Words | str:
    """Take the LM head out of a checkpoint."""
    config = network.config
    names, width, vocab = config.family.words, config.width, config.vocab
    needed = [f"{names[part]}.{kind}" for part in ("dense", "norm") if part in names
              for kind in ("weight", "bias")]  # fmt: skip
    needed += [names["bias"]] if "bias" in names else []
    needed += [] if config.tied else [f"{names['table']}.weight"]
    missing = [name for name in needed if not weights.has(name)]
    if missing:
        return f"its checkpoint has no LM head ({missing[0]} is not in it)"
    table = network.tokens
    if not config.tied:
        table = weights.take_whole(f"{names['table']}.weight", vocab, width)
    if "dense" not in names:
        return Words(table)
    dense, norm, bias = names["dense"], names["norm"], names["bias"]
    own_bias = f"{names['table']}.bias"
    if not config.tied and weights.has(own_bias):  # no longer the same tensor as the other bias
        bias = own_bias

    def both(name: str, *shape: int) -> tuple[Array, Array]:
        weight = weights.take_whole(f"{name}.weight", *shape)
        return weight, weights.take_whole(f"{name}.bias", width)

    added = weights.take_whole(bias, vocab)
    layer, last = Affine(*both(dense, width, width)), Norm(*both(norm, width), config.eps)
    return Words(table, added, (layer, network.activation, last))


def write(
    network: Network,
    words: Words,
    ids: Array,
    generation: Generation,
    ends: Collection[int],
    gates: Gates,
    cuts: Cuts,
    observers: Sequence[Observer] = (),
) -> Iterator[int]:
    """Yield the tokens that a decoder writes.

    ``ids``: the prompt, int64 [1, T].
    """
    choose, cache = Choice(generation), Cache()
    for _ in range(generation.tokens):
        lib = arrays.of(ids)
        segments = lib.zeros(tuple(ids.shape), lib.int64, ids)
        first = network.embed(ids, segments, start=cache.length)
        *_, last = network.run(first, 0, None, observers, gates, donors={}, cuts=cuts, cache=cache)
        token = choose(words(network.close(last[:, -1:]))[0, 0])
        yield token
        if token in ends:
            return
        ids = lib.asarray(np.array([[token]]), lib.int64, ids)


class Choice:
    """Chooses tokens one after the other; the same logits and seed give the same tokens."""

    def __init__(self, generation: Generation) -> None:
        self._settings, self._draw = generation, np.random.default_rng(generation.seed or 0)

    def __call__(self, logits: Array) -> int:
        """Return the next token of logits [V]; the lowest id where several are as likely."""
        if self._settings.greedy:
            return int(logits.argmax())
        scores = arrays.doubles(logits) / (self._settings.temperature or 1.0)
        likely = np.exp(scores - scores.max())
        order = np.argsort(-likely, kind="stable")
        chances = likely[order] / likely.sum()
        top_p = 1.0 if self._settings.top_p is None else self._settings.top_p
        chances = chances * (chances.cumsum() - chances < top_p)
        ends = chances.cumsum()
        threshold = self._draw.random() * ends[-1]
        index = int(np.searchsorted(ends, threshold, side="right"))
        return int(order[min(index, int((chances > 0).sum()) - 1)])


def rows_of(stacked: Array, width: int) -> Iterator[Array]:
    """Every ``width`` rows."""
    return (stacked[first : first + width] for first in range(0, len(stacked), width))


@dataclass(frozen=True, eq=False)
class _Step:
    """What was done to the stream: a part added, or the whole normalized."""

    part: int  # the number of the leaf that was added; of a normalization, that of its β
    norm: Norm | None = None  # the normalization
    entered: Array | None = None  # [1, T, D], what was normalized


@dataclass
class NativePass(TracedPass):
    """A pass whose steps are known; see :func:`traced`."""

    leaves: list[StreamPart] = field(default_factory=list)
    steps: list[_Step] = field(default_factory=list)  # of the stream, in order
    # by layer, how many of the steps come before it reads, with its own normalization
    preceding: dict[Site, tuple[_Step, ...]] = field(default_factory=dict)
    # by layer, the numbers of the leaves that make queries, keys and values
    projections: dict[Site, tuple[int, ...]] = field(default_factory=dict)

    def keep(self, leaf: StreamPart) -> int:
        """Return the number of one more leaf."""
        self.leaves.append(leaf)
        return len(self.leaves) - 1

    def normalized(self, norm: Norm, x: Array) -> tuple[_Step, Array]:
        """Return the step, with a leaf for β, and what it gives."""
        beta = arrays.of(x).xp.broadcast_to(norm.bias, x.shape)
        return _Step(self.keep(StreamPart("added", beta)), norm, x), norm(x)

    def derivatives(self, target: Array, towards: Array) -> Sequence[Array | None]:
        """See :class:`~attnviz.models.traced.TracedPass`."""
        reached: list[Array | None] = [None] * len(self.leaves)
        for site, terms in self.terms.items():
            for side, vectors in enumerate((terms.query, terms.key)):
                if vectors is target:  # towards [m, 1, H, T, d]
                    flat = towards.swapaxes(2, 3).reshape(len(towards), 1, towards.shape[3], -1)
                    reached[self.projections[site][side]] = flat
                    return reached
            if self.leaves[self.projections[site][0]].read is target:
                for part, toward in _back(self.preceding[site], towards):
                    reached[part] = toward
                return reached
        raise ValueError("derivatives are of a layer's queries or keys, or of what it reads")


def _back(steps: Sequence[_Step], toward: Array) -> Iterator[tuple[int, Array]]:
    """Every leaf of the steps, the last first, with the derivatives to it."""
    for step in reversed(steps):
        yield step.part, toward
        if step.norm is not None and step.entered is not None:
            xp, x = arrays.of(toward).xp, step.entered
            centred = x - x.mean(-1)[..., None]
            deviation = xp.sqrt(xp.square(centred).mean(-1) + step.norm.eps)
            toward = toward * (step.norm.weight / deviation[..., None])
            toward = toward - toward.mean(-1)[..., None]


def fill(
    passed: NativePass,
    network: Network,
    embedded: Sequence[tuple[Array, Array]],
    mlps: Sequence[Array],
) -> None:
    """Give a pass of one text its leaves and steps.

    ``embedded``: the tables, and what each added at the beginning, [1, T, D] or [T, D]; ``mlps``
    [1, T, D] by layer, what the feed-forward parts added.
    """
    family, width, steps = network.config.family, network.config.width, passed.steps

    def closed(norm: Norm, x: Array) -> Array:
        """Normalize the stream where the family does so behind each sum."""
        if family.pre_norm:
            return x
        step, x = passed.normalized(norm, x)
        steps.append(step)
        return x

    x = embedded[0][1]
    lib = arrays.of(x)
    for number, (table, values) in enumerate(embedded):
        rows = values.reshape(x.shape)  # of positions the same for every text
        steps.append(_Step(passed.keep(StreamPart("table", rows, table=table))))
        x = x + rows if number else x
    x = closed(network.norm, x)
    for number, layer in enumerate(network.layers):
        site = Site(family.kind, number)
        norm_steps: tuple[_Step, ...] = ()
        h = x
        if family.pre_norm:
            step, h = passed.normalized(layer.norm_1, x)
            norm_steps = (step,)
        passed.preceding[site] = (*steps, *norm_steps)
        passed.projections[site] = tuple(
            passed.keep(StreamPart("product", Affine(weight, bias)(h), None, h, weight, bias))
            for affine in layer.project
            for weight, bias in zip(
                rows_of(affine.weight, width), rows_of(affine.bias, width), strict=True
            )
        )
        z = passed.outputs[site].reshape(1, h.shape[1], -1)
        wrote = layer.out(lib.cast(z, layer.out.weight.dtype))  # half the precision it is kept in
        out = StreamPart("product", wrote, None, z, layer.out.weight, layer.out.bias)
        steps.append(_Step(passed.keep(out)))
        x = closed(layer.norm_1, x + wrote)
        steps.append(_Step(passed.keep(StreamPart("product", mlps[number]))))
        x = closed(layer.norm_2, x + lib.cast(mlps[number], x.dtype))
