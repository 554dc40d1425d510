"""What charts share: named bars, intervals as lines, tables of cells, arrows that go round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.core.result import Interval
from attnviz.drawing import paper
from attnviz.drawing.fonts import OWN, Ruler, choose, spelled
from attnviz.drawing.palette import ink

if TYPE_CHECKING or not OWN:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle
else:
    from attnviz.drawing.plain import Axes, Figure, Rectangle

INK, GREY = "#1b1b1b", "#555555"
"""Of what is drawn over colours, such as intervals; and of small lines and axes."""


def open_sides(axes: Axes, *sides: str) -> None:
    """Axes without their lines at these sides, or at all of them."""
    for side in sides or ("left", "right", "top", "bottom"):
        axes.spines[side].set_visible(False)


def name_axes(axes: Axes, x: str, y: str, **legend: Any) -> None:
    """Say what both axes of a plot of curves or points are, with a legend, in open sides."""
    axes.set_xlabel(x, fontsize=7)
    axes.set_ylabel(y, fontsize=7)
    axes.tick_params(labelsize=7)
    axes.legend(**{"fontsize": 7, "frameon": False, **legend})
    open_sides(axes, "top", "right")


def name_bars(axes: Axes, names: Sequence[str], label: str, **fonts: Any) -> None:
    """Name bars that lie under each other, at 0, 1, 2, ..., and say below what they show."""
    axes.set_yticks(range(len(names)), names, **fonts)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel(label, fontsize=7)
    open_sides(axes, "top", "right", "left")


def share_bars(
    axes: Axes, bars: Iterable[tuple[Interval, str]], ys: Iterable[float], height: float
) -> None:
    """Draw shares as bars in percent, each in its colour with its interval."""
    for (share, color), y in zip(bars, ys, strict=False):
        axes.barh(y, 100 * (share.value or 0.0), height=height, color=color)
        interval(axes, (share.low, share.high), y, times=100)


def interval(
    axes: Axes,
    ends: tuple[float | None, float | None],
    position: float,
    *,
    times: float = 1.0,
    color: str = INK,
    upright: bool = False,
) -> None:
    """Draw an interval from end to end, at a place of the other axis; none where unknown.

    ``times``: what its ends are multiplied by, such as 100 for percent.
    """
    low, high = ends
    if low is not None and high is not None:
        along, across = [times * low, times * high], [position, position]
        axes.plot(*((across, along) if upright else (along, across)), color=color, linewidth=1)


def cell(axes: Axes, x: int, y: int, paint: str, text: str, size: float = 6, **fonts: Any) -> None:
    """Draw a cell of 1 × 1 with a text in its middle, in an ink that reads on it."""
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=paint, edgecolor="white"))
    if text:
        axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=size,
                  color=ink(paint), **fonts)  # fmt: skip


def name_cells(axes: Axes, columns: Sequence[str], rows: Sequence[str]) -> None:
    """Name the columns of a table of cells above it, and its lines beside it."""
    axes.set_xlim(0, len(columns))
    axes.set_ylim(len(rows), 0)
    axes.set_xticks([n + 0.5 for n in range(len(columns))], columns)
    axes.set_yticks([n + 0.5 for n in range(len(rows))], rows)
    axes.tick_params(length=0, labelsize=7)
    axes.xaxis.tick_top()
    open_sides(axes)


def color_bar(
    figure: Any, axes: Any, colors: Any, ticks: Sequence[tuple[float, str]], label: str, size: float
) -> None:
    """Draw a colour bar from 0 to 1 with ticks, and what it shows in letters of ``size`` points."""
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize

    bar = figure.colorbar(ScalarMappable(Normalize(0, 1), colors), cax=axes)
    places, texts = zip(*ticks, strict=True)
    bar.set_ticks(list(places), labels=list(texts))
    bar.outline.set_edgecolor(GREY)
    axes.tick_params(labelsize=7, length=2, width=0.4, color=GREY)
    bar.set_label(label, fontsize=size, color=GREY)


def foot(figure: Any, lines: Sequence[str], margin: float, step: float) -> None:
    """Write lines of small print from the bottom up, ``step`` inches apart."""
    width, height = figure.get_size_inches()
    for number, line in enumerate(reversed(lines)):
        figure.text(margin / width, (margin + number * step) / height, line, fontsize=7, color=GREY,
                    va="bottom")  # fmt: skip


Point = tuple[float, float]
OTHERS = tuple(turn * away for away in (0.1, 0.2, 0.3, 0.4, 0.5) for turn in (1, -1))
"""By how much an arrow is bent otherwise where something is in its way."""


def clear_bend(
    start: Point,
    end: Point,
    usual: float,
    room: float,
    nodes: Sequence[Point],
    labels: Sequence[Point] = (),
) -> float:
    """Bend an arrow as it would be, else so that nothing, or few nodes, are in its way."""
    first, last = np.array(start), np.array(end)
    across = np.array([end[1] - start[1], start[0] - end[0]])
    along = np.linspace(0, 1, 65)[:, None]

    def least(bend: float, obstacles: Sequence[Point]) -> float:
        control = (first + last) / 2 + bend * across
        curve = (1 - along) ** 2 * first + 2 * along * (1 - along) * control + along**2 * last
        distances = np.linalg.norm(curve[:, None] - np.array(obstacles).reshape(-1, 2), axis=-1)
        return float(distances.min(initial=np.inf))

    bends = [usual, *(usual + step for step in OTHERS)]
    clear = [bend for bend in bends if least(bend, nodes) > room]
    if not clear:
        return max(bends, key=lambda bend: least(bend, nodes))
    return next((bend for bend in clear if least(bend, labels) > room / 2), clear[0])


MARGIN = 0.2  # on all sides, in inches


_TITLE, _SMALL = 11, 7.5  # sizes in points
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
        """Return a text without the characters that no font has."""
        return spelled(text, self.missing)

    def begin(self, width: float) -> float:
        """So many inches from the top the heading ends, in a figure so many inches wide."""
        self._wide, room, sheet = width, width - 2 * self._margin, paper.current()
        title, below = sheet.titled(self._title), paper.captions(self._below)
        self._titles = self.ruler.wrapped(title, _TITLE, room, title=True) if title else []
        self._lines = [line for text in below for line in self.ruler.wrapped(text, _SMALL, room)]
        return self._margin + (_STEP * len(self._titles) + _LINE * len(self._lines))

    def figure(self, height: float) -> Figure:
        """Return the figure, so many inches high, with its heading and nothing else."""
        self._high, self._figure = height, Figure(figsize=(self._wide, height), dpi=self._dpi)
        x, y, families = self._margin / self._wide, self._margin, self.families
        for line in self._titles:
            self._figure.text(x, 1 - y / height, line, fontsize=_TITLE, va="top", family=families,
                              fontweight=self.ruler.title_weight)  # fmt: skip
            y += _STEP
        y += _BETWEEN
        for line in self._lines:
            self._figure.text(x, 1 - y / height, line, fontsize=_SMALL, va="top", color=GREY,
                              family=families)  # fmt: skip
            y += _LINE
        return self._figure

    def axes(self, x: float, y: float, width: float, height: float) -> Axes:
        """Axes by inches from the left and from the top."""
        across, down = self._wide, self._high
        bounds = (x / across, 1 - (y + height) / down, width / across, height / down)
        return self._figure.add_axes(bounds)
