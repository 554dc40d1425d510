"""A figure under a heading, laid out in inches from its top left corner."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from attnviz.drawing.fonts import Ruler, choose, spelled
from attnviz.drawing.heading import Heading

MARGIN = 0.2
"""On all sides, in inches."""


class HeadedFigure:
    """A figure that is measured first: its texts, then its width, then its height.

    Args:
        title: what stands above.
        below: small lines under the title.
        dpi: dots per inch.
        texts: others that are drawn, for which fonts are chosen too.
        margin: on all sides, in inches.

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
        self._wide = wide
        self._heading = Heading(self.ruler, self._title, self._below, wide, self._margin)
        return self._margin + self._heading.high

    def figure(self, high: float) -> Figure:
        """The figure, so many inches high, with its heading and nothing else."""
        self._high, self._figure = high, Figure(figsize=(self._wide, high), dpi=self._dpi)
        self._heading.draw(self._figure)
        return self._figure

    def axes(self, x: float, y: float, wide: float, high: float) -> Axes:
        """Axes by inches from the left and from the top."""
        place = (x / self._wide, 1 - (y + high) / self._high, wide / self._wide, high / self._high)
        return self._figure.add_axes(place)
