"""The grid of heads with a word and a margin each, as part of a figure."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from attnviz.core.heads import Head, Layout, Site
from attnviz.drawing.labels import shorten
from attnviz.drawing.palette import ink, mix
from attnviz.drawing.tiles import COLOR, Tile

CELL = (0.5, 0.27)
"""Width and height of a head in inches."""
_EMPTY = "#f0f0f0"


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
    for layer, count in enumerate(counts):
        for index in range(count):
            tile = tiles.get(Head(Site(kind, layer), index))
            paint = _EMPTY
            if tile is not None:
                paint = mix("#ffffff", COLOR, min(max(tile.strength, 0.0), 1.0))
                axes.text(
                    index + 0.5, layer + 0.5, shorten(tile.text, 8), ha="center", va="center",
                    fontsize=6, color=ink(paint),
                )  # fmt: skip
            axes.add_patch(Rectangle((index, layer), 1, 1, facecolor=paint, edgecolor="white"))
    axes.set_xlim(0, max(counts))
    axes.set_ylim(len(counts), 0)
    axes.set_xticks([n + 0.5 for n in range(max(counts))], [str(n) for n in range(max(counts))])
    axes.set_yticks([n + 0.5 for n in range(len(counts))], [str(n) for n in range(len(counts))])
    axes.tick_params(length=0, labelsize=7)
    axes.xaxis.tick_top()
    axes.set_xlabel(caption, fontsize=7, wrap=True)
    axes.set_ylabel("layer", fontsize=7)
    for side in axes.spines.values():
        side.set_visible(False)
