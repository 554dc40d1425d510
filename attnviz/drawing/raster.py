"""Pictures of attention maps as PNG files straight from arrays, a hundred times savefig's speed.

A picture is one array of palette indices. What all heads of a sentence share (labels, frames,
colour bar) is drawn once; a head costs its cells, its title and the compression.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing import glyphs, panels, paper, shades
from attnviz.drawing.fonts import CODED
from attnviz.drawing.labels import (
    TITLE_LINES,
    cell_number,
    shorten,
    title_lines,
    token_labels,
    visible,
)
from attnviz.drawing.palette import dark, ink, masked_note
from attnviz.drawing.png import Pixels, encode
from attnviz.drawing.style import Style
from attnviz.errors import UsageError

NAME_SIZE, NOTE_SIZE, TICK_SIZE, BAR_SIZE = 8.0, 7.0, 7.0, 7.5
_LEAST_WIDTH = 3.2  # a picture is at least so wide, in inches, for its title


@dataclass(frozen=True, slots=True)
class Side:
    """One axis of the maps, in pixels.

    ``edges`` has the first pixel of every cell and the end of the last; cells share a pixel
    where there are more tokens than pixels, ``pool`` tokens each.
    """

    axis: panels.Axis
    cell: int
    count: int
    pool: int
    labels: tuple[glyphs.Label, ...]

    @property
    def length(self) -> int:
        """In pixels."""
        return self.cell * self.count

    def center(self, token: int) -> int:
        """Return the middle of a token's cell."""
        return (2 * (token // self.pool) + 1) * self.cell // 2

    @property
    def widest(self) -> int:
        """The width of the widest label."""
        return max((name.width for name in self.labels), default=0)


class Sheet:
    """The places of everything on a picture of some maps of the same tokens."""

    def __init__(
        self,
        sides: Sides,
        maps: int,
        style: Style,
        *,
        caption: str = "",
        masked: bool = False,
        unselected: bool = False,
        columns: int | None = None,
        noted: bool = True,
    ) -> None:
        across = min(columns or panels.maps_a_line(maps), maps)
        down = -(-maps // across)
        dpi, size = style.dpi, style.size
        self.dpi, self.across, self.down = dpi, across, down
        queries, keys = len(sides.queries), len(sides.keys)
        cell_y, cell_x = panels.cells(queries, keys, across, down)
        if size is not None:
            cell_y = cell_x = size / max(queries, keys)
        self.labelled, self.masked, self.palette = style.labels, masked, style.palette
        self.unselected = unselected
        self.rows = self._side(sides.queries, cell_y)
        self.columns = self._side(sides.keys, cell_x)
        few = max(queries, keys) <= panels.RULED
        self.ruled = few and min(self.rows.cell, self.columns.cell) > 3
        spare = self.columns.cell * self.columns.axis.every - self.px(0.04)
        self.turned = self.columns.widest > spare
        self.title_size = 10.0 if across * down == 1 else 8.0
        self.title_line = round(self.title_size * panels.LEADING * dpi / 72)
        self.margin, self.pad = self.px(0.12), self.px(0.08)
        self.name = glyphs.label("query", NAME_SIZE, dpi)
        self.key_name = glyphs.label("key (attended to)", NAME_SIZE, dpi)
        self.meaning = glyphs.label(style.meaning(maps), BAR_SIZE, dpi)
        self.left = self.px(0.2) + self.rows.widest + self.pad
        self.gap = self.px(0.12)
        self.bar_width, self.bar_room = self.px(0.12), self.px(0.2 + 0.12 + 0.62)
        self.block_width = across * self.columns.length + (across - 1) * self.gap
        least = self.px(_LEAST_WIDTH)
        inner = max(self.block_width + self.bar_room, least)
        self.width = 2 * self.margin + self.left + inner
        room = self.columns.length if across > 1 else inner
        self.title_room = max(room, self.px(0.3))
        self.notes = [
            piece
            for note in [visible(caption) if caption else "", style.left_out, *self._notes()]
            if note and noted
            for piece in glyphs.wrapped(note, NOTE_SIZE, dpi, self.width - 2 * self.margin)
        ]

    def px(self, inches: float) -> int:
        """Whole pixels of a length in inches."""
        return round(inches * self.dpi)

    @property
    def below(self) -> int:
        """The room for labels and the axis' name under the maps."""
        labels = (
            self.columns.widest if self.turned else round(self.columns.axis.size * self.dpi / 72)
        )
        return (labels if self.labelled else 0) + self.pad + self.px(0.22)

    def above(self, lines: int) -> int:
        """Return the room for a title of so many lines over each map."""
        return lines * self.title_line + self.pad

    def step_y(self, lines: int) -> int:
        """From the top of one map to the top of the next line's."""
        return self.rows.length + self.above(lines) + self.gap

    @property
    def step_x(self) -> int:
        """From the left of one map to the left of the next."""
        return self.columns.length + self.gap

    def bar_height(self) -> int:
        """Return the height of the colour bar."""
        least = self.meaning.width + self.px(0.1)
        return min(max(self.rows.length, least), self.px(4.0))

    def block_height(self, lines: int) -> int:
        """From the top of the first map to the end of the last."""
        return self.step_y(lines) * (self.down - 1) + self.rows.length

    def height(self, lines: int) -> int:
        """Of the whole picture, with titles of so many lines."""
        body = max(self.block_height(lines) + self.below, self.bar_height() + self.px(0.1))
        note = round(NOTE_SIZE * panels.LEADING * self.dpi / 72)
        foot = len(self.notes) * note + (self.pad if self.notes else 0)
        return 2 * self.margin + self.above(lines) + body + foot

    def corner(self, number: int, lines: int) -> tuple[int, int]:
        """Return the top left pixel of a map, as (y, x)."""
        row, column = divmod(number, self.across)
        y = self.margin + self.above(lines) + row * self.step_y(lines)
        return y, self.margin + self.left + column * self.step_x

    def _side(self, tokens: Tokens, inches: float) -> Side:
        count = len(tokens)
        texts = tuple(shorten(text, panels.LONGEST_LABEL) for text in token_labels(tokens))
        exact = inches * self.dpi
        pool = max(math.ceil(1 / exact), 1) if exact < 1 else 1
        cell = max(round(exact * pool), 1)
        set_as = panels.axis(texts, cell / pool / self.dpi)
        points = math.floor(set_as.size * 4) / 4
        set_as = panels.Axis(set_as.cell, texts, set_as.every, points)
        labels = tuple(glyphs.label(text, points, self.dpi) for text in set_as.shown)
        return Side(set_as, cell, -(-count // pool), pool, labels if self.labelled else ())

    def _notes(self) -> list[str]:
        step = max(self.rows.axis.every, self.columns.axis.every)
        pool = max(self.rows.pool, self.columns.pool)
        note = masked_note(self.palette, unselected=self.unselected)
        notes = [note] if self.masked else []
        if step > 1 and self.labelled:
            notes.append(f"one token in {step} is labelled")
        if pool > 1:
            notes.append(f"{pool} tokens share a pixel, which shows the largest of their weights")
        if not all(name.complete for name in (*self.rows.labels, *self.columns.labels)):
            notes.append(CODED)
        return notes


Map = NDArray[np.floating[Any]]


class Raster:
    """Draws maps of the same tokens, each picture holding ``maps`` of them, as a Sheet has them."""

    def __init__(
        self, sides: Sides, maps: int = 1, style: Style | None = None, **looks: Any
    ) -> None:
        if maps < 1:
            raise UsageError("no attention map to draw: select at least one head")
        self.sides, self.maps, self.style = sides, maps, style or Style()
        self.palette = glyphs.colors(self.style.palette)
        self.sheet = Sheet(sides, maps, self.style, **looks)
        self._backgrounds: dict[int, Pixels] = {}
        tallest = self.sheet.height(TITLE_LINES)
        shades.check_pixels(self.sheet.width, tallest)
        self._canvas = np.empty((tallest, self.sheet.width), np.uint8)

    def png(self, maps: Sequence[tuple[str, Map]]) -> bytes:
        """Draw as many maps as this was made for: a title and the weights [T, S] each."""
        return encode(self._drawn(maps), self.palette, self.sheet.dpi)

    def box(self, maps: Sequence[tuple[str, Map]]) -> tuple[int, int, int, int]:
        """Where the maps stand in it: left, top, width and height; of several with their titles."""
        lines = max(len(self._wrapped(title)) for title, _ in maps)
        y, x = self.sheet.corner(0, lines)
        above = self.sheet.above(lines) if self.maps > 1 else 0
        return x, y - above, self.sheet.block_width, self.sheet.block_height(lines) + above

    def numbered_png(self, maps: Sequence[tuple[str, Map]]) -> bytes:
        """Return the same with the weights in the cells, where they fit."""
        sheet, rows, columns = self.sheet, self.sheet.rows, self.sheet.columns
        picture = self.palette[self._drawn(maps)]
        lines = max(len(self._wrapped(title)) for title, _ in maps)
        fits = min(rows.cell, columns.cell) >= panels.LEAST_NUMBERED * sheet.dpi
        for n, (_, weights) in enumerate(maps if fits else ()):
            y, x = sheet.corner(n, lines)
            for (row, column), weight in np.ndenumerate(np.ma.filled(weights, 0)):
                number = glyphs.label(cell_number(float(weight)), TICK_SIZE, sheet.dpi)
                middle_y, middle_x = y + rows.center(row), x + columns.center(column)
                color = ink("#" + bytes(picture[middle_y, middle_x]).hex())
                top = middle_y + round(0.36 * TICK_SIZE * sheet.dpi / 72) - number.baseline
                if abs(weight) >= 0.005:
                    glyphs.write(picture, number.ink, top, middle_x - number.width // 2, color)
        return encode(picture, None, sheet.dpi)

    def pixels(self, maps: Sequence[tuple[str, Map]]) -> Pixels:
        """Return the palette indices of such a picture, uint8 [height, width]."""
        return self._drawn(maps).copy()

    def _drawn(self, maps: Sequence[tuple[str, Map]]) -> Pixels:
        """Return the picture, in memory that the next one overwrites."""
        sheet = self.sheet
        weights = [shades.checked(array, self.sides) for _, array in maps]
        top = shades.largest(weights)
        titles = [self._wrapped(title) for title, _ in maps]
        lines = max(len(title) for title in titles)
        background = self._background(lines)
        picture = self._canvas[: background.shape[0]]
        np.copyto(picture, background)
        if not self.style.relative(self.maps):
            self._ticks(picture, lines, top)
        for n, (array, (_, masked), title) in enumerate(zip(weights, maps, titles, strict=True)):
            y, x = sheet.corner(n, lines)
            rows, columns = sheet.rows, sheet.columns
            scaled = shades.shades(array, self.style, top)
            self._cells(picture, y, x, glyphs.levels(scaled, masked, rows.pool, columns.pool))
            for number, text in enumerate(reversed(title)):
                label = glyphs.line(text, sheet.title_size, sheet.dpi, bold=True)
                baseline = y - sheet.pad - number * sheet.title_line + sheet.px(0.015)
                glyphs.paste(picture, label.clipped(sheet.title_room), baseline, x)
        return picture

    def _cells(self, picture: Pixels, y: int, x: int, levels: Pixels) -> None:
        """One map: whole cells, with a white hairline between them where they are few."""
        rows, columns = self.sheet.rows, self.sheet.columns
        strip = np.repeat(levels, columns.cell, axis=1)
        if self.sheet.ruled:
            strip[:, columns.cell :: columns.cell] = glyphs.WHITE
        down, across = picture.strides
        target = as_strided(picture[y:, x:], (rows.count, rows.cell, columns.length),
                            (down * rows.cell, down, across))  # fmt: skip
        target[...] = strip[:, None]
        if self.sheet.ruled:
            target[1:, 0] = glyphs.WHITE
        self._breaks(picture, y, x)

    def _breaks(self, picture: Pixels, y: int, x: int) -> None:
        """Draw a line where the sentences of a pair meet."""
        rows, columns = self.sheet.rows, self.sheet.columns
        color = glyphs.WHITE if dark(self.style.palette) else glyphs.BLACK
        width = 3 if self.sheet.ruled else 1
        for token in panels.sentence_breaks(self.sides.queries):
            first = y + token // rows.pool * rows.cell
            picture[first : first + width, x : x + columns.length] = color
        for token in panels.sentence_breaks(self.sides.keys):
            first = x + token // columns.pool * columns.cell
            picture[y : y + rows.length, first : first + width] = color

    def _wrapped(self, title: str) -> list[str]:
        sheet = self.sheet
        if not title:
            return []
        return title_lines(
            glyphs.wrapped(visible(title), sheet.title_size, sheet.dpi, sheet.title_room, bold=True)
        )

    def _background(self, lines: int) -> Pixels:
        """Everything but cells and titles, for titles of so many lines."""
        if lines not in self._backgrounds:
            sheet = self.sheet
            picture = np.full((sheet.height(lines), sheet.width), glyphs.WHITE, np.uint8)
            for number in range(self.maps):
                y, x = sheet.corner(number, lines)
                glyphs.frame(picture, y, x, sheet.rows.length, sheet.columns.length)
                if number % sheet.across == 0:
                    self._row_labels(picture, y, x)
                if number + sheet.across >= self.maps:
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
        for token, name in zip(rows.axis.places, rows.labels, strict=False):
            middle = y + rows.center(token)
            picture[middle, x - 3 : x - 1] = glyphs.GREY
            glyphs.paste(picture, name, middle + drop, x - sheet.px(0.05) - name.width)

    def _column_labels(self, picture: Pixels, y: int, x: int) -> None:
        sheet, columns = self.sheet, self.sheet.columns
        em = columns.axis.size * sheet.dpi / 72
        top = y + sheet.px(0.05)
        for token, name in zip(columns.axis.places, columns.labels, strict=False):
            middle = x + columns.center(token)
            picture[y + 1 : y + 3, middle] = glyphs.GREY
            if sheet.turned:
                upright = np.rot90(name.ink)
                glyphs.blend(picture, upright, top, middle + round(0.34 * em) - name.baseline)
            else:
                glyphs.paste(picture, name, top + round(0.85 * em), middle - name.width // 2)

    def _names(self, picture: Pixels, lines: int) -> None:
        """Write what the axes are."""
        sheet = self.sheet
        y, x = sheet.corner(0, lines)
        high = sheet.block_height(lines)
        ink = np.rot90(sheet.name.ink)
        room = sheet.margin + round(0.85 * 8 * sheet.dpi / 72)
        top = y + (high - ink.shape[0]) // 2
        glyphs.blend(picture, ink, top, room - sheet.name.baseline, glyphs.GREY_INK)
        last = min(self.maps, sheet.across) - 1
        _, right = sheet.corner(last, lines)
        middle = (x + right + sheet.columns.length) // 2
        bottom = y + high + sheet.below - sheet.px(0.04)
        left = middle - sheet.key_name.width // 2
        glyphs.paste(picture, sheet.key_name, bottom, left, glyphs.GREY_INK)
        height = picture.shape[0] - sheet.margin
        step = round(NOTE_SIZE * panels.LEADING * sheet.dpi / 72)
        for number, note in enumerate(reversed(sheet.notes)):
            text = glyphs.line(note, NOTE_SIZE, sheet.dpi)
            glyphs.paste(picture, text, height - number * step, sheet.margin, glyphs.GREY_INK)

    def _bar_place(self, lines: int) -> tuple[int, int]:
        sheet = self.sheet
        y, x = sheet.corner(0, lines)
        return y, x + sheet.block_width + sheet.px(0.2)

    def _bar(self, picture: Pixels, lines: int) -> None:
        """Draw the colour bar without its numbers."""
        sheet = self.sheet
        y, x = self._bar_place(lines)
        high = sheet.bar_height()
        gradient = np.rint(np.linspace(glyphs.LEVELS - 1, 0, high)).astype(np.uint8)
        picture[y : y + high, x : x + sheet.bar_width] = gradient[:, None]
        glyphs.frame(picture, y, x, high, sheet.bar_width)
        upright = np.rot90(sheet.meaning.ink)
        left = x + sheet.bar_width + sheet.px(0.56) - sheet.meaning.baseline
        glyphs.blend(picture, upright, y + (high - upright.shape[0]) // 2, left, glyphs.GREY_INK)

    def _ticks(self, picture: Pixels, lines: int, top: float) -> None:
        """Write the colour bar's numbers, from 0 to ``top``."""
        sheet = self.sheet
        y, x = self._bar_place(lines)
        high, right = sheet.bar_height() - 1, x + sheet.bar_width
        for share, text in self.style.ticks(top):
            middle = y + high - round(high * share)
            picture[middle, right + 1 : right + 4] = glyphs.GREY
            tick = glyphs.label(text, TICK_SIZE, sheet.dpi)
            drop = round(0.36 * TICK_SIZE * sheet.dpi / 72)
            glyphs.paste(picture, tick, middle + drop, right + sheet.px(0.06), glyphs.GREY_INK)


def heatmap_png(
    maps: Sequence[tuple[str, Map, Sides]],
    style: Style,
    caption: str = "",
    columns: int | None = None,
) -> tuple[bytes, tuple[int, int, int, int]]:
    """Draw maps [T, S] of the same tokens under titles, ``columns`` a line, as a PNG file.

    Also returns where the maps stand in it, see :meth:`Raster.box`.
    """
    titled = [(title, weights) for title, weights, _ in maps]
    masked = any(shades.hidden(weights) is not None for _, weights in titled)
    few = any(shades.unselected(weights) is not None for _, weights in titled)
    raster = _raster(maps[0][2], len(maps), style, caption=caption, masked=masked, unselected=few,
                     columns=columns, noted=paper.current().caption)  # fmt: skip
    small = len(maps) == 1 and max(titled[0][1].shape) <= panels.NUMBERED
    numbers = small if style.values is None else style.values
    return (raster.numbered_png if numbers else raster.png)(titled), raster.box(titled)


_raster = lru_cache(maxsize=4)(Raster)
"""What pictures of the same tokens share."""
