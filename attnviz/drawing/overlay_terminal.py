"""Attention over a picture in the terminal: half-blocks in colour, or rising density without."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, ConsoleOptions
from rich.style import Style as Paint
from rich.text import Text

from attnviz.core.media import Picture
from attnviz.drawing.heatmap_terminal import ASCII_RAMP
from attnviz.drawing.labels import signs, visible
from attnviz.drawing.overlay import shrunk, tinted
from attnviz.drawing.shades import Map

_WIDEST = 56
"""Cells across a picture; it is half as many lines high, for cells are twice as high as wide."""


class TerminalOverlay:
    """A renderable picture with one head's attention over it.

    Args:
        picture: what the patches are of.
        shown: [rows, columns], where weights stand on the colour scale, 0 to 1.
        title: printed above.
        palette: the colours.
        note: printed below.
    """

    def __init__(
        self, picture: Picture, shown: Map, *, title: str, palette: str, note: str
    ) -> None:
        self.picture, self.shown, self.palette = picture, shown, palette
        self.title, self.note = title, note

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw for this console: its width, colours and encoding."""
        colors = console.color_system in {"truecolor", "256"} and not console.no_color
        yield Text(visible(self.title, ascii_only=options.ascii_only), style="bold")
        if colors and not options.ascii_only:
            yield from self._blocks(min(options.max_width, _WIDEST))
        else:
            yield from self._density()
        yield Text(signs(self.note, options.ascii_only), style="dim")

    def _blocks(self, wide: int) -> Iterator[Text]:
        """Two pixels a cell, one above the other."""
        pixels = tinted(self.picture, self.shown, self.palette)
        high = max(2, round(wide * pixels.shape[0] / pixels.shape[1] / 2) * 2)
        small = shrunk(pixels, high, wide)
        for upper, lower in zip(small[::2], small[1::2], strict=True):
            line = Text(no_wrap=True)
            for above, below in zip(upper, lower, strict=True):
                line.append("▀", Paint(color=_hex(above), bgcolor=_hex(below)))
            yield line

    def _density(self) -> Iterator[Text]:
        """A patch is two characters wide."""
        yield Text("+" + "-" * (2 * self.picture.columns) + "+")
        for row in self.shown:
            places = np.minimum((row * len(ASCII_RAMP)).astype(int), len(ASCII_RAMP) - 1)
            yield Text("|" + "".join(ASCII_RAMP[place] * 2 for place in places) + "|")
        yield Text("+" + "-" * (2 * self.picture.columns) + "+")


def _hex(color: NDArray[Any]) -> str:
    red, green, blue = (round(float(part)) for part in color)
    return f"#{red:02x}{green:02x}{blue:02x}"
