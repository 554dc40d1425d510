"""What is more or less than nothing, by head: its colours, its figures, and the grid of heads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from rich.console import Console, ConsoleOptions
from rich.style import Style
from rich.text import Text

from attnviz.core.heads import Head, Layout
from attnviz.drawing.palette import ink, mix
from attnviz.drawing.renderable import TILE, coloured, head_tiles

ORANGE, BLUE, NONE = "#b35806", "#2166ac", "#f7f7f7"
"""Ends and middle of the colours of everything with a sign, and of nothing else.

Blue is more, or what a head does for the model's answer; orange is less, or what it does against
it. Safe for the colour-blind (PuOr and RdBu of Brewer 2003, whose ends differ in lightness and
hue).
"""

SCHEMES = {"light": (ORANGE, NONE, BLUE), "dark": ("#fdae61", "#22262d", "#74b3f7")}
"""Less, nothing, more on pages; on dark paper nothing is dark."""

_GROUND = "#808080"
"""Nothing is mid grey, which reads on light and on dark terminals."""
_DECIMALS = 3


def color(value: float, most: float, orange: int, middle: str = NONE) -> str:
    """The colour of a value; its strength grows with the square root, so that small ones show."""
    strength = math.sqrt(min(abs(value) / most, 1.0)) if most > 0 else 0.0
    return mix(middle, ORANGE if value * orange > 0 else BLUE, strength)


def on_terminal(value: float, most: float, orange: int) -> Style:
    """The same as the ground of a cell, with an ink that reads on it."""
    paint = color(value, most, orange, _GROUND)
    return Style(color=ink(paint), bgcolor=paint)


def signed(value: float, digits: int = 2, most_decimals: int = 4) -> str:
    """A value with its sign, to so many significant digits and never more than some decimals."""
    if abs(value) < 0.5 * 10**-most_decimals:
        return "0"
    decimals = max(0, min(most_decimals, digits - 1 - math.floor(math.log10(abs(value)))))
    return f"{value:+.{decimals}f}"


_HYPHEN = re.compile(r"(?<![^\s(\[])-(?=[\d.]+(?![\d.]| \(\d))")
"""Before a number of a sentence; not in a token, which stands in quotes or before its position."""


def minus(sentence: str) -> str:
    """One of our sentences with minus signs before its numbers, as pages write them."""
    return _HYPHEN.sub("−", sentence)


@dataclass(frozen=True)
class SignedGrid:
    """A renderable: layers downwards, heads across, each with its value."""

    layout: Layout  # which heads there are
    # of the heads that are shown; nothing is drawn where there are none
    values: Mapping[Head, float]
    most: float  # the end of the colours
    orange: int  # the sign of what is orange

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw for this console, in as many bands as its width needs."""
        for kind in self.layout.kinds if self.values else ():
            if len(self.layout.kinds) > 1:
                yield Text(kind, style="bold")
            sizes = {
                head: abs(value)
                for head, value in self.values.items()
                if head.site.kind == kind and signed(value, 2, _DECIMALS) != "0"
            }
            tile = partial(self._tile, console)
            yield from head_tiles(options, self.layout, kind, tile, sizes, "a value")
            yield Text("")

    def _tile(self, console: Console, head: Head) -> Text:
        value = self.values.get(head)
        if value is None:
            return Text(" " * TILE)
        style = on_terminal(value, self.most, self.orange) if coloured(console) else Style()
        return Text(f"{signed(value, 2, _DECIMALS):^{TILE}}", style)
