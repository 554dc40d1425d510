"""Texts as small coverage bitmaps, made once for each text: what the fast pictures paste.

Glyphs come from matplotlib's FreeType (kerning, fallback families, shaping where matplotlib
shapes), hinted as in its figures, so a label looks the same as there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import get_hinting_flag
from matplotlib.font_manager import FontProperties, findfont, get_font
from numpy.typing import NDArray

from attnviz.render.fonts import choose, spelled

_ABOVE, _BELOW = 1.25, 0.5
"""Room above and below the baseline, in ems; enough for stacked accents and CJK."""
_SPACE = 0.41
"""From one word's ink to the next, in ems."""


@dataclass(frozen=True, slots=True)
class Label:
    """A text as a bitmap.

    Attributes:
        ink: coverage, uint8 [height, width], 0 paper to 255 ink; cut to the ink sideways.
        baseline: the row of the baseline, from the top.
        complete: False when some character had to be spelled as a code point.
    """

    ink: NDArray[np.uint8]
    baseline: int
    complete: bool

    @property
    def width(self) -> int:
        """In pixels."""
        return int(self.ink.shape[1])


@lru_cache(maxsize=32768)
def label(text: str, size: float, dpi: float, *, bold: bool = False) -> Label:
    """Rasterize one line of text.

    Args:
        text: visible text (see :func:`attnviz.render.labels.visible`).
        size: in points.
        dpi: pixels an inch.
        bold: where the base family has all its characters; fallback families often lack it.
    """
    families, missing = choose([text])
    em = size * dpi / 72
    baseline = round(em * _ABOVE)
    height = baseline + round(em * _BELOW)
    font = _font(tuple(families), bold and len(families) == 1)
    font.clear()
    font.set_size(size, dpi)
    font.set_text(spelled(text, missing), 0.0, flags=_hinting())
    font.draw_glyphs_to_bitmap(antialiased=True)
    image = np.asarray(font.get_image())
    columns = np.flatnonzero(image.any(0)).tolist() if image.size else []
    if not columns:
        return Label(np.zeros((height, 0), np.uint8), baseline, not missing)
    image = image[:, columns[0] : columns[-1] + 1]
    ink = np.zeros((height, image.shape[1]), np.uint8)
    top = baseline + round(font.get_descent() / 64) - image.shape[0]
    first, last = max(top, 0), min(top + image.shape[0], height)
    ink[first:last] = image[first - top : last - top]
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
    used = 0
    for word in text.split(" "):
        width = label(word, size, dpi, bold=bold).width
        if not lines or used + space + width > room:
            lines.append(word)
            used = width
        else:
            lines[-1] += f" {word}"
            used += space + width
    return lines


def _space(size: float, dpi: float) -> int:
    return round(_SPACE * size * dpi / 72)


@lru_cache(maxsize=256)
def _font(families: tuple[str, ...], bold: bool) -> Any:
    """The first family's font with the others behind it, for characters it lacks."""
    weight = "bold" if bold else "normal"
    paths = [findfont(FontProperties(family=[name], weight=weight)) for name in families]
    return get_font(paths)


@lru_cache(maxsize=1)
def _hinting() -> Any:
    """The hinting of matplotlib itself, whatever the user's style."""
    with mpl.rc_context({"text.hinting": mpl.rcParamsDefault["text.hinting"]}):
        flag: Any = get_hinting_flag
        return flag()
