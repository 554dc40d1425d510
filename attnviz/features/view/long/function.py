"""The page of a long text, from a model to bytes."""

from __future__ import annotations

from attnviz.captures.captured import Captured
from attnviz.captures.look import Model, load
from attnviz.captures.tiled import tiled
from attnviz.core.progress import Progress
from attnviz.core.prompt import Inputs
from attnviz.errors import InputError
from attnviz.features.view.chosen import strongest
from attnviz.features.view.long.page import LARGEST_TEXT, kept_weights, page
from attnviz.features.view.result import Viewer

ACROSS = 128
"""Tiles along an axis, at most; of a part of a text more, where the page has room."""
_TILE = 1.6
"""About the bytes of a tile in a page: two codes, half of them deflated, in base64."""
_MB = 20.0
"""Megabytes of a page, about, unless fewer are allowed."""


def long_view(
    model: Model,
    inputs: Inputs,
    *,
    select: str | None,
    without: str | None,
    weigh: str,
    title: str | None,
    max_mb: float,
    top: int | None = None,
    rows: str | None = None,
    keys: str | None = None,
    progress: Progress | None = None,
) -> Viewer:
    """Put the heads of a long text, or of a part of one, into one page.

    Parameters are those of :func:`attnviz.view`.

    Raises:
        InputError: a text that is too long for a page, or too many heads for its size.
    """
    source = load(model)
    if inputs.length > LARGEST_TEXT:
        raise InputError(
            "a page holds {:,} tokens at most, and the text has {:,}; shorten it",
            LARGEST_TEXT,
            inputs.length,
        )

    cut = rows is not None or keys is not None

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

    if top is not None:
        select = strongest([inputs], source, top, select)
    found, layout = tiled(
        source,
        inputs,
        sizes,
        select=select,
        without=without,
        weigh=weigh,
        rows=rows,
        keys=keys,
        progress=progress,
    )
    title = title or f"Attention of {found.source.model}"
    held = Captured(found.source, layout, found.inputs, {}, found.empty_rows, {}, weigh)
    return Viewer(page(found, layout, title=title), title, (held,))
