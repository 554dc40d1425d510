"""The grid of heads as part of a figure: how large its cells are, with words and margins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes

from attnviz.core.heads import Head, Layout, Site
from attnviz.drawing import charts
from attnviz.drawing.charts import open_sides
from attnviz.drawing.labels import shorten, tick_step
from attnviz.drawing.palette import mix
from attnviz.drawing.tiles import COLOR, Tile

Cell = tuple[float, float]
"""Width and height in inches."""

_SMALL: Cell = (0.17, 0.17)
_ACROSS, _DOWN = 32, 48
"""Grids of more heads or lines have small cells, with a colour alone."""


def is_small(across: int, down: int) -> bool:
    """Whether a grid of so many heads and lines has cells too small for text."""
    return across > _ACROSS or down > _DOWN


def cell_of(across: int, down: int, usual: Cell) -> Cell:
    """The cell of such a grid; ``usual`` where there is text in it."""
    return _SMALL if is_small(across, down) else usual


def numbered(
    axes: Axes, across: int, down: int, lines: Sequence[tuple[int, int]], legend: str, texts: str
) -> None:
    """Number heads above a grid and layers beside it, every few where cells are small."""
    small = is_small(across, down)
    every = tick_step(2) if small else 1
    axes.set_xlim(0, across)
    axes.set_ylim(down, 0)
    axes.set_xticks(
        [n + 0.5 for n in range(0, across, every)], list(map(str, range(0, across, every)))
    )
    some = [(y, layer) for y, layer in lines if layer % every == 0]
    axes.set_yticks([y + 0.5 for y, _ in some], [str(layer) for _, layer in some])
    axes.tick_params(length=0, labelsize=7)
    axes.xaxis.tick_top()
    said = f"{legend}; too many heads for {texts}" if small else legend
    axes.set_xlabel(said, fontsize=7, wrap=texts == "words")
    axes.set_ylabel("layer", fontsize=7)
    open_sides(axes)


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
    """Layers downwards, heads across."""
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
