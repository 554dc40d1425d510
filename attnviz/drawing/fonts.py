"""Fonts for figures: which installed ones, together, can draw a text, and how wide it gets.

They are matplotlib's and the system's; where matplotlib is not installed, all text is in strokes of
our own, and no family is named.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, cast

from attnviz.drawing import paper, strokes
from attnviz.drawing.paper import BASE_FAMILY, first, installed, notice_new_fonts

OWN = find_spec("matplotlib") is None
"""Whether there is no matplotlib, and text is in strokes of our own."""
if not OWN:
    from matplotlib import rcParams, rcParamsDefault
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.font_manager import FontEntry, FontProperties, findfont, fontManager, get_font

_PREFERRED = (
    "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Noto Sans JP",
    "Noto Sans KR", "Source Han Sans SC", "PingFang SC", "Hiragino Sans", "Apple SD Gothic Neo",
    "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "WenQuanYi Micro Hei", "Noto Emoji",
    "Segoe UI Symbol", "Segoe UI Emoji", "Arial Unicode MS",
)  # fmt: skip
_UNUSABLE = re.compile(r"colou?r.*emoji|twemoji|last ?resort|blank|redacted", re.IGNORECASE)
"""Bitmap or layered emoji, which matplotlib cannot draw, and fonts without real glyphs."""


CODED = "shown as code points: characters " + (
    "that need matplotlib to be drawn" if OWN else "missing from every installed font"
)
"""What a picture says where :func:`spelled` changed a text."""

_CONTROLS = {0x2400 + code: code for code in range(0x20)} | {0x2421: 0x7F}
"""What control pictures stand for."""


@lru_cache(maxsize=256)
def _covered(family: str, chars: frozenset[str]) -> frozenset[str]:
    """Those of ``chars`` that a family can draw."""
    try:
        font = get_font(findfont(FontProperties(family=[family]), fallback_to_default=False))
    except (OSError, RuntimeError, ValueError):
        return frozenset()
    return frozenset(char for char in chars if font.get_char_index(ord(char)))


def _candidates() -> list[str]:
    notice_new_fonts()

    def upright(entry: FontEntry) -> bool:
        return entry.style == "normal" and entry.weight in {400, "normal", "regular"}

    upright_names = {entry.name for entry in fontManager.ttflist if upright(entry)}
    usable = {name for name in upright_names if not _UNUSABLE.search(name)} - {BASE_FAMILY}
    first = [name for name in _PREFERRED if name in usable]
    sans = sorted(name for name in usable if "sans" in name.lower())
    return list(dict.fromkeys([*first, *sans, *sorted(usable)]))


def base_family() -> str:
    """Name the family of all text it can draw: the paper's, or that of matplotlib's settings."""
    family = paper.current().family
    if family is not None:
        return installed(family)
    families = rcParams["font.family"]
    if families in (rcParamsDefault["font.family"], [BASE_FAMILY]):
        return BASE_FAMILY
    return first(families)


def choose(texts: Iterable[str]) -> tuple[list[str], frozenset[str]]:
    """Font families that together draw ``texts``, and the characters that none of them has."""
    characters = frozenset(char for text in texts for char in text if not char.isspace())
    if OWN:
        return [""], strokes.missing(characters)
    families = list(dict.fromkeys([base_family(), BASE_FAMILY]))
    missing = characters.difference(*(_covered(family, characters) for family in families))
    if missing:
        for family in _candidates():
            covered = _covered(family, missing)
            if covered:
                families.append(family)
                missing -= covered
            if not missing:
                break
    return families, missing


def spelled(text: str, missing: frozenset[str]) -> str:
    """``text`` with each run of undrawable characters as code points: ``<U+4F60 597D>``."""
    if not missing.intersection(text):
        return text

    def coded(run: re.Match[str]) -> str:
        codes = (_CONTROLS.get(ord(char), ord(char)) for char in run[0])
        return f"<U+{' '.join(f'{code:04X}' for code in codes)}>"

    return re.sub(f"[{re.escape(''.join(missing))}]+", coded, text)


class Ruler:
    """Measures texts in a list of font families.

    Titles are set in bold, unless they need a fallback family: those often come in one weight only.
    """

    def __init__(self, families: list[str], dpi: float, *, bold: bool = True) -> None:
        self.families, self.dpi = families, dpi
        self.title_weight = "bold" if bold else "normal"
        self._widths: dict[tuple[str, float, bool], float] = {}
        self._renderer: Any = None if OWN else cast("Any", RendererAgg)(16, 16, dpi)

    def width(self, text: str, size: float, *, title: bool = False) -> float:
        """Return the width of one line, in inches, at ``size`` points."""
        cached = self._widths.get((text, size, title))
        if cached is not None or not text:
            return cached or 0.0
        if OWN:
            text = spelled(text, strokes.missing(text))
            return strokes.width(text, size * self.dpi / 72, bold=title) / self.dpi
        weight = self.title_weight if title else "normal"
        font = FontProperties(family=self.families, size=size, weight=weight)
        width, _, _ = self._renderer.get_text_width_height_descent(text, font, ismath=False)
        self._widths[text, size, title] = float(width) / self.dpi
        return float(width) / self.dpi

    def widest(self, texts: Iterable[str], size: float) -> float:
        """Return the width of the widest text, in inches."""
        return max((self.width(text, size) for text in texts), default=0.0)

    def wrapped(self, text: str, size: float, room: float, *, title: bool = False) -> list[str]:
        """``text`` in lines of at most ``room`` inches, broken at spaces."""
        words, lines = text.split(" "), []
        while words:
            while len(words) > 1 and not words[0]:
                del words[0]
            fitting = bisect_right(  # no measuring of every beginning of a line
                range(2, len(words) + 1),
                room,
                key=lambda count: self.width(" ".join(words[:count]), size, title=title),
            )
            lines.append(" ".join(words[: fitting + 1]))
            del words[: fitting + 1]
        return lines
