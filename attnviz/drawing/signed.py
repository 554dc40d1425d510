"""What is more or less than nothing, by head: its colours, its figures, and the grid of heads."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.style import Style
from rich.text import Text

from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.drawing.folded import Strong, folded, is_long
from attnviz.drawing.labels import signs
from attnviz.drawing.palette import ink, mix

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
_TILE, _DECIMALS = 6, 3


def color(value: float, most: float, orange: int, middle: str = NONE) -> str:
    """The colour of a value; its strength grows with the square root, so that small ones show.

    Args:
        value: what is shown.
        most: the largest size there is.
        orange: the sign of what is orange; the other is blue.
        middle: the colour of nothing.
    """
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


def coloured(console: Console) -> bool:
    """Whether a console shows colours."""
    return console.color_system is not None and not console.no_color


@dataclass(frozen=True)
class SignedGrid:
    """A renderable: layers downwards, heads across, each with its value.

    Attributes:
        layout: which heads there are.
        values: of the heads that are shown; nothing is drawn where there are none.
        most: the end of the colours.
        orange: the sign of what is orange.
    """

    layout: Layout
    values: Mapping[Head, float]
    most: float
    orange: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw for this console, in as many bands as its width needs."""
        layout = self.layout
        fitting = max((options.max_width - 3) // (_TILE + 1), 1)
        for kind in layout.kinds if self.values else ():
            if len(layout.kinds) > 1:
                yield Text(kind, style="bold")
            widest = max(layout.heads[kind])
            if is_long(len(layout.heads[kind]), widest, fitting):
                yield from folded(self._strong(kind, console), options, "a value")
                yield Text("")
                continue
            yield Text(signs("layer ↓  head →", options.ascii_only), "dim")
            for first in range(0, widest, fitting):
                columns = range(first, min(first + fitting, widest))
                yield Text("   " + " ".join(f"{n:^{_TILE}}" for n in columns).rstrip(), "dim")
                for layer, count in enumerate(layout.heads[kind]):
                    line = Text(f"{layer:>2} ", "dim", no_wrap=True)
                    for index in columns:
                        value = self.values.get(Head(Site(kind, layer), index))
                        line.append_text(self._tile(value if index < count else None, console))
                        line.append(" ")
                    line.rstrip()
                    yield line
            yield Text("")

    def _tile(self, value: float | None, console: Console) -> Text:
        if value is None:
            return Text(" " * _TILE)
        style = on_terminal(value, self.most, self.orange) if coloured(console) else Style()
        return Text(f"{signed(value, 2, _DECIMALS):^{_TILE}}", style)

    def _strong(self, kind: SiteKind, console: Console) -> dict[int, dict[int, Strong]]:
        """The values of every layer that are not 0 as they are written, by their size."""
        rows: dict[int, dict[int, Strong]] = {
            layer: {} for layer in range(len(self.layout.heads[kind]))
        }
        for head, value in self.values.items():
            if head.site.kind == kind and signed(value, 2, _DECIMALS) != "0":
                rows[head.layer][head.index] = Strong(abs(value), self._tile(value, console))
        return rows
