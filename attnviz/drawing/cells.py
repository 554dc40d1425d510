"""How large the cells of a figure's grid of heads are, and which of them are numbered."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from attnviz.drawing.charts import open_sides
from attnviz.drawing.labels import tick_step

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
    """Number heads above a grid and layers beside it, every few where cells are small.

    Args:
        axes: of a grid with cells of 1 × 1.
        across: how many heads there are in a line.
        down: how many lines there are.
        lines: where each layer stands, and its number.
        legend: what the grid shows, to stand below it.
        texts: what small cells lack, such as ``words``.
    """
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
