"""Attention laid over the picture that it is of: the picture in grey, tinted where weight lies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.media import Picture
from attnviz.drawing.palette import ramp, rgb
from attnviz.drawing.shades import Map, shades
from attnviz.drawing.style import Style

Pixels = NDArray[np.uint8]

DIMMED = 0.75
"""How bright the picture stays where no weight lies."""

STRONGEST = 0.85
"""How much of a pixel is colour where the largest weight lies."""

_LUMA = (0.299, 0.587, 0.114)


def tinted(picture: Picture, shown: Map, palette: str) -> Pixels:
    """The picture with every patch in the colour of its weight.

    Args:
        picture: what the patches are of.
        shown: [rows, columns], where weights stand on the colour scale, 0 to 1.
        palette: the colours.

    Returns:
        uint8, of the picture's shape. A patch that got nothing is grey, darker than it was; the
        more weight, the less of the picture and the more of the palette's colour.
    """
    high, wide = picture.pixels.shape[:2]
    grey = picture.pixels @ np.array(_LUMA) * DIMMED
    whole = shown[np.ix_(_cells(high, picture.rows), _cells(wide, picture.columns))]
    colors = np.array([rgb(color) for color in ramp(palette)], np.float64)
    tint = colors[np.rint(whole * (len(colors) - 1)).astype(int)]
    share = (STRONGEST * np.sqrt(whole))[..., None]
    mixed: Pixels = np.rint((1 - share) * grey[..., None] + share * tint).astype(np.uint8)
    return mixed


def scaled(grids: Sequence[NDArray[np.floating[Any]]], style: Style) -> list[Map]:
    """Where the weights of several heads stand on the colour scale, as a style says."""
    maps = [np.asarray(grid, np.float64) for grid in grids]
    top = max(float(grid.max()) for grid in maps)
    own = style.normalize != "global"  # a picture has no rows of a map
    return [shades(grid, style, float(grid.max()) if own else top) for grid in maps]


def box(picture: Picture, row: int, column: int) -> tuple[int, int, int, int]:
    """The pixels of a patch: top, bottom, left, right."""
    high, wide = picture.pixels.shape[:2]
    rows, columns = _cells(high, picture.rows), _cells(wide, picture.columns)
    (down,), (across,) = np.nonzero(rows == row), np.nonzero(columns == column)
    return int(down[0]), int(down[-1]) + 1, int(across[0]), int(across[-1]) + 1


def shrunk(pixels: NDArray[Any], high: int, wide: int) -> NDArray[Any]:
    """Means over blocks, [high, wide, 3]; pixels repeat where there are too few."""
    for axis, size in ((0, high), (1, wide)):
        length = pixels.shape[axis]
        starts = np.arange(size) * length // size
        if length >= size:
            sums = np.add.reduceat(pixels.astype(np.float64), starts, axis=axis)
            counts = np.diff(np.append(starts, length))
            pixels = sums / counts.reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        else:
            pixels = pixels.take(starts, axis=axis)
    return pixels


def _cells(length: int, count: int) -> NDArray[np.int64]:
    """For each pixel on an axis the patch that it belongs to."""
    return np.arange(length) * count // length
