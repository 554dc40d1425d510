"""A drawing surface for diagrams: boxes, arrows, curves and text on one matplotlib axes."""

from __future__ import annotations

from typing import Any, NamedTuple

from matplotlib import patheffects
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, PathPatch, Polygon, Rectangle
from matplotlib.path import Path

from attnviz.drawing.palette import ink
from attnviz.features.shapes.drawing.colours import MIXED, NEUTRAL

INK, SOFT = MIXED, "#6b7280"
SCALE = 0.034
"""Inches a unit."""


class Box(NamedTuple):
    """A rectangle; y grows downwards."""

    x: float
    y: float
    width: float
    height: float

    @property
    def centre(self) -> float:
        """The middle, across."""
        return self.x + self.width / 2

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.y + self.height

    def pull(self, x: float) -> float:
        """The point of the lower edge that is nearest to ``x``."""
        inset = min(4.0, self.width / 2)
        return min(max(x, self.x + inset), self.x + self.width - inset)


class Scene:
    """A figure without axes, in units of which y grows downwards."""

    def __init__(self, left: float, right: float, top: float, bottom: float) -> None:
        self.left, self.right, self.top = left, right, top
        self.figure = Figure(figsize=((right - left) * SCALE, (bottom - top) * SCALE))
        self.axes = self.figure.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set_axis_off()
        self.axes.set_xlim(left, right)
        self.axes.set_ylim(bottom, top)

    def crop(self, bottom: float) -> None:
        """End the page here."""
        self.figure.set_size_inches((self.right - self.left) * SCALE, (bottom - self.top) * SCALE)
        self.axes.set_ylim(bottom, self.top)

    def title(self, text: str, y: float) -> None:
        """The heading, at the left."""
        self.text(self.left + 4, y, text, size=12, bold=True, align="left")

    def rect(self, x: float, y: float, width: float, height: float, colour: str) -> None:
        """A filled rectangle."""
        self.axes.add_patch(Rectangle((x, y), width, height, facecolor=colour, linewidth=0))

    def frame(self, x: float, y: float, width: float, height: float) -> None:
        """An outline."""
        self.axes.add_patch(
            Rectangle((x, y), width, height, fill=False, edgecolor=INK, linewidth=0.7)
        )

    def bar(self, x: float, y: float, width: float, height: float, colour: str, text: str) -> Box:
        """A filled rectangle with text in it, or beside it where it is too narrow."""
        self.rect(x, y, width, height, colour)
        if text and width > 2.3 * len(text):
            self.text(x + width / 2, y + height / 2, text, size=8, colour=ink(colour))
        elif text:
            self.text(x + width + 3, y + height / 2, text, size=8, align="left")
        return Box(x, y, width, height)

    def band(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        colour: str,
        share: float,
        *,
        causal: bool,
    ) -> None:
        """The allowed part of a map: a triangle (causal), cut to a band by a window."""
        self.axes.add_patch(Rectangle((x, y), width, height, facecolor="white", linewidth=0))
        low = [(x, y), (x + width, y + height)]
        if share >= 1:
            points = [*low, (x, y + height)]
        else:
            points = [*low, (x + width * (1 - share), y + height), (x, y + height * share)]
        self.axes.add_patch(Polygon(points, closed=True, facecolor=colour, linewidth=0))
        if not causal:
            mirrored = [*low, (x + width, y + height * (1 - share)), (x + width * share, y)]
            self.axes.add_patch(Polygon(mirrored, closed=True, facecolor=colour, linewidth=0))

    def arrow(self, x0: float, y0: float, x1: float, y1: float, colour: str = NEUTRAL) -> None:
        """A straight arrow."""
        self.axes.add_patch(
            FancyArrowPatch(
                (x0, y0),
                (x1, y1),
                arrowstyle="-|>",
                mutation_scale=7,
                color=colour,
                linewidth=1.0,
                shrinkA=1,
                shrinkB=1,
            )
        )

    def curve(
        self,
        x0: float,
        y0: float,
        x1: float,
        y1: float,
        colour: str,
        *,
        dashed: bool = False,
        faint: bool = False,
    ) -> None:
        """A soft line that leaves and arrives upright."""
        middle = (y0 + y1) / 2
        path = Path(
            [(x0, y0), (x0, middle), (x1, middle), (x1, y1)],
            [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4],
        )
        style: Any = (0, (3, 2)) if dashed else "solid"
        self.axes.add_patch(
            PathPatch(
                path,
                fill=False,
                edgecolor=colour,
                linewidth=1.0,
                linestyle=style,
                alpha=0.4 if faint else 0.85,
            )
        )

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float,
        bold: bool = False,
        align: str = "center",
        colour: str = INK,
        halo: bool = False,
    ) -> None:
        """Text centred on ``y``."""
        effects = [patheffects.withStroke(linewidth=2.2, foreground="white")] if halo else None
        self.axes.text(
            x,
            y,
            text,
            fontsize=size,
            fontweight="bold" if bold else "normal",
            horizontalalignment=align,
            verticalalignment="center",
            color=colour,
            path_effects=effects,
        )
