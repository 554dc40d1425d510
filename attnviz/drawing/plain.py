"""Figures where matplotlib is not installed: what grids ask of its figures, on pixels of our own.

The classes have the names and arguments of matplotlib's, so that one layout is for both: texts,
rectangles, and the numbers and names along axes without lines, heads above and layers beside.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from attnviz.drawing.glyphs import label, write
from attnviz.drawing.palette import rgb
from attnviz.drawing.png import encode
from attnviz.drawing.shades import check_pixels

_RISE = {"top": 0.76, "center": 0.26, "center_baseline": 0.36, "baseline": 0.0, "bottom": -0.24}
"""From where a text is aligned down to its baseline, in sizes of the text."""
_LEFT = {"left": 0.0, "center": 0.5, "right": 1.0}
_PAD = 3.0  # points between axes, their numbers and their names


class Rectangle(NamedTuple):
    """A box in the units of its axes, from the corner of the least x and y."""

    xy: tuple[float, float]
    width: float
    height: float
    facecolor: str = ""


class PatchCollection(NamedTuple):
    """Boxes with their colours; they have no edges, and are below all text."""

    patches: Sequence[Rectangle]
    facecolors: Sequence[str]
    edgecolors: str = "none"
    zorder: float = 0


class Figure:
    """White paper of some inches, with axes on it."""

    def __init__(self, figsize: tuple[float, float], dpi: float) -> None:
        self.dpi = dpi
        width, height = (int(inches * dpi) for inches in figsize)
        check_pixels(width, height)
        self.pixels = np.full((height, width, 3), 255, np.uint8)
        self._axes: list[Axes] = []

    def add_axes(self, box: tuple[float, float, float, float]) -> Axes:
        """Axes in a box, which is in shares of the figure: left, bottom, width, height."""
        pixels_y, pixels_x = self.pixels.shape[:2]
        left, bottom, w, h = box
        bounds = (left * pixels_x, (1 - bottom - h) * pixels_y, w * pixels_x, h * pixels_y)
        self._axes.append(Axes(self, bounds))
        return self._axes[-1]

    def text(self, x: float, y: float, text: str, **fonts: Any) -> None:
        """Write at a place in shares of the figure."""
        height, width = self.pixels.shape[:2]
        self.write(x * width, (1 - y) * height, text, **fonts)

    def write(self, x: float, y: float, text: str, *, upward: bool = False, **fonts: Any) -> None:
        """Write at a place in pixels from the top left; ``upward`` as what reads from below."""
        size, bold = fonts["fontsize"], fonts.get("fontweight") == "bold"
        bitmap, color = label(text, size, self.dpi, bold=bold), fonts.get("color", "#000000")
        drop = _RISE[fonts.get("va", "baseline")] * size * self.dpi / 72
        shift = _LEFT[fonts.get("ha", "left")] * bitmap.width
        if upward:
            top = round(y + shift) - bitmap.width
            write(self.pixels, np.rot90(bitmap.ink), top, round(x + drop) - bitmap.baseline, color)
        else:
            write(
                self.pixels, bitmap.ink, round(y + drop) - bitmap.baseline, round(x - shift), color
            )

    def png(self) -> bytes:
        """Draw all axes, and give the bytes of a file."""
        for axes in self._axes:
            axes.finish()
        return encode(self.pixels, None, self.dpi)


class _Fixed:
    """What is as it is: axes have no lines, and their numbers stand above and at the left."""

    def __getitem__(self, _: Any) -> _Fixed:
        return self

    def __getattr__(self, _: str) -> Any:
        return lambda *_, **__: None


_CALLS = ("set_xlim", "set_ylim", "set_xticks", "set_yticks", "set_xlabel", "set_ylabel",
          "set_title", "tick_params", "text", "add_patch", "add_collection", "axis")  # fmt: skip


class Axes:
    """A part of a figure with units of its own; ``bounds``: left, top, width, height in pixels."""

    spines = xaxis = yaxis = _Fixed()

    def __init__(self, figure: Figure, bounds: tuple[float, float, float, float]) -> None:
        self._figure, self._place = figure, bounds
        self._calls: dict[str, list[tuple[Any, dict[str, Any]]]] = {name: [] for name in _CALLS}
        for name, usual in (("lim", (0, 1)), ("ticks", ((),))):
            self._calls[f"set_x{name}"].append((usual, {}))
            self._calls[f"set_y{name}"].append((usual, {}))

    def __getattr__(self, name: str) -> Any:
        """Return what matplotlib's axes do by that name, done when the figure is finished."""
        if name not in _CALLS:
            raise AttributeError(name)
        return lambda *values, **options: self._calls[name].append((values, options))

    def finish(self) -> None:
        """Draw boxes, texts over them, and what stands beside them."""
        calls, draw = self._calls, self._figure.write
        for (box,), _ in calls["add_patch"]:
            self._fill(box, box.facecolor)
        for (boxes,), _ in calls["add_collection"]:
            for box, color in zip(boxes.patches, boxes.facecolors, strict=True):
                self._fill(box, color)
        for (x, y, text), fonts in calls["text"]:
            draw(self._at("x", x), self._at("y", y), text, **fonts)
        point = self._figure.dpi / 72
        left, top, width, height = self._place
        marks = {
            name: value for _, options in calls["tick_params"] for name, value in options.items()
        }
        size = marks.get("labelsize", 10.0)
        fonts = {"fontsize": size, "color": marks.get("labelcolor", "#000000")}
        top, side, widest = top - _PAD * point, left - _PAD * point, 0
        for x, name in self._ticks("x"):
            draw(self._at("x", x), top, name, ha="center", va="bottom", **fonts)
        for y, name in self._ticks("y"):
            draw(side, self._at("y", y), name, ha="right", va="center_baseline", **fonts)
            widest = max(widest, label(name, size, self._figure.dpi).width)
        top -= (size + _PAD) * point if self._ticks("x") else 0
        for (name,), fonts in calls["set_xlabel"]:
            draw(left + width / 2, top, name, ha="center", va="bottom", **fonts)
            top -= fonts["fontsize"] * point
        for (name,), fonts in calls["set_title"]:
            draw(left, top - fonts["pad"] * point, name, va="bottom", **fonts)
        for (name,), fonts in calls["set_ylabel"]:
            side -= widest + _PAD * point
            draw(side, self._place[1] + height / 2, name, ha="center", va="bottom", upward=True,
                 **fonts)  # fmt: skip

    def _fill(self, box: Rectangle, color: str) -> None:
        """Draw a box, on whole pixels."""
        (x, y), width, height = box.xy, box.width, box.height
        columns = sorted(round(self._at("x", end)) for end in (x, x + width))
        rows = sorted(round(self._at("y", end)) for end in (y, y + height))
        self._figure.pixels[slice(*rows), slice(*columns)] = rgb(color)

    def _ticks(self, axis: str) -> list[tuple[float, str]]:
        """Return the numbered places along an axis, and what stands there."""
        (places, *names), _ = self._calls[f"set_{axis}ticks"][-1]
        return list(zip(places, names[0] if names else map(str, places), strict=True))

    def _at(self, axis: str, value: float) -> float:
        """Return a place along an axis in pixels of the figure."""
        ends, _ = self._calls[f"set_{axis}lim"][-1]
        low, high = ends if axis == "x" else ends[::-1]
        start, length = self._place["xy".index(axis) :: 2]
        return float(start + (value - low) / (high - low) * length)
