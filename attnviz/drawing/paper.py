"""How a figure goes into a paper: its width, fonts and words; the same for every picture.

Figures are drawn by many modules and encoded in one place, so that these settings travel beside
them: :func:`using` holds in the ``with`` block, and who draws asks :func:`current`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from typing import Any

from attnviz.errors import UsageError

BASE_SIZE = 8.0
"""Points of the labels of axes where no size is asked for."""


@dataclass(frozen=True, slots=True)
class Paper:
    """What a paper asks of a figure.

    Attributes:
        width: of the file, in inches, from 0.5 to 50; by default what the picture needs.
        font: the family of all text, such as ``Times New Roman``; by default that of matplotlib's
            ``font.family`` where it was changed, else DejaVu Sans.
        font_size: of the labels of axes, in points, from 2 to 72; all other text in proportion.
        title: in place of the picture's own; empty for none.
        caption: whether the small print stands in the picture.
        name: what the model is called, in place of its path.
        mplstyle: a style of matplotlib's, by its name or file; ``attnviz.drawing.column`` is one
            for a paper's column. What would move things from their places has no effect.

    Raises:
        UsageError: a size out of these bounds.
    """

    width: float | None = None
    font: str | None = None
    font_size: float | None = None
    title: str | None = None
    caption: bool = True
    name: str | None = None
    mplstyle: str | None = None

    def __post_init__(self) -> None:
        if self.width is not None and not 0.5 <= self.width <= 50:
            raise UsageError(
                "{width} is in inches, from 0.5 to 50, not {:g}", self.width, width=...
            )
        if self.font_size is not None and not 2 <= self.font_size <= 72:
            raise UsageError(
                "{font_size} is in points, from 2 to 72, not {:g}", self.font_size, font_size=...
            )

    def titled(self, own: str) -> str:
        """The title of a picture that would have its own."""
        return own if self.title is None else self.title


NAMES = frozenset(field.name for field in fields(Paper))
_PLAIN = Paper()
_CURRENT: ContextVar[Paper] = ContextVar("paper", default=_PLAIN)


def current() -> Paper:
    """What holds for the figure that is drawn now."""
    return _CURRENT.get()


@contextmanager
def using(options: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """In the ``with`` block, draw by those of the options that are fields of :class:`Paper`.

    Yields:
        The other options.
    """
    mine = {name: value for name, value in options.items() if name in NAMES}
    token = _CURRENT.set(Paper(**mine) if mine else current())
    try:
        yield {name: value for name, value in options.items() if name not in NAMES}
    finally:
        _CURRENT.reset(token)
