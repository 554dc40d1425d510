"""Font families that are installed, by name."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import cache

from matplotlib.font_manager import FontProperties, findfont, findSystemFonts, fontManager, get_font

from attnviz.errors import UsageError

BASE_FAMILY = "DejaVu Sans"
"""Comes with matplotlib; has Latin, Greek, Cyrillic, Arabic, Hebrew and most symbols."""


@cache
def notice_new_fonts() -> None:
    """Add fonts that were installed after matplotlib made its list, which it keeps for good."""
    known = {entry.fname for entry in fontManager.ttflist}
    for path in sorted(set(findSystemFonts()) - known):
        with contextlib.suppress(Exception):  # a broken font may raise anything
            fontManager.addfont(path)


def installed(family: str) -> str:
    """The family as it calls itself."""
    notice_new_fonts()
    try:
        return first([family], fallback=False)
    except ValueError:
        raise UsageError(
            "no font {!r} is installed; name a family such as {!r}", family, BASE_FAMILY
        ) from None


def first(families: Sequence[str], *, fallback: bool = True) -> str:
    """The first family that is installed; else matplotlib's own, or ValueError."""
    path = findfont(FontProperties(family=families), fallback_to_default=fallback)
    return str(get_font(path).family_name)
