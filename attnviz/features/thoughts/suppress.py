"""What changes in later sentences where attention to one of them is suppressed.

All that follows a sentence loses its keys, in all heads and layers, by -inf before softmax
(attention knockout). What stands before its end is as it was: where the model can go on behind keys
and values that were kept, it does not run again.

Notation in shapes: T tokens, V vocabulary, n sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from attnviz.core import arrays
from attnviz.core.arrays import Array, doubles, on_numpy
from attnviz.core.cuts import Cut
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import ForwardRequest, Source
from attnviz.core.spans import Range
from attnviz.statistics.exact import Floats

FLOOR = 1e-9
"""KL below this is no more than rounding, and counts as this."""
ROOM = 1 << 26
"""Logits of a batch at most: 256 MiB in float32."""
_AT_ONCE = 1 << 22
"""Logits that are in float64 at a time."""


def suppressed(
    source: Source,
    inputs: Inputs,
    sentences: Sequence[Range],
    *,
    tokens: int | None = None,
    told: Callable[[int], None] = lambda done: None,
) -> Floats:
    """[n, n], mean log KL on the sentence of the row without attention to that of the column."""
    count, length = len(sentences), inputs.length
    effects = np.full((count, count), np.nan)
    request = ForwardRequest(hidden=False, logits=True, keep=source.continues)
    whole = source.forward([inputs], request=request)
    assert whole.logits is not None
    at_once = max(1, ROOM // max(1, length * whole.logits.shape[-1]))
    at_once = min(at_once, max(1, (tokens or 4096) // length))
    for first in range(0, count - 1, at_once):
        some = range(first, min(first + at_once, count - 1))
        # what all of these leave as it was
        done = sentences[first][1] if whole.past is not None else 0
        request = ForwardRequest(
            cuts=cuts_of(source, [sentences[n] for n in some], length),
            hidden=False,
            logits=True,
            past=whole.past.first(done) if whole.past is not None else None,
        )
        changed = source.forward([inputs] * len(some), request=request).logits
        assert changed is not None
        for item, number in enumerate(some):
            start = sentences[number + 1][0]
            far = log_kl(whole.logits[0, start:], changed[item, start - done :])
            for later in range(number + 1, count):
                begin, end = (place - start for place in sentences[later])
                effects[later, number] = far[begin:end].mean()
        told(min(first + at_once, count - 1))
    return effects


def cuts_of(source: Source, sentences: Sequence[Range], length: int) -> dict[Site, Cut]:
    """The cuts of a batch that suppresses one sentence in each of its items."""
    rows, keys = (np.zeros((len(sentences), length), np.bool_) for _ in range(2))
    for item, (start, stop) in enumerate(sentences):
        rows[item, stop:] = keys[item, start:stop] = True
    cuts = {}
    for site in source.layout.sites:
        heads = np.ones((1, source.layout.heads[site.kind][site.layer]), np.bool_)
        cuts[site] = Cut(arrays.array(heads), arrays.array(rows), arrays.array(keys))
    return cuts


def log_kl(whole: Array, changed: Array) -> Floats:
    """[T], log KL(whole ‖ changed) of predictions, natural logarithms of nats.

    ``whole``: logits [T, V]; ``changed`` likewise.
    """
    rows = max(1, _AT_ONCE // whole.shape[1])
    parts = [
        _kl(whole[start : start + rows], changed[start : start + rows])
        for start in range(0, len(whole), rows)
    ]
    far: Floats = np.log(np.maximum(np.concatenate(parts), FLOOR))
    return far


def _kl(whole: Array, changed: Array) -> Floats:
    p, q = (on_numpy.log_softmax(doubles(logits)) for logits in (whole, changed))
    kl: Floats = np.einsum("tv,tv->t", np.exp(p), p - q)
    return kl
