"""Massive activations: a few huge values in the states between layers.

An activation is massive if its magnitude exceeds 100 and is at least 1,000 times the median
magnitude of its hidden state (Sun et al. 2024, arXiv:2402.17762): of all values of one text's
states after a layer, [T, D].
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from attnviz.core.arrays import Array, exact, to_numpy
from attnviz.core.tokens import Tokens
from attnviz.features.sinks.result import MASSIVE, TIMES, LayerActivation


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
