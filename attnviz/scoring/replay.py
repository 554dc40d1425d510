"""Stored maps as if they went by, with the keys each row could see: as stored, or as they show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.capture import Capture, KeyMask, seen_keys
from attnviz.core.source import Rows

_BLOCK_ELEMENTS = 1 << 20


def allowed_in(weights: NDArray[np.floating[Any]], reach: KeyMask | None) -> NDArray[np.bool_]:
    """Tell which keys each query of a layer may attend to, bool [H or 1, T, S].

    Where no mask is known, by the weights [H, T, S] themselves: the zeros that all heads share are
    the mask, whether causal, a window, padding, documents side by side, a tree or any other.
    """
    if reach is None:
        return seen_keys(weights)[None]
    return reach.allowed(*weights.shape[1:])


def unselected_in(reach: KeyMask | None) -> NDArray[np.bool_] | None:
    """The keys that a layer's indexer did not select, bool [T, S]; None where none selects."""
    return None if reach is None or reach.unselected is None else reach.unselected[0]


def blocks(capture: Capture) -> Iterator[Rows]:
    """The stored maps in blocks of rows, as :func:`~attnviz.attention.attend.attend` gives them.

    Norms come with each row divided by its sum.
    """
    for site, maps in capture.maps.items():
        weights = np.ascontiguousarray(maps, np.promote_types(maps.dtype, "f4"))
        reach = capture.reach.get(site)
        allowed = allowed_in(maps, reach)
        weights = np.where(allowed.any(-1, keepdims=True), weights, 0)  # a module's may be NaN
        sink = reach is not None and reach.sink
        if capture.quantity != "weights":  # scores compare with chance
            sums = weights.sum(-1, keepdims=True)
            weights = weights / np.where(sums > 0, sums, 1)
        heads, length, key_length = weights.shape
        step = max(1, _BLOCK_ELEMENTS // (heads * key_length))
        for start in range(0, length, step):
            rows = slice(start, start + step)
            shown, seen = arrays.array(weights[None, :, rows]), arrays.array(allowed[None, :, rows])
            yield Rows(site, start, 0, shown, seen, sink=sink)
