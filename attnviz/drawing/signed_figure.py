"""The grid of heads in a figure, by what is more or less than nothing."""

from __future__ import annotations

from collections.abc import Container, Mapping

from matplotlib.axes import Axes

from attnviz.core.heads import Head, Layout, Site
from attnviz.drawing import charts
from attnviz.drawing.signed import color, signed
from attnviz.drawing.tiles_figure import Cell, cell_of, is_small, numbered

_CELL = (0.46, 0.27)


def rows(layout: Layout) -> int:
    """Lines of cells that the grid needs: a layer each, and one between kinds of layers."""
    return sum(layout.layers(kind) for kind in layout.kinds) + len(layout.kinds) - 1


def columns(layout: Layout) -> int:
    """The most heads of any layer."""
    return max(max(layout.heads[kind]) for kind in layout.kinds)


def cell(layout: Layout) -> Cell:
    """Width and height of a head in inches."""
    return cell_of(columns(layout), rows(layout), _CELL)


def size(layout: Layout) -> tuple[float, float]:
    """Width and height of the grid in inches."""
    wide, high = cell(layout)
    return columns(layout) * wide, rows(layout) * high


def draw(
    axes: Axes,
    layout: Layout,
    values: Mapping[Head, float],
    most: float,
    *,
    orange: int,
    bold: Container[Head] = (),
    legend: str,
) -> None:
    """Draw into axes of ``columns`` × ``rows`` cells."""
    wide, high = columns(layout), rows(layout)
    small = is_small(wide, high)
    lines: dict[Site, int] = {}
    for kind in layout.kinds:
        first = len(lines) + len({site.kind for site in lines})
        lines |= {Site(kind, layer): first + layer for layer in range(layout.layers(kind))}
    for head, value in values.items():
        weight = "bold" if head in bold else "normal"
        paint, text = color(value, most, orange), "" if small else signed(value)
        charts.cell(axes, head.index, lines[head.site], paint, text, fontweight=weight)
    layers = [(y, site.layer) for site, y in lines.items()]
    numbered(axes, wide, high, layers, legend, "figures")
