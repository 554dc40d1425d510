"""Attention maps made fit to be drawn: checked, scaled to 0..1, and binned where too large."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.errors import InputError, UsageError
from attnviz.records import Sides

Scale = Literal["row", "global"]
SCALES: tuple[Scale, ...] = ("row", "global")

Map = NDArray[np.float64]


DPI = 120.0
"""Pixels an inch of fast pictures."""

LARGEST_PICTURE = 1 << 27
"""Pixels; a picture of more takes gigabytes to draw and no program opens it with ease."""


def check_scale(scale: str) -> None:
    """Raise UsageError where there is no such scale."""
    if scale not in SCALES:
        raise UsageError(f"no scale {scale!r}: choose one of {', '.join(SCALES)}")


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
    """The map as float64 [T, S], after checking that it can be drawn.

    Raises:
        InputError: when its shape does not fit the tokens, it is empty, or not all is finite.
    """
    array = np.asarray(weights, dtype=np.float64)
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


def scaled(weights: Map, scale: str, top: float | None = None) -> tuple[Map, float]:
    """Weights [T, S] as shares of the largest: of each row (``row``) or of all (``global``).

    Args:
        weights: a checked map.
        scale: ``row`` or ``global``.
        top: the weight that counts as 1 under ``global``; the map's largest by default.

    Returns:
        The shares, in 0..1, and the weight that 1 stands for (1.0 under ``row``).

    Raises:
        UsageError: when there is no such scale.
    """
    check_scale(scale)
    if scale == "row":
        largest = weights.max(axis=1, keepdims=True)
        shares = np.divide(weights, largest, out=np.zeros_like(weights), where=largest > 0)
        return np.clip(shares, 0.0, 1.0), 1.0
    limit = float(weights.max()) if top is None else float(top)
    if limit <= 0:
        return np.zeros_like(weights), 0.0
    return np.clip(weights / limit, 0.0, 1.0), limit


def binned(weights: Map, rows: int, columns: int) -> Map:
    """The largest weight of each ``rows`` × ``columns`` block; the last blocks may be smaller."""
    if rows == columns == 1:
        return weights
    by_row = np.maximum.reduceat(weights, np.arange(0, weights.shape[0], rows), axis=0)
    return np.maximum.reduceat(by_row, np.arange(0, weights.shape[1], columns), axis=1)


def tick_step(least: int) -> int:
    """The smallest of 1, 2, 5, 10, 20, 50, ... that is at least ``least``."""
    decade = 1
    while True:
        for digit in (1, 2, 5):
            if digit * decade >= least:
                return digit * decade
        decade *= 10
