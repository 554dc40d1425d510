"""The grid of heads with a word and a margin each, as part of a figure."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from attnviz.core.heads import Head, Layout, Site
from attnviz.drawing.cells import Cell, cell_of, is_small, numbered
from attnviz.drawing.labels import shorten
from attnviz.drawing.palette import ink, mix
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
            if tile is not None and not small:
                axes.text(
                    index + 0.5, layer + 0.5, shorten(tile.text, 8), ha="center", va="center",
                    fontsize=6, color=ink(paint),
                )  # fmt: skip
            axes.add_patch(Rectangle((index, layer), 1, 1, facecolor=paint, edgecolor="white"))
    axes.set_xlim(0, max(counts))
    axes.set_ylim(len(counts), 0)
    numbered(axes, max(counts), [(n, n) for n in range(len(counts))], small=small)
    axes.tick_params(length=0, labelsize=7)
    axes.xaxis.tick_top()
    said = f"{caption}; too many heads for words" if small else caption
    axes.set_xlabel(said, fontsize=7, wrap=True)
    axes.set_ylabel("layer", fontsize=7)
    for side in axes.spines.values():
        side.set_visible(False)
