"""The grid of heads with a word and a margin each, as part of a figure."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes

from attnviz.core.heads import Head, Layout, Site
from attnviz.drawing import charts
from attnviz.drawing.cells import Cell, cell_of, is_small, numbered
from attnviz.drawing.labels import shorten
from attnviz.drawing.palette import mix
from attnviz.drawing.tiles import COLOR, Tile

_CELL = (0.5, 0.27)
_EMPTY = "#f0f0f0"


def cell(layout: Layout) -> Cell:
    """Width and height of a head in inches, in the grid of a model with one stack."""
    counts = layout.heads[layout.kinds[0]]
    return cell_of(max(counts), len(counts), _CELL)


def size(layout: Layout) -> tuple[float, float]:
    """Width and height of that grid in inches."""
    counts, (wide, high) = layout.heads[layout.kinds[0]], cell(layout)
    return max(counts) * wide, len(counts) * high


def draw_grid(axes: Axes, layout: Layout, tiles: Mapping[Head, Tile], caption: str) -> None:
    """Layers downwards, heads across.

    Args:
        axes: to draw into.
        layout: the heads; of a model with one stack.
        tiles: what heads show; the others are empty.
        caption: below the grid.
    """
    kind = layout.kinds[0]
    counts = layout.heads[kind]
    small = is_small(max(counts), len(counts))
    for layer, count in enumerate(counts):
        for index in range(count):
            tile = tiles.get(Head(Site(kind, layer), index))
            paint = _EMPTY
            if tile is not None:
                paint = mix("#ffffff", COLOR, min(max(tile.strength, 0.0), 1.0))
            charts.cell(
                axes, index, layer, paint, shorten(tile.text, 8) if tile and not small else ""
            )
    layers = [(n, n) for n in range(len(counts))]
    numbered(axes, max(counts), len(counts), layers, caption, "words")
