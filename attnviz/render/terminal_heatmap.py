"""One attention map in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.style import Style
from rich.text import Text

from attnviz.records import Sides
from attnviz.render.labels import fit, isolate, signs, token_labels, upright, visible
from attnviz.render.palette import DEFAULT_PALETTE, ink, ramp
from attnviz.render.scaling import Map, binned, checked, scaled, tick_step

ASCII_RAMP = " .:-=+*#%@"
"""Rising density, for terminals without colours: one character a tenth."""

_MOST_LINES = 64
_NUMBERS_WIDTH, _NUMBERS_WIDEST = 5, 16
_LEAST_GUTTER = 8
_UPRIGHT_HEIGHT = 10
_LISTED = 256


@dataclass(frozen=True, slots=True)
class _Plan:
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


def _plan(shape: tuple[int, int], widths: tuple[int, int], width: int, blocks: bool) -> _Plan:
    """Choose a layout for ``shape`` in ``width`` cells; ``widths``: longest query and key label."""
    queries, keys = shape
    digits = len(str(queries - 1))
    tall = queries > _MOST_LINES
    gutter = min(widths[0], max(width // 4, _LEAST_GUTTER))
    if keys * _NUMBERS_WIDTH <= width - gutter - 2 and not tall:
        room = width - gutter - 2
        cell = max(min(room // keys, widths[1] + 1, _NUMBERS_WIDEST), _NUMBERS_WIDTH)
        return _Plan(gutter, cell, 1, 1, False, True)
    numbered = tall * (digits + 1)
    gutter = min(widths[0] + numbered, max(width // 4, _LEAST_GUTTER + numbered))
    for cell in (3, 2) if keys <= 24 else (2,):
        narrow = min(gutter, width - 2 - keys * cell)
        if narrow >= min(gutter, _LEAST_GUTTER + numbered):
            half = blocks and tall
            rows = -(-queries // (_MOST_LINES * (1 + half)))
            return _Plan(narrow, cell, rows, 1, half, False)
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
    return _Plan(gutter, 1, rows, columns, half, False)


@lru_cache(maxsize=65536)
def _pair(upper: str, lower: str) -> Style:
    return Style(color=upper, bgcolor=lower)


class Heatmap:
    """A renderable map; see :func:`attnviz.render.terminal.heatmap` for the arguments."""

    def __init__(
        self,
        weights: NDArray[np.floating[Any]],
        sides: Sides,
        *,
        title: str = "",
        scale: str = "row",
        palette: str = DEFAULT_PALETTE,
        top: float | None = None,
    ) -> None:
        self.weights = checked(weights, sides)
        self.sides = sides
        self.title = title
        self.scale = scale
        self.shares, self.top = scaled(self.weights, scale, top)
        self.ramp = ramp(palette)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Draw for this console: its width, colours and encoding."""
        colors = console.color_system in {"truecolor", "256"} and not console.no_color
        ascii_only = options.ascii_only
        queries = token_labels(self.sides.queries, ascii_only=ascii_only)
        keys = token_labels(self.sides.keys, ascii_only=ascii_only)
        widths = (max(map(cell_len, queries)), max(map(cell_len, keys)))
        shape = (len(queries), len(keys))
        width = max(options.max_width, 16)
        plan = _plan(shape, widths, width, colors and not ascii_only)
        if self.title:
            yield Text(visible(self.title, ascii_only=ascii_only), style="bold")
        yield from self._header(keys, plan, ascii_only)
        yield from self._body(queries, plan, colors, ascii_only)
        yield from self._legend(plan, shape, width, colors, ascii_only)
        same = queries == keys
        if plan.listed and plan.columns == 1 and (plan.half or not same) and len(keys) <= _LISTED:
            yield from _index("tokens" if same else "keys", keys, width)
        if plan.half and plan.rows == 1 and not same and len(queries) <= _LISTED:
            yield from _index("queries", queries, width)

    def _header(self, keys: Sequence[str], plan: _Plan, ascii_only: bool) -> Iterator[Text]:
        margin = " " * (plan.gutter + 1)
        if plan.listed:
            bins = -(-len(keys) // plan.columns)
            step = tick_step(len(str(len(keys))) + 1)
            line = margin
            for place in range(0, bins, step):
                line += f"{place * plan.columns:<{step}}"
            yield Text(line[: plan.gutter + 1 + bins + 4].rstrip(), style="dim", no_wrap=True)
        elif plan.numbers:
            line = "".join(
                fit(key, plan.cell - 1, "center", ascii_only=ascii_only) + " " for key in keys
            )
            yield Text(margin + " " + line[:-1].rstrip(), no_wrap=True)
        else:
            for entries in upright(keys, _UPRIGHT_HEIGHT, ascii_only=ascii_only):
                line = "".join(fit(e, plan.cell, "center") for e in entries)
                yield Text((margin + line).rstrip(), no_wrap=True)

    def _body(
        self, queries: Sequence[str], plan: _Plan, colors: bool, ascii_only: bool
    ) -> Iterator[Text]:
        shares = binned(self.shares, plan.rows, plan.columns)
        digits = len(str(len(queries) - 1))
        edge = "" if colors else ("|" if ascii_only else "│")
        for row in range(0, len(shares), 2 if plan.half else 1):
            place = row * plan.rows
            if plan.listed or plan.half or plan.rows > 1:
                space = plan.gutter - digits - 1
                label = f" {fit(queries[place], space, ascii_only=ascii_only)}" if space > 0 else ""
                line = Text(f"{place:>{digits}}{label}", no_wrap=True)
            else:
                label = fit(queries[place], plan.gutter, "right", ascii_only=ascii_only)
                line = Text(label, no_wrap=True)
            line.append(edge or " ")
            if plan.half:
                lower = shares[row + 1] if row + 1 < len(shares) else None
                self._halves(line, shares[row], lower, plan.cell)
            elif plan.numbers:
                self._numbers(line, shares[row], self.weights[place], plan.cell, colors)
            else:
                self._full(line, shares[row], plan.cell, colors)
            line.append(edge)
            yield line

    def _color(self, share: float) -> str:
        return self.ramp[round(share * (len(self.ramp) - 1))]

    def _halves(self, line: Text, upper: Map, lower: Map | None, cell: int) -> None:
        for place, share in enumerate(upper):
            if lower is None:
                line.append("▀" * cell, Style(color=self._color(share)))
            else:
                style = _pair(self._color(share), self._color(lower[place]))
                line.append("▀" * cell, style)

    def _full(self, line: Text, shares: Map, cell: int, colors: bool) -> None:
        for share in shares:
            if colors:
                line.append(" " * cell, Style(bgcolor=self._color(share)))
            else:
                line.append(_density(share) * cell)

    def _numbers(self, line: Text, shares: Map, weights: Map, cell: int, colors: bool) -> None:
        for share, weight in zip(shares, weights, strict=True):
            text = _weight(weight).center(cell)
            if colors:
                back = self._color(share)
                line.append(text, _pair(ink(back), back))
            else:
                line.append(text)

    def _legend(
        self, plan: _Plan, shape: tuple[int, int], width: int, colors: bool, ascii_only: bool
    ) -> Iterator[Text]:
        if colors or not plan.numbers:
            yield self._scale(plan.gutter + 1, width, colors)
        yield Text(signs("↓ queries  → keys (attended to)", ascii_only), style="dim")
        if plan.rows > 1 or plan.columns > 1:
            said = (
                f"{shape[0]} × {shape[1]} tokens do not fit: each cell shows the largest weight "
                f"of {plan.rows} × {plan.columns} tokens"
            )
            yield Text(signs(said, ascii_only))

    def _scale(self, margin: int, width: int, colors: bool) -> Text:
        line = Text("0 ")
        if colors:
            for step in range(16):
                line.append(" ", Style(bgcolor=self._color(step / 15)))
        else:
            line.append(f"'{ASCII_RAMP}'")
        line.append(f" {_limit(self.top)}")
        line.append(" of the row's largest weight" if self.scale == "row" else " (weight)", "dim")
        if margin + line.cell_len <= width:
            line.pad_left(margin)
        return line


def _density(share: float) -> str:
    return ASCII_RAMP[min(int(share * len(ASCII_RAMP)), len(ASCII_RAMP) - 1)]


def _weight(weight: float) -> str:
    """A weight in four cells: ``.97``, ``1.0``, and a dot where it rounds to nothing."""
    if weight < 0.005:
        return "." if weight > 0 else " "
    return "1.0" if weight >= 0.995 else f"{weight:.2f}"[1:]


def _limit(top: float) -> str:
    return "1" if top == 1.0 else f"{top:.3g}"


def _index(name: str, labels: Sequence[str], width: int) -> Iterator[Text]:
    """The tokens behind the numbers, as many a line as fit."""
    line = Text(f"{name}:", style="dim", no_wrap=True)
    for place, label in enumerate(labels):
        if line.cell_len + len(f"  {place} ") + cell_len(label) > width and line.cell_len > 2:
            yield line
            line = Text(" ", style="dim", no_wrap=True)
        line.append(f" {place} ")
        line.append(isolate(label), Style(dim=False))
        line.append(" ")
    yield line
