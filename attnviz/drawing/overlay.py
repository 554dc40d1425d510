"""Attention laid over the picture that it is of: the picture in grey, tinted where weight lies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style as Paint
from rich.text import Text

from attnviz.core.media import Picture, Place, patch_name
from attnviz.drawing import labels, paper
from attnviz.drawing.console import renderable
from attnviz.drawing.heatmap_terminal import ASCII_RAMP
from attnviz.drawing.labels import signs, title_lines, visible
from attnviz.drawing.palette import anchors, ramp, rgb
from attnviz.drawing.panels import LEADING, maps_a_line
from attnviz.drawing.shades import Map, shades
from attnviz.drawing.style import Style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Pixels = NDArray[np.uint8]

DIMMED = 0.75  # how bright the picture stays where no weight lies

STRONGEST = 0.85  # how much of a pixel is colour where the largest weight lies

_LUMA = (0.299, 0.587, 0.114)


def tinted(picture: Picture, weights: Map, palette: str) -> Pixels:
    """Tint every patch of a picture by its ``weights`` [rows, columns] on the colour scale."""
    height, width = picture.pixels.shape[:2]
    grey = picture.pixels @ np.array(_LUMA) * DIMMED
    levels = weights[np.ix_(_cells(height, picture.rows), _cells(width, picture.columns))]
    colors = np.array([rgb(color) for color in ramp(palette)], np.float64)
    tint = colors[np.rint(levels * (len(colors) - 1)).astype(int)]
    share = (STRONGEST * np.sqrt(levels))[..., None]
    return np.rint((1 - share) * grey[..., None] + share * tint).astype(np.uint8)


def scaled(grids: Sequence[NDArray[np.floating[Any]]], style: Style) -> list[Map]:
    """Where the weights of several heads stand on the colour scale, as a style says."""
    maps = [np.asarray(grid, np.float64) for grid in grids]
    top = max(float(grid.max()) for grid in maps)
    by_map = style.normalize != "global"  # a picture has no rows of a map
    return [shades(grid, style, float(grid.max()) if by_map else top) for grid in maps]


def box(picture: Picture, row: int, column: int) -> tuple[int, int, int, int]:
    """Return the pixels of a patch: top, bottom, left, right."""
    height, width = picture.pixels.shape[:2]
    rows, columns = _cells(height, picture.rows), _cells(width, picture.columns)
    (ys,), (xs,) = np.nonzero(rows == row), np.nonzero(columns == column)
    return int(ys[0]), int(ys[-1]) + 1, int(xs[0]), int(xs[-1]) + 1


def shrunk(pixels: NDArray[Any], height: int, width: int) -> NDArray[Any]:
    """Means over blocks, [height, width, 3]; pixels repeat where there are too few."""
    for axis, size in ((0, height), (1, width)):
        length = pixels.shape[axis]
        starts = np.arange(size) * length // size
        if length >= size:
            sums = np.add.reduceat(pixels.astype(np.float64), starts, axis=axis)
            counts = np.diff(np.append(starts, length))
            pixels = sums / counts.reshape((-1, 1, 1) if axis == 0 else (1, -1, 1))
        else:
            pixels = pixels.take(starts, axis=axis)
    return pixels


def _cells(length: int, count: int) -> NDArray[np.int64]:
    """For each pixel on an axis the patch that it belongs to."""
    return np.arange(length) * count // length


_WIDEST = 56
"""Cells across a picture; it is half as many lines high, for cells are twice as high as wide."""


@renderable
def on_terminal(
    console: Console,
    options: ConsoleOptions,
    picture: Picture,
    maps: Sequence[tuple[str, NDArray[np.floating[Any]]]],
    style: Style,
    query: str,
) -> RenderResult:
    """Draw a picture for each head, tinted; ``maps``: a title and weights [rows, columns]."""
    colors = console.color_system in {"truecolor", "256"} and not console.no_color
    for (title, grid), levels in zip(maps, scaled([grid for _, grid in maps], style), strict=True):
        yield Text(visible(title, ascii_only=options.ascii_only), style="bold")
        if colors and not options.ascii_only:
            pixels = tinted(picture, levels, style.palette)
            yield from _blocks(pixels, min(options.max_width, _WIDEST))
        else:
            yield from _density(levels)
        row, column = map(int, np.unravel_index(int(np.argmax(grid)), grid.shape))
        patch = patch_name(picture, row, column)
        note = f"{query}; most on patch {patch}: {labels.number(float(grid.max()))}"
        yield Text(signs(note, options.ascii_only), style="dim")


def _blocks(pixels: Pixels, width: int) -> Iterator[Text]:
    """Two pixels a cell, one above the other."""
    height = max(2, round(width * pixels.shape[0] / pixels.shape[1] / 2) * 2)
    small = shrunk(pixels, height, width)
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        line = Text(no_wrap=True)
        for above, below in zip(upper, lower, strict=True):
            line.append("▀", Paint(color=_hex(above), bgcolor=_hex(below)))
        yield line


def _density(levels: Map) -> Iterator[Text]:
    """Draw signs of rising density, two for a patch."""
    edge = f"+{'-' * (2 * levels.shape[1])}+"
    yield Text(edge)
    for row in levels:
        steps = np.minimum((row * len(ASCII_RAMP)).astype(int), len(ASCII_RAMP) - 1)
        yield Text(f"|{''.join(ASCII_RAMP[step] * 2 for step in steps)}|")
    yield Text(edge)


def _hex(color: NDArray[Any]) -> str:
    red, green, blue = (round(float(part)) for part in color)
    return f"#{red:02x}{green:02x}{blue:02x}"


_SIDE, _ALONE = 1.9, 3.4  # the longer side of a panel in inches: one of several, or the only head's
_MARGIN, _GAP, _PAD = 0.12, 0.14, 0.06
_BAR, _BAR_ROOM = 0.12, 0.85
_SIZE, _NOTE = 8.0, 7.0
_MARKS = (("black", 2.4), ("white", 1.0))
"""The frame of the patch from which is looked: seen on any ground."""


def build(
    picture: Picture,
    maps: Sequence[tuple[str, NDArray[np.floating[Any]]]],
    style: Style,
    *,
    query: str,
    place: Place,
    caption: str,
) -> Figure:
    """Draw a picture, and beside it each head's weights [rows, columns] over it, under a title."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from attnviz.drawing import charts
    from attnviz.drawing.fonts import Ruler, choose, spelled

    shaded = scaled([grid for _, grid in maps], style)
    titles = [visible(title) for title, _ in maps]
    families, missing = choose([*titles, visible(caption) if caption else "", visible(query)])
    ruler = Ruler(families, style.dpi, bold=len(choose(titles)[0]) == 1)
    pixels_y, pixels_x = picture.pixels.shape[:2]
    side = style.size or (_ALONE if len(maps) == 1 else _SIDE)
    unit = side / max(pixels_y, pixels_x)
    across_size, down_size = pixels_x * unit, pixels_y * unit
    panels = [("the picture", None), *zip(titles, shaded, strict=True)]
    across = min(len(panels), maps_a_line(len(panels)) if len(panels) > 2 else 2)
    down = -(-len(panels) // across)
    wrapped = [
        title_lines(ruler.wrapped(spelled(title, missing), _SIZE, across_size, title=True))
        for title, _ in panels
    ]
    above = max(map(len, wrapped)) * _SIZE * LEADING / 72 + _PAD
    notes = [spelled(visible(text), missing) for text in (query, caption) if text]
    width = _MARGIN * 2 + across * across_size + (across - 1) * _GAP + _BAR_ROOM
    notes = notes if paper.current().caption else []
    lines = [line for note in notes for line in ruler.wrapped(note, _NOTE, width - 2 * _MARGIN)]
    foot_y = len(lines) * _NOTE * LEADING / 72 + _PAD
    height = _MARGIN * 2 + down * (down_size + above) + (down - 1) * _GAP + foot_y
    figure = Figure(figsize=(width, height), dpi=style.dpi)
    for number, ((_, grid), title) in enumerate(zip(panels, wrapped, strict=True)):
        row, column = divmod(number, across)
        left = _MARGIN + column * (across_size + _GAP)
        top = height - _MARGIN - above - row * (down_size + above + _GAP)
        axes = figure.add_axes(
            (left / width, (top - down_size) / height, across_size / width, down_size / height)
        )
        image = picture.pixels if grid is None else tinted(picture, grid, style.palette)
        axes.imshow(image, interpolation="nearest", aspect="auto")
        axes.set_xticks([])
        axes.set_yticks([])
        for spine in axes.spines.values():
            spine.set_color(charts.GREY)
        if place:
            first, last, start, end = box(picture, int(place[0]), int(place[1]))
            corner = (start - 0.5, first - 0.5)
            for color, wide_line in _MARKS:
                frame = Rectangle(corner, end - start, last - first, fill=False)
                frame.set(edgecolor=color, linewidth=wide_line)
                axes.add_patch(frame)
        axes.set_title("\n".join(title), loc="left", fontsize=_SIZE, fontweight=ruler.title_weight,
                       family=ruler.families, pad=4, linespacing=1.0)  # fmt: skip
    left, bottom = width - _BAR_ROOM + 0.1, height - _MARGIN - above - down_size
    bar = figure.add_axes((left / width, bottom / height, _BAR / width, down_size / height))
    relative = style.normalize != "global" and len(maps) > 1
    top = 1.0 if relative else max(float(np.max(grid)) for _, grid in maps)
    colors = LinearSegmentedColormap.from_list(style.palette, anchors(style.palette))
    charts.color_bar(figure, bar, colors, style.ticks(top), style.meaning(len(maps)), _NOTE)
    charts.foot(figure, lines, _MARGIN, _NOTE * LEADING / 72)
    return figure
