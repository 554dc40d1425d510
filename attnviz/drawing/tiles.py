"""The grid of heads with a word and a margin each, on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions
from rich.style import Style
from rich.text import Text

from attnviz.core.heads import Head, Layout
from attnviz.drawing.labels import shorten, signs
from attnviz.drawing.palette import NO_ROLE, ink, mix
from attnviz.drawing.renderable import TILE, coloured, head_tiles

COLOR = "#2a9d5c"
FULL = 0.4
"""The margin at which the colour is full: forty points."""

_GROUND = "#808080"
"""No margin is mid grey, which reads on light and on dark terminals."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a head shows."""

    text: str  # cut to what fits
    strength: float  # of its colour, up to 1; from 0 downwards there is none


class TileGrid:
    """A renderable: layers downwards, heads across; heads without a tile are a dim dot."""

    def __init__(self, layout: Layout, tiles: Mapping[Head, Tile]) -> None:
        self.layout, self.tiles = layout, tiles

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw for this console."""

        def tile(head: Head) -> Text:
            return _drawn(self.tiles.get(head), coloured(console), options.ascii_only)

        strengths = {head: tile.strength for head, tile in self.tiles.items()}
        kind = self.layout.kinds[0]
        yield from head_tiles(options, self.layout, kind, tile, strengths, "something to show")


def _drawn(tile: Tile | None, colors: bool, ascii_only: bool) -> Text:
    if tile is None:
        return Text(f"{signs(NO_ROLE, ascii_only):^{TILE}}", "dim")
    text = f"{shorten(tile.text, TILE, ascii_only=ascii_only):^{TILE}}"
    if tile.strength <= 0:
        return Text(text, "dim")
    if not colors:
        return Text(text)
    paint = mix(_GROUND, COLOR, min(tile.strength, 1.0))
    return Text(text, Style(color=ink(paint), bgcolor=paint))
