"""The pair of tokens to look at first: a head's strongest one among what a score counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, to_numpy
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Site
from attnviz.core.source import Rows
from attnviz.scoring.observe import ScoreObserver
from attnviz.scoring.replay import allowed_in
from attnviz.scoring.scores import SCORES

_CHOICES = 8
"""So many keys of every query are looked at, the strongest."""


_AT_ONCE = 32
"""Keys that are asked about at once."""


def targets(capture: Capture, head: Head, score: str) -> NDArray[np.bool_]:
    """The keys that a score counts, [T, S], asked of the score itself; none in rows without any."""
    maps = np.asarray(capture.maps[head.site])
    place = capture.place(head)
    allowed = allowed_in(maps, capture.reach.get(head.site))
    allowed = allowed[place if len(allowed) > 1 else 0]
    length, keys = allowed.shape
    hits: NDArray[np.bool_] = np.zeros((length, keys), np.bool_)
    for first in range(0, keys, _AT_ONCE):
        some = range(first, min(first + _AT_ONCE, keys))
        single = np.zeros((1, len(some), length, keys), np.float32)
        for number, key in enumerate(some):
            single[0, number, :, key] = 1.0

        def watch(
            item: int, site: Site, start: int, names: Sequence[str], values: Array,
            first: int = first,
        ) -> None:  # fmt: skip
            for number, row in np.argwhere(to_numpy(values[0] > 0.5)).tolist():
                hits[start + row, first + number] = True

        observer = ScoreObserver([capture.inputs], capture.layout, [score], watch)
        observer.observe(_rows(head.site, single, allowed))
    hits &= allowed
    return hits


def strongest_pair(capture: Capture, head: Head, score: str) -> tuple[int, int] | None:
    """The query and the key with the largest weight among the targets of a score.

    Which keys are targets is asked of the score itself: it sees, in place of the head, heads that
    put all of a row's weight on its strongest key, on its second, and so on.
    """
    if not SCORES[score].on_targets:
        return None
    maps = np.asarray(capture.maps[head.site])
    place = capture.place(head)
    weights = np.nan_to_num(maps[place].astype(np.float64))
    reach = capture.reach.get(head.site)
    allowed = allowed_in(maps, reach)
    allowed = allowed[place if len(allowed) > 1 else 0]
    length, keys = weights.shape
    order = np.argsort(-weights, axis=1, kind="stable")[:, :_CHOICES]
    single = np.zeros((1, order.shape[1], length, keys), np.float32)
    np.put_along_axis(single[0], order.T[..., None], 1.0, -1)
    best: list[tuple[float, int, int]] = []

    def watch(item: int, site: Site, start: int, names: Sequence[str], values: Array) -> None:
        for choice, row in np.argwhere(to_numpy(values[0] > 0.5)).tolist():
            key = int(order[start + row, choice])
            best.append((-float(weights[start + row, key]), start + row, key))

    observer = ScoreObserver([capture.inputs], capture.layout, [score], watch)
    observer.observe(_rows(head.site, single, allowed))
    if not best or min(best)[0] == 0:
        return None
    _, query, key = min(best)
    return query, key


def _rows(site: Site, weights: NDArray[np.float32], allowed: NDArray[np.bool_]) -> Rows:
    """A whole layer as one block."""
    return Rows(site, 0, 0, arrays.array(weights), arrays.array(allowed[None, None]))
