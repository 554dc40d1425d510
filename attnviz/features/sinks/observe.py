"""What goes by of one text that tells sinks: sums, norms, and massive activations between layers.

An activation is massive if its magnitude exceeds 100 and is at least 1,000 times the median
magnitude of its hidden state (Sun et al. 2024, arXiv:2402.17762): of all values of one text's
states after a layer, [T, D].

Notation in shapes: H heads of a layer, G key/value heads, S keys, D width of the residual stream.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.interventions import written
from attnviz.core import arrays
from attnviz.core.arrays import Array, exact, to_numpy
from attnviz.core.heads import Site
from attnviz.core.source import Rows
from attnviz.core.tokens import Tokens
from attnviz.features.sinks.result import GATE_CLASSES, MASSIVE, TIMES, LayerActivation
from attnviz.scoring.axes import KINDS, kinds

Floats = NDArray[np.float64]

Projection = Callable[[Site], Array | None]
"""W_O of a layer by heads, [H, d_v, D]; None where it is not known."""


@dataclass(eq=False, slots=True)
class SinkSums:
    """One layer on one text; sums over rows."""

    weight: Floats  # [H, S], of the weight on each key
    rows: Floats  # [H or 1, S], how many rows may attend to it
    chance: Floats  # [H or 1, S], of the weight of uniform attention on it
    norms: Floats  # [H, S], of what each key's value adds with all of the weight
    output: Floats  # [H], of ‖z‖, z what W_O gets of a head
    learned: Floats  # [H], of the weight on a learned sink that is no key
    # [H, C], of the openness of the gate on a head's output, by the class of the query's token; NaN
    # where there is none
    gate: Floats
    count: int  # rows with some weight on keys or on that sink


def classed(tokens: Tokens) -> NDArray[np.intp]:
    """[T], the class of every token, a place in :data:`GATE_CLASSES`: the first that it is of."""
    table = kinds(tokens)
    classes = np.full(len(tokens), GATE_CLASSES.index("other"), np.intp)
    for name in ("repeated", "punctuation"):
        classes[table[KINDS.index(name)] > 0] = GATE_CLASSES.index(name)
    classes[:1] = GATE_CLASSES.index("first")
    return classes


class SinkObserver:
    """An observer of a single text."""

    def __init__(self, tokens: Tokens, projection: Projection) -> None:
        self._length, self._projection = len(tokens), projection
        self._classes = classed(tokens)
        self.layers: dict[Site, SinkSums] = {}

    def observe(self, rows: Rows) -> None:
        """Take in one block."""
        weights = rows.weights[0]  # [H, r, s]
        heads, count, width = weights.shape
        keys = slice(rows.key_start, rows.key_start + width)
        sums = self.layers.get(rows.site)
        if sums is None:
            sums = self.layers[rows.site] = self._empty(heads)
        total = to_numpy(arrays.of(weights).column_sums(weights))
        sums.weight[:, keys] += total
        if rows.allowed is None:
            allowed = np.ones((1, count, width))
        else:
            first = to_numpy(rows.allowed)[0]
            allowed = np.broadcast_to(first, (len(first), count, width)).astype(np.float64)
        uniform = allowed / np.maximum(allowed.sum(-1, keepdims=True), 1)
        if len(allowed) > len(sums.rows):
            sums.rows = sums.rows.repeat(len(allowed), 0)
            sums.chance = sums.chance.repeat(len(allowed), 0)
        sums.rows[:, keys] += allowed.sum(1)
        sums.chance[:, keys] += uniform.sum(1)
        sums.count += count
        if rows.sink:
            sums.learned += count - total.sum(-1)
        none = np.full((heads, count), np.nan)
        openness = none if rows.openness is None else to_numpy(exact(rows.openness)[0])
        classes = self._classes[rows.start : rows.start + count]
        for place in range(len(GATE_CLASSES)):
            sums.gate[:, place] += openness[:, classes == place].sum(-1)
        if rows.values is not None:
            xp = arrays.of(rows.values).xp
            sums.output += to_numpy(xp.linalg.norm(exact(written(rows)[0]), None, -1).sum(-1))
            fresh = np.flatnonzero(sums.norms[0, keys] < 0)
            if len(fresh):
                values = rows.values[0][:, fresh.tolist()]
                sums.norms[:, keys.start + fresh] = self._norms(rows.site, values, heads)

    def _empty(self, heads: int) -> SinkSums:
        zero, zeros = np.zeros((heads, self._length)), np.zeros(heads)
        few, gate = zero[:1], np.zeros((heads, len(GATE_CLASSES)))
        return SinkSums(zero, few.copy(), few.copy(), zero - 1, zeros, zeros.copy(), gate, 0)

    def _norms(self, site: Site, values: Array, heads: int) -> Floats:
        """[H, keys], of v W_O where that is known, else of v."""
        values, xp = exact(values), arrays.of(values).xp
        shared = heads // len(values)
        values = values[[head // shared for head in range(heads)]]  # [H, keys, d_v]
        weight = self._projection(site)
        if weight is None:
            return to_numpy(xp.linalg.norm(values, None, -1))
        weight = exact(arrays.converted(weight, values))
        gram = weight @ weight.swapaxes(1, 2)  # ‖v W‖² = v (W Wᵀ) vᵀ, never [H, keys, D]
        squares = ((values @ gram) * values).sum(-1)
        return to_numpy(xp.sqrt(squares.clip(0)))


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest activation of one text after one layer."""

    value: float
    position: int
    dimension: int
    median: float

    @property
    def massive(self) -> bool:
        """See the module."""
        return abs(self.value) > MASSIVE and abs(self.value) >= TIMES * self.median


def largest(states: Sequence[Array]) -> list[Largest]:
    """Of every state [1, T, D] of one text, in their order."""
    most = []
    for state in states:
        values = to_numpy(exact(state[0]))
        size = np.abs(values)
        place = int(size.argmax())
        position, dimension = divmod(place, values.shape[1])
        value = float(values[position, dimension])
        most.append(
            Largest(value, position, dimension, float(np.sort(size, None)[(size.size - 1) // 2]))
        )
    return most


def by_layer(texts: Sequence[tuple[list[Largest], Tokens]]) -> tuple[LayerActivation, ...]:
    """The largest of all texts after every layer."""
    layers = []
    for number in range(len(texts[0][0])):
        own = [states[number] for states, _ in texts]
        text = max(range(len(own)), key=lambda n: abs(own[n].value))
        most = own[text]
        layers.append(
            LayerActivation(
                number - 1,
                most.value,
                most.dimension,
                most.position,
                text,
                texts[text][1].texts[most.position],
                most.median,
                sum(state.massive for state in own),
            )
        )
    return tuple(layers)
