"""The grid of heads with a word and a margin each, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.style import Style
from rich.text import Text

from attnviz.core.heads import Head, Layout, Site
from attnviz.drawing.folded import Strong, folded, is_long
from attnviz.drawing.labels import shorten, signs
from attnviz.drawing.palette import NO_ROLE, ink, mix

COLOR = "#2a9d5c"
FULL = 0.4
"""The margin at which the colour is full: forty points."""

_TILE = 6
_GROUND = "#808080"
"""No margin is mid grey, which reads on light and on dark terminals."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a head shows.

    Attributes:
        text: cut to what fits.
        strength: of its colour, up to 1; from 0 downwards there is none.
    """

    text: str
    strength: float


def colored(console: Console) -> bool:
    """Whether a console shows colours."""
    return console.color_system is not None and not console.no_color


class TileGrid:
    """A renderable: layers downwards, heads across; heads without a tile are a dim dot."""

    def __init__(self, layout: Layout, tiles: Mapping[Head, Tile]) -> None:
        self.layout, self.tiles = layout, tiles

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw for this console."""
        kind = self.layout.kinds[0]
        counts = self.layout.heads[kind]
        fitting = max((options.max_width - 3) // (_TILE + 1), 1)
        if is_long(len(counts), max(counts), fitting):
            yield from folded(self._strong(console, options), options, "something to show")
            return
        yield Text(signs("layer ↓  head →", options.ascii_only), "dim")
        for first in range(0, max(counts), fitting):
            columns = range(first, min(first + fitting, max(counts)))
            yield Text("   " + " ".join(f"{n:^{_TILE}}" for n in columns).rstrip(), "dim")
            for layer, count in enumerate(counts):
                line = Text(f"{layer:>2} ", "dim", no_wrap=True)
                for index in (n for n in columns if n < count):
                    tile = self.tiles.get(Head(Site(kind, layer), index))
                    line.append_text(_drawn(tile, colored(console), options.ascii_only))
                    line.append(" ")
                line.rstrip()
                yield line

    def _strong(self, console: Console, options: ConsoleOptions) -> dict[int, dict[int, Strong]]:
        """The tiles of every layer, the strongest colour first."""
        rows: dict[int, dict[int, Strong]] = {
            layer: {} for layer in range(len(self.layout.heads[self.layout.kinds[0]]))
        }
        for head, tile in self.tiles.items():
            drawn = _drawn(tile, colored(console), options.ascii_only)
            rows[head.layer][head.index] = Strong(tile.strength, drawn)
        return rows


def _drawn(tile: Tile | None, colors: bool, ascii_only: bool) -> Text:
    if tile is None:
        return Text(f"{signs(NO_ROLE, ascii_only):^{_TILE}}", "dim")
    text = f"{shorten(tile.text, _TILE, ascii_only=ascii_only):^{_TILE}}"
    if tile.strength <= 0:
        return Text(text, "dim")
    if not colors:
        return Text(text)
    paint = mix(_GROUND, COLOR, min(tile.strength, 1.0))
    return Text(text, Style(color=ink(paint), bgcolor=paint))
