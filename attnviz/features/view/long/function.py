"""The page of a long text, from a model to bytes."""

from __future__ import annotations

from collections.abc import Callable

from attnviz.captures.captured import Captured
from attnviz.captures.tiled import tiled
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import Made
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.errors import InputError
from attnviz.features.view.chosen import strongest
from attnviz.features.view.long.page import LARGEST_TEXT, kept_weights, page
from attnviz.features.view.result import Viewer
from attnviz.features.view.settings import ViewSettings
from attnviz.web.settings import PageSettings

ACROSS = 128
"""Tiles along an axis, at most; of a part of a text more, where the page has room."""
_TILE = 1.6
"""About the bytes of a tile in a page: two codes, half of them deflated, in base64."""
_MB = 20.0
"""Megabytes of a page, about, unless fewer are allowed."""


def long_view(
    source: Source,
    inputs: Inputs,
    settings: ViewSettings,
    asked: PageSettings,
    made: Callable[[str], Made],
    progress: Progress | None = None,
) -> Viewer:
    """Put the heads of a long text, or of a part of one, into one page."""
    max_mb, select = asked.max_mb, settings.heads
    if inputs.length > LARGEST_TEXT:
        raise InputError(
            "a page holds {:,} tokens at most, and the text has {:,}; shorten it",
            LARGEST_TEXT,
            inputs.length,
        )

    cut = settings.rows is not None or settings.keys is not None

    def sizes(heads: int, rows: int, keys: int) -> tuple[int, int]:
        budget, size = min(_MB, max_mb) * 0.9e6, 1

        def room() -> float:
            return budget - heads * -(-rows // size) * -(-keys // size) * _TILE - 12 * rows

        while size * ACROSS < max(rows, keys) and not (cut and room() > budget / 2):
            size *= 2
        if room() < heads * rows:
            raise InputError(
                "the page would take more than {:g} MB; select fewer heads, shorten the text, or "
                "raise {max_mb}",
                max_mb,
                max_mb=...,
            )
        return size, kept_weights(heads, rows, room())

    if settings.clearest is not None:
        select = strongest([inputs], source, settings.clearest, select)
    tiles, layout = tiled(
        source,
        inputs,
        sizes,
        select=select,
        off=settings.without,
        quantity=settings.quantity,
        rows=settings.rows,
        keys=settings.keys,
        progress=progress,
    )
    title = asked.title or f"Attention of {tiles.source.model}"
    held = Captured(tiles.source, layout, tiles.inputs, {}, tiles.empty_rows, {}, settings.quantity)
    return Viewer(page(tiles, layout, title=title, made=made(tiles.source.model)), title, (held,))
