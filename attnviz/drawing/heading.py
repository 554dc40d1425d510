"""What stands above the parts of a figure: a bold title, and small grey lines below it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from attnviz.drawing import paper
from attnviz.drawing.fonts import Ruler

GREY = "#555555"
_TITLE, _SMALL = 11, 7.5
"""Sizes in points."""
_STEP, _LINE, _BETWEEN = 0.2, 0.14, 0.06
"""From a title's line to the next, from a small line to the next, and between the two: inches."""


class Heading:
    """A title and lines, wrapped to the width of a figure.

    Attributes:
        high: what they take, in inches.

    Args:
        ruler: with the figure's font families.
        title: without characters that cannot be drawn, as ``below``.
        below: sentences, each on lines of its own.
        wide: the figure, in inches.
        margin: of the figure on all sides, in inches.
    """

    def __init__(
        self, ruler: Ruler, title: str, below: Sequence[str], wide: float, margin: float
    ) -> None:
        self._ruler, self._margin = ruler, margin
        room = wide - 2 * margin
        asked = paper.current()
        title, below = asked.titled(title), below if asked.caption else ()
        self._titles = ruler.wrapped(title, _TITLE, room, title=True) if title else []
        self._lines = [line for text in below for line in ruler.wrapped(text, _SMALL, room)]
        self.high = _STEP * len(self._titles) + _LINE * len(self._lines)

    def draw(self, figure: Figure) -> None:
        """Write them at the top of the figure."""
        wide, high = figure.get_size_inches()
        x, y = self._margin / wide, self._margin
        families = self._ruler.families
        for line in self._titles:
            figure.text(x, 1 - y / high, line, fontsize=_TITLE, va="top", family=families,
                        fontweight=self._ruler.title_weight)  # fmt: skip
            y += _STEP
        y += _BETWEEN
        for line in self._lines:
            figure.text(x, 1 - y / high, line, fontsize=_SMALL, va="top", color=GREY,
                        family=families)  # fmt: skip
            y += _LINE
