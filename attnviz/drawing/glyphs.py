"""Texts as small coverage bitmaps, made once for each text: what the fast pictures paste.

Glyphs come from matplotlib's own text renderer (FreeType: kerning, fallback families, shaping
where matplotlib shapes), so a label looks the same as in a figure; without matplotlib from
:mod:`attnviz.drawing.strokes`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from attnviz.drawing import palette as palettes
from attnviz.drawing import strokes
from attnviz.drawing.fonts import OWN, choose, spelled
from attnviz.drawing.palette import masked_color, ramp, rgb
from attnviz.drawing.png import Pixels
from attnviz.drawing.shades import Map, binned, binned_mask, binned_unselected, hidden, unselected

if not OWN:
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontProperties

_ABOVE, _BELOW = 1.25, 0.5
"""Room above and below the baseline, in ems; enough for stacked accents and CJK."""
_WIDEST = 1.3  # the widest a character gets, in ems
_SPACE = 0.41  # from one word's ink to the next, in ems


@dataclass(frozen=True, slots=True)
class Label:
    """A text as a bitmap."""

    # coverage, uint8 [height, width], 0 paper to 255 ink; cut to the ink sideways
    ink: NDArray[np.uint8]
    baseline: int  # the row of the baseline, from the top
    complete: bool  # False when some character had to be spelled as a code point

    @property
    def width(self) -> int:
        """In pixels."""
        return int(self.ink.shape[1])

    def clipped(self, width: int) -> Label:
        """At most so many pixels of it."""
        return self if self.width <= width else replace(self, ink=self.ink[:, :width])


@lru_cache(maxsize=32768)
def label(text: str, size: float, dpi: float, *, bold: bool = False) -> Label:
    """Rasterize one line of text; ``size`` in points."""
    families, missing = choose([text])
    em = size * dpi / 72
    baseline = round(em * _ABOVE)
    height = baseline + round(em * _BELOW)
    drawable = spelled(text, missing)
    if OWN:
        ink = strokes.ink(drawable, em, (baseline, height), bold=bold)
        return Label(ink, baseline, not missing)
    font = _font(tuple(families), size, bold and len(families) == 1)
    renderer = _renderer(1 + int(em * (len(drawable) + 2) * _WIDEST) // 512, height, dpi)
    renderer.clear()
    renderer.draw_text(renderer.new_gc(), round(em), baseline, drawable, font, 0)
    coverage = np.asarray(renderer.buffer_rgba())[..., 3]
    columns = np.flatnonzero(coverage.any(0)).tolist()
    first, last = (columns[0], columns[-1] + 1) if columns else (0, 0)
    ink = coverage[:, first:last].copy()
    ink.flags.writeable = False
    return Label(ink, baseline, not missing)


def line(text: str, size: float, dpi: float, *, bold: bool = False) -> Label:
    """One line set word by word, so that lines that share words share bitmaps."""
    words = [label(word, size, dpi, bold=bold) for word in text.split(" ") if word]
    if not words:
        return label("", size, dpi)
    gap = np.zeros((words[0].ink.shape[0], _space(size, dpi)), np.uint8)
    parts = [words[0].ink]
    for word in words[1:]:
        parts += [gap, word.ink]
    return Label(np.hstack(parts), words[0].baseline, all(word.complete for word in words))


def wrapped(text: str, size: float, dpi: float, room: int, *, bold: bool = False) -> list[str]:
    """``text`` in lines of at most ``room`` pixels, broken at spaces."""
    space = _space(size, dpi)
    lines: list[str] = []
    length = 0
    for word in text.split(" "):
        width = label(word, size, dpi, bold=bold).width
        if not lines or length + space + width > room:
            lines.append(word)
            length = width
        else:
            lines[-1] += f" {word}"
            length += space + width
    return lines


def _space(size: float, dpi: float) -> int:
    return round(_SPACE * size * dpi / 72)


@lru_cache(maxsize=1024)
def _font(families: tuple[str, ...], size: float, bold: bool) -> FontProperties:
    return FontProperties(
        family=list(families), size=size, weight="bold" if bold else "normal", style="normal"
    )


@lru_cache(maxsize=64)
def _renderer(width: int, height: int, dpi: float) -> Any:
    """Return a canvas of ``width`` times 512 pixels, used again for every text of that size."""
    return cast("Any", RendererAgg)(512 * width, height, dpi)


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
    """Give 256 colours of a picture, uint8 [256, 3]; UsageError where there is no such palette."""
    cells = (*ramp(palette, LEVELS), palettes.UNSELECTED, masked_color(palette))
    weights = [rgb(color) for color in cells]
    greys = [(17 * step,) * 3 for step in range(16)]
    table = np.array(weights + greys, np.uint8)
    table.flags.writeable = False
    return table


def levels(scaled: Map, weights: NDArray[Any], rows: int, columns: int) -> Pixels:
    """Palette indices of a map's blocks, uint8, from shades; ``weights`` say what is masked."""
    indices = np.rint(binned(scaled, rows, columns) * (LEVELS - 1)).astype(np.uint8)
    mask, left_out = hidden(weights), unselected(weights)
    if mask is not None:
        indices[binned_mask(mask, rows, columns)] = MASKED
        if left_out is not None:
            indices[binned_unselected(left_out, mask, rows, columns)] = UNSELECTED
    return indices


def paste(picture: Pixels, text: Label, baseline: int, x: int, ink: Pixels = BLACK_INK) -> None:
    """Put a label with its baseline on a row and its left edge at ``x``."""
    blend(picture, text.ink, baseline - text.baseline, x, ink)


def blend(picture: Pixels, coverage: Pixels, y: int, x: int, ink: Pixels = BLACK_INK) -> None:
    """Put coverage on the greys of a picture; what lies outside is left out."""
    target, inside = _shared(picture, coverage, y, x)
    np.minimum(target, ink[inside], out=target)


def write(picture: Pixels, coverage: Pixels, y: int, x: int, color: str) -> None:
    """Put coverage of a colour on a picture of colours, uint8 [height, width, 3]."""
    target, inside = _shared(picture, coverage, y, x)
    share = inside[..., None] / 255
    target[...] = np.rint(target * (1 - share) + np.array(rgb(color)) * share)


def _shared(picture: Pixels, coverage: Pixels, y: int, x: int) -> tuple[Pixels, Pixels]:
    """Give the part of a picture under a bitmap at (y, x), and of the bitmap the part on it."""
    top, left = max(y, 0), max(x, 0)
    bottom = max(min(y + coverage.shape[0], picture.shape[0]), top)
    right = max(min(x + coverage.shape[1], picture.shape[1]), left)
    return picture[top:bottom, left:right], coverage[top - y : bottom - y, left - x : right - x]


def frame(picture: Pixels, y: int, x: int, height: int, width: int) -> None:
    """Draw a grey line around a box, outside of it."""
    picture[y - 1, x - 1 : x + width + 1] = GREY
    picture[y + height, x - 1 : x + width + 1] = GREY
    picture[y - 1 : y + height + 1, x - 1] = GREY
    picture[y - 1 : y + height + 1, x + width] = GREY
