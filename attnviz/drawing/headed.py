"""A figure under a heading, laid out in inches from its top left corner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.drawing import paper
from attnviz.drawing.charts import GREY
from attnviz.drawing.fonts import Ruler, choose, spelled

MARGIN = 0.2
"""On all sides, in inches."""


_TITLE, _SMALL = 11, 7.5
"""Sizes in points."""
_STEP, _LINE, _BETWEEN = 0.2, 0.14, 0.06
"""From a title's line to the next, from a small line to the next, and between the two: inches."""


class HeadedFigure:
    """A figure that is measured first: its texts, then its width, then its height.

    ``margin``: on all sides, in inches.

    Attributes:
        families: fonts that have the characters of all these texts.
        ruler: measures texts in them.
    """

    def __init__(
        self,
        title: str,
        below: Sequence[str],
        dpi: float,
        texts: Iterable[str] = (),
        margin: float = MARGIN,
    ) -> None:
        self._dpi, self._margin = dpi, margin
        self.families, self.missing = choose([title, *below, *texts])
        self._title, self._below = self.text(title), list(map(self.text, below))
        self.ruler = Ruler(self.families, dpi, bold=len(choose([self._title])[0]) == 1)

    def text(self, text: str) -> str:
        """A text without the characters that no font has."""
        return spelled(text, self.missing)

    def begin(self, wide: float) -> float:
        """So many inches from the top the heading ends, in a figure so many inches wide."""
        self._wide, room, asked = wide, wide - 2 * self._margin, paper.current()
        title, below = asked.titled(self._title), paper.captions(self._below)
        self._titles = self.ruler.wrapped(title, _TITLE, room, title=True) if title else []
        self._lines = [line for text in below for line in self.ruler.wrapped(text, _SMALL, room)]
        return self._margin + (_STEP * len(self._titles) + _LINE * len(self._lines))

    def figure(self, high: float) -> Figure:
        """The figure, so many inches high, with its heading and nothing else."""
        self._high, self._figure = high, Figure(figsize=(self._wide, high), dpi=self._dpi)
        x, y, families = self._margin / self._wide, self._margin, self.families
        for line in self._titles:
            self._figure.text(x, 1 - y / high, line, fontsize=_TITLE, va="top", family=families,
                              fontweight=self.ruler.title_weight)  # fmt: skip
            y += _STEP
        y += _BETWEEN
        for line in self._lines:
            self._figure.text(x, 1 - y / high, line, fontsize=_SMALL, va="top", color=GREY,
                              family=families)  # fmt: skip
            y += _LINE
        return self._figure

    def axes(self, x: float, y: float, wide: float, high: float) -> Axes:
        """Axes by inches from the left and from the top."""
        place = (x / self._wide, 1 - (y + high) / self._high, wide / self._wide, high / self._high)
        return self._figure.add_axes(place)
