"""What the tiles that a processor makes of a picture show of it: measured.

The same processor gets a picture of the same size whose red and green are the column and the row of
a pixel, and what comes back says where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.core.media import Box

Pixels = NDArray[np.uint8]
_FIRST, _STEP, MOST = 255, 4, 24
"""Blue of no picture, how much less it is of each, and how many there may be; padding is darker."""
NEAR = 0.03
"""A part of a picture's width or height: edges that are nearer to each other are the same."""


def unscaled(values: Tensor, processor: Any) -> Pixels:
    """Pixels [3, height, width] as a processor scaled them, back as uint8 [height, width, 3]."""
    pixels = values.float()
    if getattr(processor, "do_normalize", False):
        mean, std = (
            torch.tensor(getattr(processor, name)).float().view(-1, 1, 1)
            for name in ("image_mean", "image_std")
        )
        pixels = pixels * std + mean
    factor = getattr(processor, "rescale_factor", None)
    if getattr(processor, "do_rescale", False) and factor:
        pixels = pixels / factor
    shown = pixels.round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0)
    return np.ascontiguousarray(shown.numpy())


def ramp(size: tuple[int, int], number: int) -> Pixels:
    """A picture of some width and height whose colours say where a pixel is.

    Red is the column, green the row, blue the ``number`` of the picture, from 1.
    """
    wide, high = size
    pixels = np.empty((high, wide, 3), np.uint8)
    pixels[..., 0] = np.rint((np.arange(wide) + 0.5) / wide * 255)
    pixels[..., 1] = np.rint((np.arange(high) + 0.5) / high * 255)[:, None]
    pixels[..., 2] = _FIRST - _STEP * number
    return pixels


def tiles_of(
    values: Tensor, sizes: Sequence[tuple[int, int]], processor: Any
) -> list[tuple[int, Box] | None] | None:
    """Of which picture tiles are, and what of it they show.

    Returns: of every tile the picture's number, and a box in its pixels; None for a tile that shows
    none. None in place of all where it cannot be told.
    """
    tiles = list[tuple[int, Box] | None]()
    for tile in values.flatten(0, -4):
        pixels = unscaled(tile, processor)
        number = (_FIRST + _STEP // 2 - int(pixels[..., 2].max())) // _STEP
        if number > MOST:
            tiles.append(None)
            continue
        if not 1 <= number <= len(sizes):
            return None
        box = _box(pixels, number, sizes[number - 1])
        if box is None:
            return None
        tiles.append((number, box))
    return tiles


def _box(tile: Pixels, number: int, size: tuple[int, int]) -> Box | None:
    """What a tile shows of the picture whose colours are places."""
    real = abs(tile[..., 2].astype(int) - (_FIRST - _STEP * number)) <= 1
    edges = []
    for axis, length in enumerate(size):  # red and width, green and height
        inside = real.any(axis)
        counts = np.maximum(real.sum(axis), 1)
        means = np.where(real, tile[..., axis], 0).sum(axis) / counts / 255 * length
        places = np.nonzero(inside)[0]
        places = places[1:-1] if len(places) > 4 else places  # edges are what resampling makes up
        if len(places) < 2:
            return None
        slope, start = np.polyfit(places + 0.5, means[places], 1)
        if slope <= 0:
            return None
        ends = (start, start + slope * tile.shape[1 - axis])
        edges.append([_snapped(end, length) for end in ends])
    (left, right), (top, bottom) = edges
    return left, top, right, bottom


def _snapped(edge: float, length: int) -> float:
    """The picture's own edge where an edge is as good as that, else to a quarter of a pixel."""
    for end in (0.0, float(length)):
        if abs(edge - end) < NEAR * length:
            return end
    return round(float(edge) * 4) / 4
