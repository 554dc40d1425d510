"""What fast pictures are painted with: their 256 colours, and labels pasted on greys.

A pixel is a palette index. The first :data:`LEVELS` are colours of the sequential palette, from a
weight of 0 to the largest; then come the colours of keys that were not selected and of masked
cells, and sixteen greys from black to white for everything else.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from attnviz.drawing import palette as palettes
from attnviz.drawing.glyphs import Label
from attnviz.drawing.palette import masked_color, ramp, rgb
from attnviz.drawing.png import Pixels

LEVELS = 238
"""Palette indices below this are weights: i stands at i / (LEVELS - 1) of the colour scale."""

UNSELECTED, MASKED = 238, 239
"""The index of keys that an indexer did not select, and of those that are not allowed."""

WHITE, BLACK, GREY = 255, 240, 245
"""Indices of the sixteen greys, 240 (black) to 255 (white); GREY is #555555."""

BLACK_INK = (WHITE - np.round(np.arange(256) * (WHITE - BLACK) / 255)).astype(np.uint8)
GREY_INK = (WHITE - np.round(np.arange(256) * (WHITE - GREY) / 255)).astype(np.uint8)


@lru_cache(maxsize=16)
def colors(palette: str) -> Pixels:
    """The 256 colours of a picture, uint8 [256, 3]; UsageError where there is no such palette."""
    cells = (*ramp(palette, LEVELS), palettes.UNSELECTED, masked_color(palette))
    weights = [rgb(color) for color in cells]
    greys = [(17 * step,) * 3 for step in range(16)]
    table = np.array(weights + greys, np.uint8)
    table.flags.writeable = False
    return table


def paste(picture: Pixels, text: Label, baseline: int, x: int, ink: Pixels = BLACK_INK) -> None:
    """Put a label with its baseline on a row and its left edge at ``x``."""
    blend(picture, text.ink, baseline - text.baseline, x, ink)


def blend(picture: Pixels, coverage: Pixels, y: int, x: int, ink: Pixels = BLACK_INK) -> None:
    """Put coverage on the greys of a picture; what lies outside is left out."""
    top, left = max(y, 0), max(x, 0)
    bottom = min(y + coverage.shape[0], picture.shape[0])
    right = min(x + coverage.shape[1], picture.shape[1])
    if top >= bottom or left >= right:
        return
    target = picture[top:bottom, left:right]
    np.minimum(target, ink[coverage[top - y : bottom - y, left - x : right - x]], out=target)


def frame(picture: Pixels, y: int, x: int, high: int, wide: int) -> None:
    """A grey line around a box, outside of it."""
    picture[y - 1, x - 1 : x + wide + 1] = GREY
    picture[y + high, x - 1 : x + wide + 1] = GREY
    picture[y - 1 : y + high + 1, x - 1] = GREY
    picture[y - 1 : y + high + 1, x + wide] = GREY
