"""Maps of long texts: cells are tiles of tokens."""

from __future__ import annotations

from attnviz.captures.captured import Captured
from attnviz.captures.tiled import tiled
from attnviz.core.prompt import Inputs
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.core.spans import said_cut
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing.labels import visible
from attnviz.drawing.style import Style
from attnviz.errors import Setting, UsageError
from attnviz.features.heatmap.result import Heatmap

ACROSS, LINES = 256, 64
"""Tiles along an axis of a picture and on the terminal, at most; a part of a text that has no more
tokens is shown token by token."""


def long_heatmap(
    source: Source,
    inputs: Inputs,
    select: str,
    quantity: str,
    cut: tuple[str | None, str | None],
    tiles: str,
    style: Style,
    across: int = ACROSS,
    progress: Progress | None = None,
) -> Heatmap:
    """Draw the maps of some heads on a long text."""
    for asked in (Setting("words", style.words), Setting("hide", "sink" * style.hide_sink)):
        if asked.value:
            raise UsageError(
                "a text of {:,} tokens is shown as tiles, without {}; shorten it",
                inputs.length,
                asked,
            )

    def sizes(heads: int, rows: int, keys: int) -> tuple[int, int]:
        return -(-max(rows, keys) // across), 0

    reduced, layout = tiled(
        source,
        inputs,
        sizes,
        select=select,
        quantity=quantity,
        rows=cut[0],
        keys=cut[1],
        progress=progress,
    )
    maps = []
    for head in reduced.maps:
        sides = inputs.sides[head.site.kind]
        shown = Sides(
            _named(sides.queries, reduced.rows, reduced.size),
            _named(sides.keys, reduced.keys, reduced.size),
        )
        maps.append((head, reduced.shown(head, tiles), shown))
    held = Captured(reduced.source, layout, reduced.inputs, {}, reduced.empty_rows, {}, quantity)
    roles = {scores.head: scores.roles for scores in reduced.scores}
    cells = _said(reduced.size, tiles)
    return Heatmap(
        held, tuple(maps), roles, style, said_cut(cut, (reduced.rows, reduced.keys)), cells
    )


def _said(size: int, tiles: str) -> str:
    """What a cell is."""
    if size == 1:
        return ""
    what = (
        "the largest weight in it"
        if tiles == "max"
        else "the weight on its keys, as a mean over its queries"
    )
    return f"each cell is a tile of {size} × {size} tokens: {what}"


def _named(tokens: Tokens, positions: range, size: int) -> Tokens:
    """Tiles, called by the position and the text of their first tokens."""
    if size == 1:
        return Tokens(tokens.texts[positions.start : positions.stop])
    firsts = range(positions.start, positions.stop, size)
    return Tokens(tuple(f"{first:,} {visible(tokens.texts[first])}" for first in firsts))
