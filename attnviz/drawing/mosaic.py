"""All heads at a glance: a mosaic of small maps, layers downwards and heads across."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.drawing import glyphs, shades
from attnviz.drawing.fonts import Ruler, choose, spelled
from attnviz.drawing.labels import tick_step, title_lines, visible
from attnviz.drawing.palette import masked_note
from attnviz.drawing.png import Pixels, encode
from attnviz.drawing.style import Style
from attnviz.errors import InputError, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LARGEST, _USUAL, _SMALLEST = 1.4, 0.7, 0.2
"""The side of one map in inches: of a few heads, of twelve, of hundreds."""
_PAGE, _WIDEST_PAGE = 8.4, 16.0
"""How wide heads of those sides get together, before the next smaller one is taken."""
_NUMBER_SIZE, _NAME_SIZE, _TITLE_SIZE, _NOTE_SIZE = 8.0, 8.0, 10.0, 7.0

Maps = Mapping[tuple[int, int], NDArray[np.floating[Any]]]


@dataclass(frozen=True, slots=True)
class Mosaic:
    """The assembled cells."""

    levels: Pixels  # palette indices, uint8 [height, width], with white gaps
    # the layer of each line, from the top; ``heads`` the head of each column
    layers: tuple[int, ...]
    heads: tuple[int, ...]
    step: tuple[int, int]  # from the start of a tile to the start of the next, in pixels, as (y, x)
    tile: tuple[int, int]  # the tile's own height and width
    pool: int  # tokens that share a pixel, along queries and keys
    top: float  # the largest weight
    masked: bool  # whether there are masked cells
    unselected: bool  # whether some of them are keys that an indexer did not select


def assemble(maps: Maps, style: Style) -> Mosaic:
    """Scale maps [T, S] by (layer, head), all of the same shape, and lay them out."""
    if not maps:
        raise UsageError("no attention map to draw: select at least one head")
    shape = next(iter(maps.values())).shape
    for (layer, head), array in maps.items():
        if array.shape != shape:
            raise InputError(f"head {layer}.{head} has a map of {array.shape}, others of {shape}")
        if not np.isfinite(array).all():
            raise InputError(f"head {layer}.{head} holds NaN or infinite weights")
    layers = tuple(sorted({layer for layer, _ in maps}))
    heads = tuple(sorted({head for _, head in maps}))
    dpi = style.dpi
    side = round(dpi * (style.size or _side(len(heads))))
    pool = max(math.ceil(max(shape) / side), 1)
    cell = max(side * pool // max(shape), 1)
    tile_y, tile_x = (-(-n // pool) * cell for n in shape)
    gap = max(round(0.03 * dpi), 2)
    step = (tile_y + gap, tile_x + gap)
    height, width = step[0] * len(layers) - gap, step[1] * len(heads) - gap
    shades.check_pixels(width, height)
    levels = np.full((height, width), glyphs.WHITE, np.uint8)
    filled = {key: np.ma.filled(array, 0).astype(np.float64) for key, array in maps.items()}
    top = shades.largest(filled.values())
    for (layer, head), array in filled.items():
        scaled = shades.shades(array, style, top)
        tile = glyphs.levels(scaled, maps[layer, head], pool, pool)
        y, x = layers.index(layer) * step[0], heads.index(head) * step[1]
        levels[y : y + tile_y, x : x + tile_x] = tile.repeat(cell, 0).repeat(cell, 1)
    masked = any(shades.hidden(array) is not None for array in maps.values())
    few = any(shades.unselected(array) is not None for array in maps.values())
    return Mosaic(levels, layers, heads, step, (tile_y, tile_x), pool, top, masked, few)


def _side(heads: int) -> float:
    """Of a tile, in inches, for so many in a line."""
    usual = min(max(_PAGE / heads, _USUAL), _LARGEST)
    return min(usual, max(_WIDEST_PAGE / heads, _SMALLEST))


def note(mosaic: Mosaic, style: Style) -> str:
    """Return what a reader has to know about the colours."""
    text = style.note(mosaic.top, len(mosaic.layers) * len(mosaic.heads))
    if style.left_out:
        text += f"; {style.left_out}"
    if mosaic.masked:
        text += f"; {masked_note(style.palette, unselected=mosaic.unselected)}"
    if mosaic.pool > 1:
        text += f"; {mosaic.pool} tokens share a pixel, which shows the largest of their weights"
    return f"queries downwards, keys across; {text}"


def mosaic_figure(maps: Maps, style: Style, title: str, caption: str, format: str) -> Any:
    """Draw the mosaic, of weights [T, S] by (layer, head): a PNG on pixels of our own."""
    if format == "png":
        return boxed_png(maps, style, title, caption)[0]
    from attnviz.drawing import canvas

    return canvas.rendered(lambda: _build(maps, title, caption, style), format, style.dpi)


def boxed_png(
    maps: Maps, style: Style, title: str, caption: str
) -> tuple[bytes, tuple[int, int, int, int]]:
    """Draw a PNG file, and say where the maps stand in it: left, top, width and height."""
    table, dpi = glyphs.colors(style.palette), style.dpi
    mosaic = assemble(maps, style)
    margin, pad = round(0.12 * dpi), round(0.08 * dpi)
    digits = round(_NUMBER_SIZE * 1.2 * dpi / 72)
    across, down = (glyphs.label(name, _NAME_SIZE, dpi) for name in ("head →", "layer ↓"))
    rows = [glyphs.label(str(layer), _NUMBER_SIZE, dpi) for layer in mosaic.layers]
    left = margin + max([down.width, *(name.width for name in rows)]) + pad
    height, width = mosaic.levels.shape
    full = max(left + width + margin, round(2.4 * dpi))
    room = full - 2 * margin
    lines = glyphs.wrapped(visible(title), _TITLE_SIZE, dpi, room, bold=True) if title else []
    lines = title_lines(lines)
    title_line = round(_TITLE_SIZE * 1.3 * dpi / 72)
    notes = [
        piece
        for text in (visible(caption) if caption else "", note(mosaic, style))
        if text
        for piece in glyphs.wrapped(text, _NOTE_SIZE, dpi, room)
    ]
    note_line = round(_NOTE_SIZE * 1.2 * dpi / 72)
    top = margin + len(lines) * title_line + (pad if lines else 0) + digits + pad
    picture = np.full(
        (top + height + pad + len(notes) * note_line + margin, full), glyphs.WHITE, np.uint8
    )
    picture[top : top + height, left : left + width] = mosaic.levels
    for number, text in enumerate(lines):
        baseline = margin + number * title_line + round(0.9 * _TITLE_SIZE * dpi / 72)
        glyphs.paste(picture, glyphs.line(text, _TITLE_SIZE, dpi, bold=True), baseline, margin)
    glyphs.paste(picture, down, top - pad, margin, glyphs.GREY_INK)
    widest = max(glyphs.label(str(head), _NUMBER_SIZE, dpi).width for head in mosaic.heads)
    step = tick_step(math.ceil((widest + 4) / mosaic.step[1]))
    for number, head in enumerate(mosaic.heads):
        if number % step == 0:
            name = glyphs.label(str(head), _NUMBER_SIZE, dpi)
            x = left + number * mosaic.step[1] + (mosaic.tile[1] - name.width) // 2
            glyphs.paste(picture, name, top - pad // 2, x)
    step = tick_step(math.ceil(digits / mosaic.step[0]))
    drop = round(0.36 * _NUMBER_SIZE * dpi / 72)
    for number, name in enumerate(rows):
        if number % step == 0:
            y = top + number * mosaic.step[0] + mosaic.tile[0] // 2
            glyphs.paste(picture, name, y + drop, left - pad - name.width)
    if len(mosaic.heads) > 2:
        glyphs.blend(
            picture, across.ink, top - pad // 2 - digits - across.baseline, left, glyphs.GREY_INK
        )
    for number, text in enumerate(notes):
        baseline = top + height + pad + number * note_line + round(0.8 * _NOTE_SIZE * dpi / 72)
        glyphs.paste(picture, glyphs.line(text, _NOTE_SIZE, dpi), baseline, margin, glyphs.GREY_INK)
    return encode(picture, table, dpi), (left, top, width, height)


def _build(maps: Maps, title: str, caption: str, style: Style) -> Figure:
    from matplotlib.colors import ListedColormap
    from matplotlib.figure import Figure

    from attnviz.drawing.charts import GREY

    tiles, dpi = assemble(maps, style), style.dpi
    title = visible(title) if title else ""
    caption = visible(caption) if caption else ""
    families, missing = choose([title, caption])
    ruler = Ruler(families, dpi, bold=len(choose([title])[0]) == 1)
    map_y, map_x = (n / dpi for n in tiles.levels.shape)
    width = max(0.7 + map_x, 2.4)
    lines = title_lines(ruler.wrapped(spelled(title, missing), 10, width - 0.24, title=True))
    notes = [
        line
        for text in (spelled(caption, missing), note(tiles, style))
        if text
        for line in ruler.wrapped(text, 7, width - 0.24)
    ]
    top, below = 0.5 + 0.18 * len(lines), 0.15 + 0.12 * len(notes)
    height = top + map_y + below
    figure = Figure(figsize=(width, height), dpi=dpi)
    axes = figure.add_axes((0.55 / width, below / height, map_x / width, map_y / height))
    table = ListedColormap(glyphs.colors(style.palette) / 255)
    axes.imshow(tiles.levels, cmap=table, vmin=0, vmax=255, interpolation="nearest",
                aspect="auto")  # fmt: skip
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, pad=2, labelsize=8, top=True, labeltop=True)
    axes.tick_params(bottom=False, labelbottom=False)
    for ticks, names, step, tile in (
        (axes.set_xticks, tiles.heads, tiles.step[1], tiles.tile[1]),
        (axes.set_yticks, tiles.layers, tiles.step[0], tiles.tile[0]),
    ):
        ticks([number * step + tile / 2 for number in range(len(names))], [str(n) for n in names])
    axes.xaxis.set_label_position("top")
    axes.set_xlabel("head", fontsize=8, color=GREY, labelpad=3)
    axes.set_ylabel("layer", fontsize=8, color=GREY, labelpad=3)
    if lines:
        figure.text(0.12 / width, 1 - 0.1 / height, "\n".join(lines), fontsize=10,
                    fontweight=ruler.title_weight, family=families, va="top")  # fmt: skip
    figure.text(0.12 / width, 0.08 / height, "\n".join(notes), fontsize=7, color=GREY,
                family=families, va="bottom")  # fmt: skip
    return figure
