"""Attention maps made fit to be drawn: checked, brought to 0..1 of the colour scale, and binned.

A map may be a masked array of NumPy: masked cells are keys that the query may not attend to, which
look different from a weight of zero. Those of them that hold NaN are keys that an indexer did not
select, which look different again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.tokens import Sides
from attnviz.drawing.style import DECADES, Style
from attnviz.errors import InputError, UsageError

Map = NDArray[np.float64]
Mask = NDArray[np.bool_]


LARGEST_PICTURE = 1 << 27
"""Pixels; a picture of more takes gigabytes to draw and no program opens it with ease."""


def check_pixels(width: float, height: float) -> None:
    """Raise UsageError for a picture of too many pixels."""
    if width * height > LARGEST_PICTURE:
        raise UsageError(
            "a picture of {:,.0f} × {:,.0f} pixels is too large",
            width,
            height,
            remedy="choose fewer heads or a smaller {dpi} or {size}",
            dpi=...,
            size=...,
        )


def checked(weights: NDArray[np.floating[Any]], sides: Sides) -> Map:
    """Return the map as float64 [T, S], after checking that it can be drawn; masked cells are 0."""
    array = np.asarray(np.ma.filled(weights, 0), dtype=np.float64)
    expected = (len(sides.queries), len(sides.keys))
    if array.shape != expected:
        raise InputError(
            f"an attention map of shape {array.shape} does not fit {expected[0]} query and "
            f"{expected[1]} key tokens: give [queries, keys]"
        )
    if array.size == 0:
        raise InputError(f"an attention map of shape {array.shape} has nothing to draw")
    if not np.isfinite(array).all():
        raise InputError(
            "an attention map holds NaN or infinite weights and cannot be drawn: "
            "compute it in float32"
        )
    return array


def hidden(weights: NDArray[np.floating[Any]]) -> Mask | None:
    """Return the masked cells of a map, bool [T, S], or None where none is."""
    mask = np.ma.getmask(weights)
    return np.asarray(mask) if np.any(mask) else None


def unselected(weights: NDArray[np.floating[Any]]) -> Mask | None:
    """Give the masked cells that an indexer did not select, bool [T, S], or None where none is."""
    mask = hidden(weights)
    if mask is None:
        return None
    left_out: Mask = mask & np.isnan(np.ma.getdata(weights))
    return left_out if left_out.any() else None


def largest(maps: Iterable[Map]) -> float:
    """Return the largest weight of some maps, or of maps with signs the largest size."""
    return max(float(np.abs(array).max()) for array in maps)


def shades(weights: Map, style: Style, top: float | None = None) -> Map:
    """Where weights [T, S] stand on the colour scale, 0..1; of maps with signs 0 is at 0.5."""
    if style.signed:
        sizes = shades(np.abs(weights), style.but(quantity="weights"), top)
        return 0.5 + np.sign(weights) * sizes / 2
    if style.normalize == "row":
        limit = weights.max(axis=1, keepdims=True)
    elif style.normalize == "head" or top is None:
        limit = weights.max(keepdims=True)
    else:
        limit = np.full((1, 1), top)
    shares: Map = np.divide(weights, limit, out=np.zeros_like(weights), where=limit > 0)
    np.clip(shares, 0.0, 1.0, out=shares)
    if style.scale == "sqrt":
        np.sqrt(shares, out=shares)
    if style.scale == "log":
        logarithm = np.log10(shares, out=np.full_like(shares, -np.inf), where=shares > 0)
        np.maximum(1 + logarithm / DECADES, 0.0, out=shares)
    return shares


def binned(weights: Map, rows: int, columns: int, *, signed: bool = False) -> Map:
    """Take the largest weight of each block, or of signed shades that furthest from the middle."""
    if rows == columns == 1:
        return weights
    if signed:
        high, low = binned(weights, rows, columns), -binned(-weights, rows, columns)
        return np.where(high - 0.5 >= 0.5 - low, high, low)
    by_row = np.maximum.reduceat(weights, np.arange(0, weights.shape[0], rows), axis=0)
    return np.maximum.reduceat(by_row, np.arange(0, weights.shape[1], columns), axis=1)


def binned_mask(mask: Mask, rows: int, columns: int) -> Mask:
    """Which blocks of :func:`binned` are masked as a whole."""
    by_row = np.logical_and.reduceat(mask, np.arange(0, mask.shape[0], rows), axis=0)
    return np.logical_and.reduceat(by_row, np.arange(0, mask.shape[1], columns), axis=1)


def binned_unselected(left_out: Mask, mask: Mask, rows: int, columns: int) -> Mask:
    """Which of these blocks hold a key that an indexer did not select."""
    holding: Mask = ~binned_mask(~left_out, rows, columns)
    return holding & binned_mask(mask, rows, columns)
