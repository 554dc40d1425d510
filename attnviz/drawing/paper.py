"""How a figure goes into a paper: its width, fonts and words; the same for every picture.

Figures are drawn by many modules and encoded in one place, so that these settings travel beside
them: :func:`using` holds in the ``with`` block, and who draws asks :func:`current`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from attnviz.core.settings import Settings, setting
from attnviz.core.threads import holding
from attnviz.errors import UsageError

BASE_SIZE = 8.0  # points of the labels of axes where no size is asked for
BASE_FAMILY = "DejaVu Sans"
"""Comes with matplotlib; has Latin, Greek, Cyrillic, Arabic, Hebrew and most symbols."""


PAPER = "For papers"

_LENGTH = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([a-z]*)\s*")
_FONT = re.compile(r"\s*(.*?)\s*(?:(?<![^\s])(\d+\.?\d*|\.\d+)\s*pt)?\s*")
"""A family, a size, or both."""
SMALLEST, _LARGEST = 2, 72  # points of the labels of axes that somebody can read
_UNITS = {"": 72.0, "in": 72.0, "cm": 72 / 2.54, "mm": 72 / 25.4, "pt": 1.0}
"""Points of each unit of length; TeX's point is a 0.4 % smaller one."""


_WIDE = 15.0  # inches of a page; a larger number without a unit is more likely in millimetres


def _inches(text: str) -> float:
    """Return a length with its unit, in inches; UsageError for what is none, or needs a unit."""
    length = _LENGTH.fullmatch(text)
    if length is not None and not length[2] and float(length[1]) > _WIDE:
        raise UsageError(f"{text} of what? write {text}mm, {text}pt or {text}in")
    if length is None or length[2] not in _UNITS:
        raise UsageError(f"{text[:20]!r} is no length; write 3.3in, 84mm, 8.4cm or 240pt")
    return float(length[1]) * _UNITS[length[2]] / 72


@cache
def notice_new_fonts() -> None:
    """Add fonts that were installed after matplotlib made its list, which it keeps for good."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    listed = {entry.fname for entry in fontManager.ttflist}
    for path in sorted(set(findSystemFonts()) - listed):
        with suppress(Exception):  # a broken font may raise anything
            fontManager.addfont(path)


def installed(family: str) -> str:
    """Return the family as it calls itself."""
    notice_new_fonts()
    try:
        return first([family], fallback=False)
    except ValueError:
        raise UsageError(
            "no font {!r} is installed; name a family such as {!r}", family, BASE_FAMILY
        ) from None


def first(families: Sequence[str], *, fallback: bool = True) -> str:
    """Return the first family that is installed; else matplotlib's own, or ValueError."""
    from matplotlib.font_manager import FontProperties, findfont, get_font

    path = findfont(FontProperties(family=families), fallback_to_default=fallback)
    return str(get_font(path).family_name)


@dataclass(frozen=True)
class Paper(Settings, panel=PAPER):
    """What a paper asks of a figure; what is None is as the picture has it."""

    width: float | None = setting(
        None,
        "Width of the file in inches: 3.3 or, on the command line, 3.3in, 84mm, 8.4cm, 240pt.",
        metavar="LENGTH",
        shown="as the picture needs",
        parser=_inches,
        least=0.5,
        most=50,
    )
    font: str | None = setting(
        None,
        "Font of all text: 8pt, 'Times New Roman', or 'Times New Roman 8pt'. The size is that of "
        "axis labels, with other text in proportion.",
        metavar="FONT",
    )
    title: str | None = setting(
        None, "Title in place of the picture's own; '' for none.", metavar="TEXT"
    )
    caption: bool = setting(True, "Draw no small print.", shown="")
    name: str | None = setting(
        None, "What to call the model, in place of its path.", metavar="NAME"
    )
    mplstyle: str | None = setting(
        None,
        "A style of matplotlib's, by name or file; attnviz.drawing.column is for a paper's column.",
        metavar="STYLE",
    )

    def options(self) -> dict[str, Any]:
        """Return what was asked for, as pictures take it."""
        return {name: getattr(self, name) for name in self.changed()}

    @property
    def family(self) -> str | None:
        """The font family of all text."""
        return self._font[0]

    @property
    def points(self) -> float | None:
        """The size of the labels of axes."""
        return self._font[1]

    @property
    def _font(self) -> tuple[str | None, float | None]:
        family, size = _FONT.fullmatch(self.font or "").groups()  # type: ignore[union-attr]
        return family or None, None if size is None else float(size)

    def check(self) -> None:
        """Raise UsageError for a size of text that nobody can read, or a font that is not there."""
        if self.points is not None and not SMALLEST <= self.points <= _LARGEST:
            raise UsageError(
                "{font} has a size from {}pt to {}pt, not {:g}pt",
                SMALLEST,
                _LARGEST,
                self.points,
                font=...,
            )
        if self.family is not None:
            installed(self.family)

    def titled(self, usual: str) -> str:
        """Return the title of a picture that would have its own."""
        return usual if self.title is None else self.title


NAMES = frozenset(field.name for field in fields(Paper))
_PLAIN = Paper()
_CURRENT: ContextVar[Paper] = ContextVar("paper", default=_PLAIN)


def current() -> Paper:
    """Return what holds for the figure that is drawn now."""
    return _CURRENT.get()


def origin_of(result: Any) -> str:
    """Return what makes a result again, as it says itself; empty where it says nothing of it."""
    origin = getattr(result, "origin", None)
    return str(origin()) if callable(origin) else ""


_BELOW: ContextVar[str] = ContextVar("below", default="")


def below(line: str) -> AbstractContextManager[object]:
    """In the ``with`` block, small print ends with this line; see :func:`captions`."""
    return holding(_BELOW, line)


def captions(lines: Sequence[str]) -> list[str]:
    """Return the small print of the figure that is drawn now, and what makes its result again."""
    return [line for line in (*lines, _BELOW.get()) if line] if current().caption else []


@contextmanager
def using(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In the ``with`` block, draw by those of the options that are fields of :class:`Paper`."""
    mine = {name: value for name, value in options.items() if name in NAMES}
    with holding(_CURRENT, Paper(**mine) if mine else current()):
        yield {name: value for name, value in options.items() if name not in NAMES}
