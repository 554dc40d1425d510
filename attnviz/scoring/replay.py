"""Stored maps as if they went by, with the keys each row could see: as stored, or as they show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.capture import Capture
from attnviz.core.heads import SiteKind
from attnviz.core.key_mask import KeyMask
from attnviz.core.source import Rows

_BLOCK_ELEMENTS = 1 << 20


def allowed_keys(weights: NDArray[np.floating[Any]], kind: SiteKind) -> NDArray[np.bool_]:
    """The keys that each query could attend to, as far as the weights show.

    For maps that came without a mask. A key counts as allowed unless no head of the layer uses it
    where a causal mask, a sliding window or padding would forbid it; a row that no head uses has no
    keys.

    Args:
        weights: [H, T, S] of one layer.
        kind: of the layer; cross-attention has no causal mask and no window.

    Returns:
        bool [T, S].
    """
    used: NDArray[np.bool_] = np.logical_or.reduce(weights > 0, axis=0)
    allowed: NDArray[np.bool_] = np.outer(used.any(1), used.any(0))
    if kind == "cross" or not used.any():
        return allowed
    length, key_length = used.shape
    back = np.arange(length)[:, None] + (key_length - length) - np.arange(key_length)
    farthest = int(abs(back[used]).max())
    causal = bool((back[used] >= 0).all())
    allowed &= (back <= farthest) & (back >= (0 if causal else -farthest))
    return allowed


def allowed_in(
    weights: NDArray[np.floating[Any]], kind: SiteKind, reach: KeyMask | None
) -> NDArray[np.bool_]:
    """The keys that each query of a layer may attend to, bool [H or 1, T, S].

    Args:
        weights: [H, T, S] of the layer.
        kind: of the layer.
        reach: what is known; without it the weights themselves have to show it.
    """
    if reach is None:
        return allowed_keys(weights, kind)[None]
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
        allowed = allowed_in(maps, site.kind, reach)
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
