"""One attention map in the terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.style import Style as Paint
from rich.text import Text

from attnviz.core.tokens import Sides
from attnviz.drawing import labels, shades
from attnviz.drawing.palette import UNSELECTED, ink, ramp
from attnviz.drawing.panels import sentence_breaks
from attnviz.drawing.style import DECADES, Style

ASCII_RAMP = " .:-=+*#%@"
"""Rising density, for terminals without colours: one character a tenth."""

_MOST_LINES = 64
_NUMBERS_WIDTH, _NUMBERS_WIDEST = 5, 16
_LEAST_GUTTER = 8
_UPRIGHT_HEIGHT = 10
_LISTED = 256


@dataclass(frozen=True, slots=True)
class _Layout:
    """How a map is laid out: widths in cells, how many tokens share a row or column."""

    gutter: int
    cell: int
    rows: int
    columns: int
    half: bool
    numbers: bool

    @property
    def listed(self) -> bool:
        """Whether columns carry numbers instead of tokens."""
        return self.cell == 1


def _plan(shape: tuple[int, int], widths: tuple[int, int], width: int, blocks: bool) -> _Layout:
    """Choose a layout for ``shape`` in ``width`` cells; ``widths``: longest query and key label."""
    queries, keys = shape
    digits = len(str(queries - 1))
    long = queries > _MOST_LINES
    gutter = min(widths[0], max(width // 4, _LEAST_GUTTER))
    if keys * _NUMBERS_WIDTH <= width - gutter - 2 and not long:
        room = width - gutter - 2
        cell = max(min(room // keys, widths[1] + 1, _NUMBERS_WIDEST), _NUMBERS_WIDTH)
        return _Layout(gutter, cell, 1, 1, False, True)
    numbered = long * (digits + 1)
    gutter = min(widths[0] + numbered, max(width // 4, _LEAST_GUTTER + numbered))
    for cell in (3, 2) if keys <= 24 else (2,):
        narrow = min(gutter, width - 2 - keys * cell)
        if narrow >= min(gutter, _LEAST_GUTTER + numbered):
            half = blocks and long
            rows = -(-queries // (_MOST_LINES * (1 + half)))
            return _Layout(narrow, cell, rows, 1, half, False)
    gutter = min(widths[0] + digits + 1, max(width // 4, _LEAST_GUTTER + digits + 1))
    gutter = max(min(gutter, width - 2 - keys), min(gutter, 5 + digits + 1))
    columns = -(-keys // (width - gutter - 2))
    half = blocks and queries > 24
    rows = -(-queries // (_MOST_LINES * (1 + half)))
    if columns > 1:
        gutter = digits if rows > 1 or queries == keys else gutter
        columns = -(-keys // (width - gutter - 2))
        rows = max(rows, columns) if queries == keys else rows
        columns = rows if queries == keys else columns
    return _Layout(gutter, 1, rows, columns, half, False)


@lru_cache(maxsize=65536)
def _pair(ink: str | None, ground: str | None) -> Paint:
    return Paint(color=ink, bgcolor=ground)


class TerminalMap:
    """A renderable map; see :func:`attnviz.drawing.terminal.heatmap` for the arguments."""

    AXES: ClassVar = "↓ queries  → keys (attended to)"
    BLANK: ClassVar = "not allowed"
    CROSS: ClassVar = "not selected by the indexer"

    def __init__(
        self,
        weights: NDArray[np.floating[Any]],
        sides: Sides,
        *,
        title: str,
        style: Style,
        top: float | None,
    ) -> None:
        self.weights = shades.checked(weights, sides)
        self.sides = sides
        self.title = title
        self.style = style
        self.relative = style.normalize == "row" or (style.normalize == "head" and top is not None)
        self.shades: shades.Map = shades.shades(self.weights, style, top)
        self.mask, self.left_out = shades.hidden(weights), shades.unselected(weights)
        self.top = float(np.abs(self.weights).max()) if top is None else top
        self.ramp = ramp(style.palette)
        self.breaks = (sentence_breaks(sides.queries), sentence_breaks(sides.keys))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw for this console: its width, colours and encoding."""
        colors = console.color_system in {"truecolor", "256"} and not console.no_color
        ascii_only = options.ascii_only
        queries = labels.row_labels(self.sides.queries, ascii_only=ascii_only)
        keys = labels.token_labels(self.sides.keys, ascii_only=ascii_only)
        widths = (max(map(cell_len, queries)), max(map(cell_len, keys)))
        shape = (len(queries), len(keys))
        width = max(options.max_width, 16)
        room = width - len(self.breaks[1])
        plan = _plan(shape, widths, room, colors and not ascii_only)
        if self.title:
            yield Text(labels.visible(self.title, ascii_only=ascii_only), style="bold")
        yield from self._header(keys, plan, ascii_only)
        yield from self._body(queries, plan, colors, ascii_only)
        yield from self._legend(plan, shape, width, colors, ascii_only)
        alike = labels.token_labels(self.sides.queries, ascii_only=ascii_only) == keys
        if plan.listed and plan.columns == 1 and (plan.half or not alike) and len(keys) <= _LISTED:
            yield from _index("tokens" if alike else "keys", keys, width)
        if plan.half and plan.rows == 1 and not alike and len(queries) <= _LISTED:
            yield from _index("queries", queries, width)

    def _header(self, keys: Sequence[str], plan: _Layout, ascii_only: bool) -> Iterator[Text]:
        margin = " " * (plan.gutter + 1)
        if plan.listed:
            bins = -(-len(keys) // plan.columns)
            step = labels.tick_step(len(str(len(keys))) + 1)
            line = margin
            for column in range(0, bins, step):
                line += f"{column * plan.columns:<{step}}"
            line = self._spaced(line[: plan.gutter + 1 + bins + 4], plan)
            yield Text(line.rstrip(), style="dim", no_wrap=True)
        elif plan.numbers:
            line = "".join(
                self._gap(column, plan)
                + labels.fit(key, plan.cell - 1, "center", ascii_only=ascii_only)
                + " "
                for column, key in enumerate(keys)
            )
            yield Text(margin + " " + line[:-1].rstrip(), no_wrap=True)
        else:
            for entries in labels.upright(keys, _UPRIGHT_HEIGHT, ascii_only=ascii_only):
                line = "".join(
                    self._gap(column, plan) + labels.fit(entry, plan.cell, "center")
                    for column, entry in enumerate(entries)
                )
                yield Text((margin + line).rstrip(), no_wrap=True)

    def _body(
        self, queries: Sequence[str], plan: _Layout, colors: bool, ascii_only: bool
    ) -> Iterator[Text]:
        cells = shades.binned(self.shades, plan.rows, plan.columns, signed=self.style.signed)
        if self.mask is not None:
            cells[shades.binned_mask(self.mask, plan.rows, plan.columns)] = np.nan
            if self.left_out is not None:
                size = plan.rows, plan.columns
                cells[shades.binned_unselected(self.left_out, self.mask, *size)] = np.inf
        digits = len(str(len(queries) - 1))
        edge = "" if colors else ("|" if ascii_only else "│")
        marks = self._marks(plan)
        bars = "-+|" if ascii_only else "─┼│"
        for row, lower_row in _lines(len(cells), [b // plan.rows for b in self.breaks[0]], plan):
            if row is None:
                rule = "".join(
                    bars[1] * (p in marks) + bars[0] * plan.cell for p in range(cells.shape[1])
                )
                yield Text(" " * plan.gutter + (edge or " ") + rule + edge, no_wrap=True)
                continue
            query = row * plan.rows
            if plan.listed or plan.half or plan.rows > 1:
                space = plan.gutter - digits - 1
                label = labels.fit(queries[query], space, ascii_only=ascii_only)
                line = Text(f"{query:>{digits}}{f' {label}' * (space > 0)}", no_wrap=True)
            else:
                label = labels.fit(queries[query], plan.gutter, "right", ascii_only=ascii_only)
                line = Text(label, no_wrap=True)
            line.append(edge or " ")
            lower = None if lower_row is None else cells[lower_row]
            for first, last in pairwise((0, *marks, cells.shape[1])):
                if first:
                    line.append(bars[2])
                part = slice(first, last)
                if plan.half:
                    self._halves(
                        line, cells[row, part], None if lower is None else lower[part], plan.cell
                    )
                elif plan.numbers:
                    self._numbers(
                        line, cells[row, part], self.weights[query, part], plan.cell, colors
                    )
                else:
                    self._full(line, cells[row, part], plan.cell, colors)
            line.append(edge)
            yield line

    def _marks(self, plan: _Layout) -> list[int]:
        """Return the columns of cells before which a sentence of a pair begins."""
        return sorted({token // plan.columns for token in self.breaks[1]} - {0})

    def _gap(self, column: int, plan: _Layout) -> str:
        """Return the room in a line of labels for the line between sentences."""
        return " " if column in self._marks(plan) else ""

    def _spaced(self, line: str, plan: _Layout) -> str:
        """Return a line of numbers of columns with that room, no number cut in two."""
        for mark in reversed(self._marks(plan)):
            column = plan.gutter + 1 + mark
            while column < len(line) and line[column - 1] != " ":
                column += 1
            line = line[:column] + " " + line[column:]
        return line

    def _color(self, shade: float) -> str | None:
        """Colour a cell; None for one that is masked (NaN); infinity is a key not selected."""
        if math.isinf(shade):
            return UNSELECTED
        return None if math.isnan(shade) else self.ramp[round(shade * (len(self.ramp) - 1))]

    def _halves(self, line: Text, upper: shades.Map, lower: shades.Map | None, cell: int) -> None:
        for column, shade in enumerate(upper):
            above = self._color(shade)
            below = None if lower is None else self._color(lower[column])
            if above is None and below is not None:
                line.append("▄" * cell, _pair(below, None))
            else:
                line.append(" " * cell if above is None else "▀" * cell, _pair(above, below))

    def _full(self, line: Text, row: shades.Map, cell: int, colors: bool) -> None:
        for shade in row:
            if colors:
                line.append(" " * cell, _pair(None, self._color(shade)))
            else:
                line.append(self._density(shade) * cell)

    def _numbers(
        self, line: Text, row: shades.Map, weights: shades.Map, cell: int, colors: bool
    ) -> None:
        for shade, weight in zip(row, weights, strict=True):
            ground = self._color(shade)
            text = "" if ground is None else labels.cell_number(float(weight))
            text = ("x" if math.isinf(shade) else text).center(cell)
            if colors and ground is not None:
                line.append(text, _pair(ink(ground), ground))
            else:
                line.append(text)

    def _density(self, shade: float) -> str:
        """Choose a cell's character; beside masked cells, which are blank, no other one is."""
        if not math.isfinite(shade):
            return " " if math.isnan(shade) else "x"
        least = 0 if self.mask is None else 1
        return ASCII_RAMP[min(max(int(shade * len(ASCII_RAMP)), least), len(ASCII_RAMP) - 1)]

    def _legend(
        self, plan: _Layout, shape: tuple[int, int], width: int, colors: bool, ascii_only: bool
    ) -> Iterator[Text]:
        if colors or not plan.numbers:
            yield self._scale(plan.gutter + 1, width, colors, ascii_only)
        axes = self.AXES
        if self.mask is not None:
            axes += f"; blank: {self.BLANK}"
        if self.left_out is not None:
            axes += f"; {'pink' if colors else 'x'}: {self.CROSS}"
        if self.sides.queries.written:
            axes += "; lines: prompt | output; the row a → b is the step that chose b"
        yield Text(labels.signs(axes, ascii_only), style="dim")
        if self.style.left_out:
            yield Text(self.style.left_out, style="dim")
        if plan.rows > 1 or plan.columns > 1:
            note = (
                f"{shape[0]} × {shape[1]} tokens do not fit: each cell shows the largest weight "
                f"of {plan.rows} × {plan.columns} tokens"
            )
            yield Text(labels.signs(note, ascii_only))

    @property
    def noun(self) -> str:
        """What a cell is of."""
        return self.style.noun

    def _meaning(self) -> str:
        """Return what the scale shows."""
        style = self.style
        meaning = f"(share of {self.noun})" if style.rescaled else f"({self.noun})"
        if self.relative:
            meaning = f"of the {style.normalize}'s largest {self.noun}"
        scales = {"linear": "", "sqrt": ", by its square root", "log": f", over {DECADES} decades"}
        return meaning + scales[style.scale]

    def _scale(self, margin: int, width: int, colors: bool, ascii_only: bool) -> Text:
        line = Text("0 ")
        if self.style.signed:
            line = Text(labels.signs(f"−{'1' if self.relative else _limit(self.top)} ", ascii_only))
        if colors:
            for step in range(16):
                line.append(" ", _pair(None, self._color(step / 15)))
        else:
            line.append(f"'{ASCII_RAMP}'")
        line.append(" 1" if self.relative else f" {_limit(self.top)}")
        line.append(f" {labels.signs(self._meaning(), ascii_only)}", "dim")
        if margin + line.cell_len <= width:
            line.pad_left(margin)
        return line


def _lines(rows: int, breaks: list[int], plan: _Layout) -> Iterator[tuple[int | None, int | None]]:
    """Yield the rows of cells that stand on each line, two in halves; None and None for a rule."""
    step = 2 if plan.half else 1
    for first, last in pairwise((0, *sorted(set(breaks) - {0}), rows)):
        if first:
            yield None, None
        for row in range(first, last, step):
            yield row, row + 1 if plan.half and row + 1 < last else None


def _limit(top: float) -> str:
    return "1" if top == 1.0 else f"{top:.3g}"


def _index(name: str, texts: Sequence[str], width: int) -> Iterator[Text]:
    """Yield the tokens behind the numbers, as many a line as fit."""
    line = Text(f"{name}:", style="dim", no_wrap=True)
    for number, label in enumerate(texts):
        if line.cell_len + len(f"  {number} ") + cell_len(label) > width and line.cell_len > 2:
            yield line
            line = Text(" ", style="dim", no_wrap=True)
        line.append(f" {number} ")
        line.append(labels.isolate(label), Paint(dim=False))
        line.append(" ")
    yield line
