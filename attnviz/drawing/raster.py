"""Pictures of attention maps as PNG files straight from arrays, a hundred times savefig's speed.

A picture is one array of palette indices. What all heads of a sentence share (labels, frames,
colour bar) is drawn once; a head costs its cells, its title and the compression.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from attnviz.core.tokens import Sides
from attnviz.drawing import shades
from attnviz.drawing.glyphs import label, line, wrapped
from attnviz.drawing.labels import TITLE_LINES, title_lines, visible
from attnviz.drawing.paint import (
    BLACK,
    GREY,
    GREY_INK,
    LEVELS,
    MASKED,
    UNSELECTED,
    WHITE,
    blend,
    colors,
    frame,
    paste,
)
from attnviz.drawing.palette import dark
from attnviz.drawing.panels import LEADING, sentence_breaks
from attnviz.drawing.png import Pixels, encode
from attnviz.drawing.shades import (
    binned,
    binned_mask,
    binned_unselected,
    check_pixels,
    checked,
    hidden,
    largest,
    unselected,
)
from attnviz.drawing.sheet import NOTE_SIZE, TICK_SIZE, Sheet
from attnviz.drawing.style import Style
from attnviz.errors import UsageError

Map = NDArray[np.floating[Any]]


class Raster:
    """Draws maps of the same tokens, each picture holding ``maps`` of them.

    Args:
        sides: the tokens on the axes.
        maps: how many maps a picture holds; one, or the heads of a layer in a grid.
        style: how they look; weights in the cells are left to figures.
        caption: stands below, such as the model and the text.
        masked: whether masked cells may occur, which a note then explains.
        unselected: whether some of them may be keys that an indexer did not select.

    Raises:
        UsageError: no map, or too many pixels.
    """

    def __init__(
        self,
        sides: Sides,
        maps: int = 1,
        style: Style | None = None,
        *,
        caption: str = "",
        masked: bool = False,
        unselected: bool = False,
    ) -> None:
        if maps < 1:
            raise UsageError("no attention map to draw: select at least one head")
        self.sides, self.maps, self.style = sides, maps, style or Style()
        self.palette = colors(self.style.palette)
        self.sheet = Sheet(
            sides, maps, self.style, caption=caption, masked=masked, unselected=unselected
        )
        self._backgrounds: dict[int, Pixels] = {}
        tallest = self.sheet.height(TITLE_LINES)
        check_pixels(self.sheet.width, tallest)
        self._canvas = np.empty((tallest, self.sheet.width), np.uint8)

    def png(self, maps: Sequence[tuple[str, Map]]) -> bytes:
        """A picture of as many maps as this was made for: a title and the weights [T, S] each.

        Raises:
            InputError: weights that do not fit the tokens or are not finite.
        """
        return encode(self._drawn(maps), self.palette, self.sheet.dpi)

    def pixels(self, maps: Sequence[tuple[str, Map]]) -> Pixels:
        """The palette indices of such a picture, uint8 [height, width]."""
        return self._drawn(maps).copy()

    def _drawn(self, maps: Sequence[tuple[str, Map]]) -> Pixels:
        """The picture, in memory that the next one overwrites."""
        sheet = self.sheet
        weights = [checked(array, self.sides) for _, array in maps]
        masks = [(hidden(array), unselected(array)) for _, array in maps]
        top = largest(weights)
        titles = [self._wrapped(title) for title, _ in maps]
        lines = max(len(title) for title in titles)
        background = self._background(lines)
        picture = self._canvas[: background.shape[0]]
        np.copyto(picture, background)
        if not self.style.relative(self.maps):
            self._ticks(picture, lines, top)
        for place, (array, masked, title) in enumerate(zip(weights, masks, titles, strict=True)):
            y, x = sheet.corner(place, lines)
            self._cells(picture, y, x, shades.shades(array, self.style, top), *masked)
            for number, text in enumerate(reversed(title)):
                label = line(text, sheet.title_size, sheet.dpi, bold=True).clipped(sheet.title_room)
                baseline = y - sheet.pad - number * sheet.title_line + sheet.px(0.015)
                paste(picture, label, baseline, x)
        return picture

    def _cells(
        self,
        picture: Pixels,
        y: int,
        x: int,
        shown: shades.Map,
        mask: shades.Mask | None,
        left_out: shades.Mask | None,
    ) -> None:
        """One map: whole cells, with a white hairline between them where they are few."""
        rows, columns = self.sheet.rows, self.sheet.columns
        shown = binned(shown, rows.pool, columns.pool)
        levels = np.rint(shown * (LEVELS - 1)).astype(np.uint8)
        if mask is not None:
            levels[binned_mask(mask, rows.pool, columns.pool)] = MASKED
            if left_out is not None:
                blocks = binned_unselected(left_out, mask, rows.pool, columns.pool)
                levels[blocks] = UNSELECTED
        wide = np.repeat(levels, columns.cell, axis=1)
        if self.sheet.ruled:
            wide[:, columns.cell :: columns.cell] = WHITE
        down, across = picture.strides
        target = as_strided(
            picture[y:, x:],
            (rows.count, rows.cell, columns.length),
            (down * rows.cell, down, across),
        )
        target[...] = wide[:, None]
        if self.sheet.ruled:
            target[1:, 0] = WHITE
        self._breaks(picture, y, x)

    def _breaks(self, picture: Pixels, y: int, x: int) -> None:
        """A line where the sentences of a pair meet."""
        rows, columns = self.sheet.rows, self.sheet.columns
        color, width = WHITE if dark(self.style.palette) else BLACK, 3 if self.sheet.ruled else 1
        for place in sentence_breaks(self.sides.queries):
            first = y + place // rows.pool * rows.cell
            picture[first : first + width, x : x + columns.length] = color
        for place in sentence_breaks(self.sides.keys):
            first = x + place // columns.pool * columns.cell
            picture[y : y + rows.length, first : first + width] = color

    def _wrapped(self, title: str) -> list[str]:
        sheet = self.sheet
        if not title:
            return []
        return title_lines(
            wrapped(visible(title), sheet.title_size, sheet.dpi, sheet.title_room, bold=True)
        )

    def _background(self, lines: int) -> Pixels:
        """Everything but cells and titles, for titles of so many lines."""
        if lines not in self._backgrounds:
            sheet = self.sheet
            picture = np.full((sheet.height(lines), sheet.width), WHITE, np.uint8)
            for place in range(self.maps):
                y, x = sheet.corner(place, lines)
                frame(picture, y, x, sheet.rows.length, sheet.columns.length)
                if place % sheet.across == 0:
                    self._row_labels(picture, y, x)
                if place + sheet.across >= self.maps:
                    self._column_labels(picture, y + sheet.rows.length, x)
            self._names(picture, lines)
            self._bar(picture, lines)
            if self.style.relative(self.maps):
                self._ticks(picture, lines, 1.0)
            self._backgrounds[lines] = picture
        return self._backgrounds[lines]

    def _row_labels(self, picture: Pixels, y: int, x: int) -> None:
        sheet, rows = self.sheet, self.sheet.rows
        drop = round(0.34 * rows.axis.size * sheet.dpi / 72)
        for place, name in zip(rows.axis.places, rows.labels, strict=False):
            middle = y + rows.center(place)
            picture[middle, x - 3 : x - 1] = GREY
            paste(picture, name, middle + drop, x - sheet.px(0.05) - name.width)

    def _column_labels(self, picture: Pixels, y: int, x: int) -> None:
        sheet, columns = self.sheet, self.sheet.columns
        em = columns.axis.size * sheet.dpi / 72
        top = y + sheet.px(0.05)
        for place, name in zip(columns.axis.places, columns.labels, strict=False):
            middle = x + columns.center(place)
            picture[y + 1 : y + 3, middle] = GREY
            if sheet.turned:
                turned = np.rot90(name.ink)
                blend(picture, turned, top, middle + round(0.34 * em) - name.baseline)
            else:
                paste(picture, name, top + round(0.85 * em), middle - name.width // 2)

    def _names(self, picture: Pixels, lines: int) -> None:
        """What the axes are."""
        sheet = self.sheet
        y, x = sheet.corner(0, lines)
        high = sheet.block_height(lines)
        turned = np.rot90(sheet.name.ink)
        room = sheet.margin + round(0.85 * 8 * sheet.dpi / 72)
        blend(
            picture, turned, y + (high - turned.shape[0]) // 2, room - sheet.name.baseline, GREY_INK
        )
        last = min(self.maps, sheet.across) - 1
        _, right = sheet.corner(last, lines)
        middle = (x + right + sheet.columns.length) // 2
        bottom = y + high + sheet.below - sheet.px(0.04)
        paste(picture, sheet.key_name, bottom, middle - sheet.key_name.width // 2, GREY_INK)
        height = picture.shape[0] - sheet.margin
        step = round(NOTE_SIZE * LEADING * sheet.dpi / 72)
        for number, note in enumerate(reversed(sheet.notes)):
            written = line(note, NOTE_SIZE, sheet.dpi)
            paste(picture, written, height - number * step, sheet.margin, GREY_INK)

    def _bar_place(self, lines: int) -> tuple[int, int]:
        sheet = self.sheet
        y, x = sheet.corner(0, lines)
        return y, x + sheet.block_width + sheet.px(0.2)

    def _bar(self, picture: Pixels, lines: int) -> None:
        """The colour bar without its numbers."""
        sheet = self.sheet
        y, x = self._bar_place(lines)
        high = sheet.bar_height()
        gradient = np.rint(np.linspace(LEVELS - 1, 0, high)).astype(np.uint8)
        picture[y : y + high, x : x + sheet.bar_width] = gradient[:, None]
        frame(picture, y, x, high, sheet.bar_width)
        turned = np.rot90(sheet.meaning.ink)
        left = x + sheet.bar_width + sheet.px(0.56) - sheet.meaning.baseline
        blend(picture, turned, y + (high - turned.shape[0]) // 2, left, GREY_INK)

    def _ticks(self, picture: Pixels, lines: int, top: float) -> None:
        """The colour bar's numbers, from 0 to ``top``."""
        sheet = self.sheet
        y, x = self._bar_place(lines)
        high, right = sheet.bar_height() - 1, x + sheet.bar_width
        for share, text in self.style.ticks(top):
            middle = y + high - round(high * share)
            picture[middle, right + 1 : right + 4] = GREY
            tick = label(text, TICK_SIZE, sheet.dpi)
            drop = round(0.36 * TICK_SIZE * sheet.dpi / 72)
            paste(picture, tick, middle + drop, right + sheet.px(0.06), GREY_INK)


def raster_png(maps: Sequence[tuple[str, Map, Sides]], style: Style | None = None) -> bytes:
    """One map, or several of the same tokens in a grid, as a PNG file.

    The counterpart of :func:`attnviz.drawing.figure.heatmap_figure`, for which see the arguments.

    Raises:
        InputError: weights that do not fit the tokens or are not finite.
        UsageError: no map, or maps of different tokens.
    """
    if not maps:
        raise UsageError("no attention map to draw: select at least one head")
    sides = maps[0][2]
    if any(other != sides for _, _, other in maps):
        raise UsageError("maps of different tokens do not share a picture; draw them one by one")
    masked = any(hidden(weights) is not None for _, weights, _ in maps)
    few = any(unselected(weights) is not None for _, weights, _ in maps)
    raster = Raster(sides, len(maps), style, masked=masked, unselected=few)
    return raster.png([(title, weights) for title, weights, _ in maps])
