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

from attnviz.errors import UsageError
from attnviz.records import Sides
from attnviz.render import scaling
from attnviz.render.glyphs import label, line, wrapped
from attnviz.render.labels import TITLE_LINES, title_lines, visible
from attnviz.render.paint import (
    GREY,
    GREY_INK,
    LEVELS,
    WHITE,
    blend,
    colors,
    frame,
    paste,
    ticks,
)
from attnviz.render.palette import DEFAULT_PALETTE
from attnviz.render.panels import maps_a_line
from attnviz.render.png import Pixels, encode
from attnviz.render.scaling import DPI, binned, check_pixels, check_scale, checked, scaled
from attnviz.render.sheet import LEADING, NOTE_SIZE, TICK_SIZE, Sheet

Map = NDArray[np.floating[Any]]


class Raster:
    """Draws maps of the same tokens, each picture holding ``maps`` of them.

    Args:
        sides: the tokens on the axes.
        maps: how many maps a picture holds; one, or the heads of a layer in a grid.
        scale: ``row`` shows each weight as a share of its row's largest, ``global`` as a share of
            the largest in the picture.
        palette: one of :data:`attnviz.render.palette.PALETTES`.
        dpi: pixels an inch.
        size: the longer side of one map in inches; by default it follows from the tokens.
        labels: whether the tokens stand on the axes.

    Raises:
        UsageError: no such scale or palette, no map, or too many pixels.
    """

    def __init__(
        self,
        sides: Sides,
        maps: int = 1,
        *,
        scale: str = "row",
        palette: str = DEFAULT_PALETTE,
        dpi: float = DPI,
        size: float | None = None,
        labels: bool = True,
    ) -> None:
        check_scale(scale)
        if maps < 1:
            raise UsageError("no attention map to draw: select at least one head")
        self.sides, self.maps, self.scale = sides, maps, scale
        self.palette = colors(palette)
        across = maps_a_line(maps)
        meaning = "share of the row's largest weight" if scale == "row" else "attention weight"
        self.sheet = Sheet(
            sides, across, -(-maps // across), dpi=dpi, size=size, labels=labels, meaning=meaning
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
        top = max(float(array.max()) for array in weights)
        titles = [self._wrapped(title) for title, _ in maps]
        lines = max(len(title) for title in titles)
        background = self._background(lines)
        picture = self._canvas[: background.shape[0]]
        np.copyto(picture, background)
        if self.scale == "global":
            self._ticks(picture, lines, top)
        for place, (array, title) in enumerate(zip(weights, titles, strict=True)):
            y, x = sheet.corner(place, lines)
            self._cells(picture, y, x, array, top)
            for number, text in enumerate(reversed(title)):
                found = line(text, sheet.title_size, sheet.dpi, bold=True).clipped(sheet.title_room)
                baseline = y - sheet.pad - number * sheet.title_line + sheet.px(0.015)
                paste(picture, found, baseline, x)
        return picture

    def _cells(self, picture: Pixels, y: int, x: int, weights: scaling.Map, top: float) -> None:
        """One map: whole cells, with a white hairline between them where they are few."""
        rows, columns = self.sheet.rows, self.sheet.columns
        shares, _ = scaled(weights, self.scale, top)
        shares = binned(shares, rows.pool, columns.pool)
        levels = np.rint(shares * (LEVELS - 1)).astype(np.uint8)
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
            if self.scale == "row":
                self._ticks(picture, lines, 1.0)
            self._backgrounds[lines] = picture
        return self._backgrounds[lines]

    def _row_labels(self, picture: Pixels, y: int, x: int) -> None:
        sheet, rows = self.sheet, self.sheet.rows
        drop = round(0.34 * rows.axis.size * sheet.dpi / 72)
        for place, found in zip(rows.axis.places, rows.labels, strict=False):
            middle = y + rows.center(place)
            picture[middle, x - 3 : x - 1] = GREY
            paste(picture, found, middle + drop, x - sheet.px(0.05) - found.width)

    def _column_labels(self, picture: Pixels, y: int, x: int) -> None:
        sheet, columns = self.sheet, self.sheet.columns
        em = columns.axis.size * sheet.dpi / 72
        top = y + sheet.px(0.05)
        for place, found in zip(columns.axis.places, columns.labels, strict=False):
            middle = x + columns.center(place)
            picture[y + 1 : y + 3, middle] = GREY
            if sheet.turned:
                turned = np.rot90(found.ink)
                blend(picture, turned, top, middle + round(0.34 * em) - found.baseline)
            else:
                paste(picture, found, top + round(0.85 * em), middle - found.width // 2)

    def _names(self, picture: Pixels, lines: int) -> None:
        """What the axes are."""
        sheet = self.sheet
        y, x = sheet.corner(0, lines)
        high = sheet.block_height(lines)
        turned = np.rot90(sheet.name.ink)
        room = sheet.margin + round(0.85 * 8 * sheet.dpi / 72)
        blend(
            picture,
            turned,
            y + (high - turned.shape[0]) // 2,
            room - sheet.name.baseline,
            GREY_INK,
        )
        last = min(self.maps, sheet.across) - 1
        _, right = sheet.corner(last, lines)
        middle = (x + right + sheet.columns.length) // 2
        bottom = y + high + sheet.below - sheet.px(0.04)
        paste(picture, sheet.key_name, bottom, middle - sheet.key_name.width // 2, GREY_INK)
        height = picture.shape[0] - sheet.margin
        step = round(NOTE_SIZE * LEADING * sheet.dpi / 72)
        for number, note in enumerate(reversed(sheet.notes)):
            found = line(note, NOTE_SIZE, sheet.dpi)
            paste(picture, found, height - number * step, sheet.margin, GREY_INK)

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
        for value, text in ticks(top):
            middle = y + high - round(high * value / (top or 1.0))
            picture[middle, right + 1 : right + 4] = GREY
            found = label(text, TICK_SIZE, sheet.dpi)
            drop = round(0.36 * TICK_SIZE * sheet.dpi / 72)
            paste(picture, found, middle + drop, right + sheet.px(0.06), GREY_INK)


def raster_png(
    maps: Sequence[tuple[str, Map, Sides]],
    *,
    scale: str = "row",
    palette: str = DEFAULT_PALETTE,
    dpi: float = DPI,
    size: float | None = None,
    labels: bool = True,
) -> bytes:
    """One map, or several of the same tokens in a grid, as a PNG file.

    The counterpart of :func:`attnviz.render.figure.heatmap_figure`; arguments as in
    :class:`Raster`.

    Raises:
        InputError: weights that do not fit the tokens or are not finite.
        UsageError: no map, no such scale or palette, or maps of different tokens.
    """
    if not maps:
        raise UsageError("no attention map to draw: select at least one head")
    sides = maps[0][2]
    if any(other != sides for _, _, other in maps):
        raise UsageError("maps of different tokens do not share a picture; draw them one by one")
    raster = Raster(
        sides, len(maps), scale=scale, palette=palette, dpi=dpi, size=size, labels=labels
    )
    return raster.png([(title, weights) for title, weights, _ in maps])
