"""A native decoder goes on with a text, token by token, on a cache of keys and values."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.cuts import Cuts
from attnviz.core.prompt import Generation
from attnviz.core.source import Gates, Observer
from attnviz.models.choice import Choice
from attnviz.models.native.network import Cache, Network
from attnviz.models.native.words import Words


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
    """The tokens that a decoder writes.

    ``ids``: the prompt, int64 [1, T].
    """
    choose, cache = Choice(generation), Cache()
    for _ in range(generation.tokens):
        on = arrays.of(ids)
        segments = on.zeros(tuple(ids.shape), on.int64, ids)
        first = network.embed(ids, segments, start=cache.length)
        *_, last = network.run(first, 0, None, observers, gates, donors={}, cuts=cuts, cache=cache)
        token = choose(words(network.close(last[:, -1:]))[0, 0])
        yield token
        if token in ends:
            return
        ids = on.asarray(np.array([[token]]), on.int64, ids)
