"""Where everything goes on a fast picture, in pixels: maps in a grid, labels, colour bar, notes.

The proportions are those of :mod:`attnviz.drawing.heatmap_figure`; cells are whole pixels, so that
every edge is sharp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing.glyphs import Label, label, wrapped
from attnviz.drawing.labels import shorten, token_labels, visible
from attnviz.drawing.palette import masked_note
from attnviz.drawing.panels import LEADING, LONGEST_LABEL, RULED, Axis, axis, cells, maps_a_line
from attnviz.drawing.style import Style

NAME_SIZE, NOTE_SIZE, TICK_SIZE, BAR_SIZE = 8.0, 7.0, 7.0, 7.5
_LEAST_WIDTH = 3.2
"""A picture is at least so wide, in inches, for its title."""


@dataclass(frozen=True, slots=True)
class Side:
    """One axis of the maps, in pixels.

    ``edges`` has the first pixel of every cell and the end of the last; cells share a pixel
    where there are more tokens than pixels, ``pool`` tokens each.
    """

    axis: Axis
    cell: int
    count: int
    pool: int
    labels: tuple[Label, ...]

    @property
    def length(self) -> int:
        """In pixels."""
        return self.cell * self.count

    def center(self, place: int) -> int:
        """The middle of a token's cell."""
        return (2 * (place // self.pool) + 1) * self.cell // 2

    @property
    def widest(self) -> int:
        """The width of the widest label."""
        return max((name.width for name in self.labels), default=0)


class Sheet:
    """The places of everything on a picture of some maps of the same tokens.

    Args:
        sides: the tokens on the axes.
        maps: how many maps.
        style: how they look.
        caption: the first of the notes, in plain text.
        masked: whether there may be masked cells to explain.
        unselected: whether some of them may be keys that an indexer did not select.
    """

    def __init__(
        self,
        sides: Sides,
        maps: int,
        style: Style,
        *,
        caption: str = "",
        masked: bool = False,
        unselected: bool = False,
    ) -> None:
        across = maps_a_line(maps)
        down = -(-maps // across)
        dpi, size = style.dpi, style.size
        self.dpi, self.across, self.down = dpi, across, down
        queries, keys = len(sides.queries), len(sides.keys)
        high, wide = cells(queries, keys, across, down)
        if size is not None:
            high = wide = size / max(queries, keys)
        self.labelled, self.masked, self.palette = style.labels, masked, style.palette
        self.unselected = unselected
        self.rows = self._side(sides.queries, high)
        self.columns = self._side(sides.keys, wide)
        self.ruled = max(queries, keys) <= RULED and min(self.rows.cell, self.columns.cell) > 3
        spare = self.columns.cell * self.columns.axis.every - self.px(0.04)
        self.turned = self.columns.widest > spare
        self.title_size = 10.0 if across * down == 1 else 8.0
        self.title_line = round(self.title_size * LEADING * dpi / 72)
        self.margin, self.pad = self.px(0.12), self.px(0.08)
        self.name = label("query", NAME_SIZE, dpi)
        self.key_name = label("key (attended to)", NAME_SIZE, dpi)
        self.meaning = label(style.meaning(maps), BAR_SIZE, dpi)
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
            if note
            for piece in wrapped(note, NOTE_SIZE, dpi, self.width - 2 * self.margin)
        ]

    def px(self, inches: float) -> int:
        """Whole pixels of a length in inches."""
        return round(inches * self.dpi)

    @property
    def below(self) -> int:
        """The room for labels and the axis' name under the maps."""
        shown = (
            self.columns.widest if self.turned else round(self.columns.axis.size * self.dpi / 72)
        )
        return (shown if self.labelled else 0) + self.pad + self.px(0.22)

    def above(self, lines: int) -> int:
        """The room for a title of so many lines over each map."""
        return lines * self.title_line + self.pad

    def step_y(self, lines: int) -> int:
        """From the top of one map to the top of the next line's."""
        return self.rows.length + self.above(lines) + self.gap

    @property
    def step_x(self) -> int:
        """From the left of one map to the left of the next."""
        return self.columns.length + self.gap

    def bar_height(self) -> int:
        """The height of the colour bar."""
        least = self.meaning.width + self.px(0.1)
        return min(max(self.rows.length, least), self.px(4.0))

    def block_height(self, lines: int) -> int:
        """From the top of the first map to the end of the last."""
        return self.step_y(lines) * (self.down - 1) + self.rows.length

    def height(self, lines: int) -> int:
        """Of the whole picture, with titles of so many lines."""
        body = max(self.block_height(lines) + self.below, self.bar_height() + self.px(0.1))
        note = round(NOTE_SIZE * LEADING * self.dpi / 72)
        foot = len(self.notes) * note + (self.pad if self.notes else 0)
        return 2 * self.margin + self.above(lines) + body + foot

    def corner(self, place: int, lines: int) -> tuple[int, int]:
        """The top left pixel of a map, as (y, x)."""
        row, column = divmod(place, self.across)
        y = self.margin + self.above(lines) + row * self.step_y(lines)
        return y, self.margin + self.left + column * self.step_x

    def _side(self, tokens: Tokens, inches: float) -> Side:
        count = len(tokens)
        texts = tuple(shorten(text, LONGEST_LABEL) for text in token_labels(tokens))
        exact = inches * self.dpi
        pool = max(math.ceil(1 / exact), 1) if exact < 1 else 1
        cell = max(round(exact * pool), 1)
        set_as = axis(texts, cell / pool / self.dpi)
        points = math.floor(set_as.size * 4) / 4
        set_as = Axis(set_as.cell, texts, set_as.every, points)
        labels = tuple(label(text, points, self.dpi) for text in set_as.shown)
        return Side(set_as, cell, -(-count // pool), pool, labels if self.labelled else ())

    def _notes(self) -> list[str]:
        every = max(self.rows.axis.every, self.columns.axis.every)
        pool = max(self.rows.pool, self.columns.pool)
        note = masked_note(self.palette, unselected=self.unselected)
        notes = [note] if self.masked else []
        if every > 1 and self.labelled:
            notes.append(f"one token in {every} is labelled")
        if pool > 1:
            notes.append(f"{pool} tokens share a pixel, which shows the largest of their weights")
        if not all(name.complete for name in (*self.rows.labels, *self.columns.labels)):
            notes.append("shown as code points: characters missing from every installed font")
        return notes
