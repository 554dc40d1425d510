"""The layer × head grid of a report: as plain data, and in the terminal a coloured tile a head.

What is more or less than nothing, by head: its colours, its figures, and the grid of heads.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.text import Text

from attnviz.core.heads import Head, Layout, SiteKind
from attnviz.core.scores import HeadScores, ScoredHeads
from attnviz.drawing.console import TILE, Strong, coloured, folded, head_tiles, is_long, renderable
from attnviz.drawing.labels import ranges, signs, tick_step
from attnviz.drawing.palette import FEW, NO_ROLE, ink, mix
from attnviz.scoring.roles import FEW_ROWS, drawn, in_order

KIND_TITLES: Mapping[SiteKind, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One head in the grid."""

    role: str | None  # what it does, else where it rests, else None
    strength: float = 0.0  # how much of it, 0..1.
    few: bool = False  # whether that rests on few rows
    of: str = ""  # what the role is about, such as a relation

    def code(self, letters: int) -> str:
        """Give what a tile shows of the role, in so many letters at most; 2 for the short code."""
        if self.role is None:
            return ""
        style = drawn(self.role)
        if letters < len(style.code):
            return style.short
        return self.of[:letters] or style.code


@dataclass(frozen=True, slots=True)
class Grid:
    """The heads of one kind of site.

    ``cells[layer][head]`` is None where there is no such head in the report; all rows are as long
    as the widest layer. ``mixers`` are what the layers of a hybrid are, empty elsewhere.
    """

    title: str
    cells: tuple[tuple[Cell | None, ...], ...]
    mixers: tuple[str, ...] = ()

    @property
    def layers(self) -> int:
        """The number of rows."""
        return len(self.cells)

    @property
    def heads(self) -> int:
        """The number of columns."""
        return max((len(row) for row in self.cells), default=0)


def grids(report: ScoredHeads) -> tuple[Grid, ...]:
    """Make a grid for each kind of site with a head; an empty title where there is one kind."""
    cells = {(scores.head.site, scores.head.index): _cell(scores) for scores in report.heads}
    layout = report.layout
    return tuple(
        Grid(
            KIND_TITLES[kind] if len(layout.kinds) > 1 else "",
            tuple(
                tuple(cells.get((site, index)) for index in range(max(layout.heads[kind])))
                for site in layout.sites
                if site.kind == kind
            ),
            layout.mixers,
        )
        for kind in layout.kinds
        if any(site.kind == kind for site, _ in cells)
    )


def _cell(scores: HeadScores) -> Cell:
    """Return the cell of a head: its first role, as strong as its score."""
    if not scores.roles:
        return Cell(None)
    best = scores.roles[0]
    strength = min(max(best.evidence.mean or 0.0, 0.0), 1.0)
    return Cell(best.name, strength, best.few_rows, best.of)


def few_note(by_kind: Sequence[Grid], mark: str = FEW) -> str:
    """Return what the mark of few rows means; empty where no cell of some grids has it."""
    cells = (cell for grid in by_kind for row in grid.cells for cell in row)
    marked = any(cell is not None and cell.few for cell in cells)
    return f"{mark}: fewer than {FEW_ROWS} rows" if marked else ""


def tally(report: ScoredHeads) -> tuple[tuple[str | None, int], ...]:
    """How many heads show each role in the grid, in the order of legends; None (no role) last."""
    counts = Counter(scores.roles[0].name if scores.roles else None for scores in report.heads)
    named = in_order(name for name in counts if name is not None)
    order: list[str | None] = [*named, None]
    return tuple((name, counts[name]) for name in order if name in counts)


def by_mixer(mixers: Sequence[str]) -> list[tuple[str, list[int]]]:
    """List a hybrid's kinds of layers, each with the numbers of its layers, the first first."""
    layers: dict[str, list[int]] = {}
    for layer, name in enumerate(mixers):
        layers.setdefault(name, []).append(layer)
    return list(layers.items())


_GROUND = "#808080"
"""Weak heads fade towards mid grey, which reads on light and on dark terminals."""
_FADE = 0.7
_LETTERS = {6: 5, 4: 4, 2: 2}  # of a code in a tile so wide
_LIST = 6  # the width of a tile in a folded grid
_STRONG = 0.75
"""From this score on a code is written in capitals, so that strength shows without colour."""


def tile_style(color: str, strength: float, colors: bool) -> Style:
    """Return the style of a tile: the role's colour, faded by what the strength lacks to 1."""
    if not colors:
        return Style()
    faded = mix(color, _GROUND, _FADE * (1.0 - strength))
    return Style(color=ink(faded), bgcolor=faded)


@renderable
def heads_grid(console: Console, options: ConsoleOptions, report: ScoredHeads) -> RenderResult:
    """One grid for each kind of site, with axis labels and a legend."""
    colors = coloured(console)
    by_kind = grids(report)
    heads = max((grid.heads for grid in by_kind), default=1)
    gutter = max((len(str(grid.layers - 1)) for grid in by_kind), default=1) + 1
    few = few_note(by_kind)
    layout = _fold(heads, max(options.max_width - gutter - bool(few), 2), colors)
    if not layout[1]:
        few = few_note(by_kind, "underlined")
    for grid in by_kind:
        if grid.title:
            yield Text(grid.title, style="bold")
        if is_long(grid.layers, grid.heads, layout[2]):
            layout = _LIST, 1, layout[2]
            yield from folded(_strong(grid, options, colors), options, "a role")
            yield from _kinds(grid, options)
        else:
            yield from _lines(grid, gutter, layout, options, colors)
        yield Text("")
    yield from _legend(report, layout[0], few, options, colors)


def _strong(grid: Grid, options: ConsoleOptions, colors: bool) -> dict[int, dict[int, Strong]]:
    """Return the heads of every layer that have a role, first those that do something."""
    return {
        layer: {
            index: Strong(
                (not drawn(cell.role).rests, cell.strength), _tile(cell, _LIST, 0, options, colors)
            )
            for index, cell in enumerate(row)
            if cell is not None and cell.role is not None
        }
        for layer, row in enumerate(grid.cells)
    }


def _lines(
    grid: Grid, gutter: int, layout: tuple[int, int, int], options: ConsoleOptions, colors: bool
) -> Iterator[Text]:
    tile, gap, chunk = layout
    room = options.max_width - gutter - min(chunk, grid.heads) * (tile + gap)
    named = bool(grid.mixers) and max(map(len, grid.mixers)) + 1 <= room
    step = tick_step(-(-(len(str(grid.heads - 1)) + 1) // (tile + gap)))
    yield Text(signs("layer ↓  head →", options.ascii_only), "dim")
    for first in range(0, grid.heads, chunk):
        columns = range(first, min(first + chunk, grid.heads))
        header = Text(" " * gutter, style="dim", no_wrap=True)
        for index in columns:
            label = str(index) if (index - first) % step == 0 else ""
            header.append(label.center(tile) if len(label) <= tile else label)
            header.append(" " * (tile + gap - max(tile, len(label))))
        if first:
            yield Text("")
        header.rstrip()
        yield header
        for layer, row in enumerate(grid.cells):
            line = Text(no_wrap=True)
            line.append(f"{layer:>{gutter - 1}} ", "dim")
            for index in columns:
                line.append_text(_tile(row[index], tile, gap, options, colors))
            if named and not first:
                line.append(f" {grid.mixers[layer]}", "dim")
            elif colors and gap and line.plain.endswith(" "):
                line.right_crop(gap)
            elif not colors:
                line.rstrip()
            yield line

    if not named:
        yield from _kinds(grid, options)


def _kinds(grid: Grid, options: ConsoleOptions) -> Iterator[Text]:
    """Yield what the layers of a hybrid are, in a line, where it does not stand beside each."""
    if grid.mixers:
        sentence = "; ".join(
            f"{name}: layer{'s' * (len(layers) > 1)} {ranges(layers)}"
            for name, layers in by_mixer(grid.mixers)
        )
        yield Text(signs(sentence, options.ascii_only), "dim")


def _tile(cell: Cell | None, tile: int, gap: int, options: ConsoleOptions, colors: bool) -> Text:
    """One tile and the gap behind it, which takes the mark of few rows where a tile has no room."""
    if cell is None:
        return Text(" " * (tile + gap))
    if cell.role is None:
        return Text.assemble((signs(NO_ROLE, options.ascii_only).center(tile), "dim"), " " * gap)
    style = tile_style(drawn(cell.role).color, cell.strength, colors)
    code = cell.code(_LETTERS[tile])
    code = code.upper() if cell.strength >= _STRONG else code
    inside = cell.few and len(code) < tile
    beside = (FEW if cell.few and not inside else " ") * gap
    if cell.few and not inside and not gap:
        style += Style(underline=True)
    return Text.assemble(((code + FEW * inside).center(tile), style), beside)


def _fold(heads: int, room: int, colors: bool) -> tuple[int, int, int]:
    """Tile width, gap and heads a line: the widest tiles that need no fold, else small ones."""
    for tile, gap in ((6, 1), (4, 1), (2, 1), (2, 0)):
        if (gap or colors) and heads * (tile + gap) - gap <= room:
            return tile, gap, heads
    fitting = max((room + 1) // 3, 1)
    folds = -(-heads // fitting)
    even = -(-heads // folds)
    for multiple in (16, 8, 4):
        rounded = -(-even // multiple) * multiple
        if rounded <= fitting:
            return 2, 1, rounded
    return 2, 1, even


def _legend(
    report: ScoredHeads, tile: int, few: str, options: ConsoleOptions, colors: bool
) -> Iterator[Text]:
    badge = min(tile, 4) + 2
    entries = []
    for name, count in tally(report):
        entry = Text(no_wrap=True)
        if name is None:
            entry.append(signs(NO_ROLE, options.ascii_only).center(badge), "dim")
            entry.append(f" no role {count}")
        else:
            style = drawn(name)
            code = Cell(name).code(_LETTERS[tile]).center(badge)
            entry.append(code, tile_style(style.color, 1.0, colors))
            entry.append(f" {name} {count}")
        entries.append(entry)
    width = max((entry.cell_len for entry in entries), default=0) + 2
    columns = max(options.max_width // width, 1)
    for first in range(0, len(entries), columns):
        line = Text(no_wrap=True)
        for entry in entries[first : first + columns]:
            line.append_text(entry)
            line.append(" " * (width - entry.cell_len))
        line.rstrip()
        yield line
    strength = f"CAPITALS: score of {_STRONG} or more{', full colour at 1' * colors}"
    meaning = f"what the head does, else its attention sink; {strength}"
    yield Text(f"{meaning}; {few}" if few else meaning, "dim")
    yield Text("")


ORANGE, BLUE, NONE = "#b35806", "#2166ac", "#f7f7f7"
"""Ends and middle of the colours of everything with a sign, and of nothing else.

Blue is more, or what a head does for the model's answer; orange is less, or what it does against
it. Safe for the colour-blind (PuOr and RdBu of Brewer 2003, whose ends differ in lightness and
hue).
"""

SCHEMES = {"light": (ORANGE, NONE, BLUE), "dark": ("#fdae61", "#22262d", "#74b3f7")}
"""Less, nothing, more on pages; on dark paper nothing is dark."""

_DECIMALS = 3


def color(value: float, limit: float, orange: int, middle: str = NONE) -> str:
    """Colour a value; its strength grows with the square root, so that small ones show."""
    strength = math.sqrt(min(abs(value) / limit, 1.0)) if limit > 0 else 0.0
    return mix(middle, ORANGE if value * orange > 0 else BLUE, strength)


def on_terminal(value: float, limit: float, orange: int) -> Style:
    """Return the same as the ground of a cell, with an ink that reads on it."""
    paint = color(value, limit, orange, _GROUND)
    return Style(color=ink(paint), bgcolor=paint)


def signed(value: float, digits: int = 2, most_decimals: int = 4) -> str:
    """Write a value with its sign, to so many significant digits and at most some decimals."""
    if abs(value) < 0.5 * 10**-most_decimals:
        return "0"
    decimals = max(0, min(most_decimals, digits - 1 - math.floor(math.log10(abs(value)))))
    return f"{value:+.{decimals}f}"


_HYPHEN = re.compile(r"(?<![^\s(\[])-(?=[\d.]+(?![\d.]| \(\d))")
"""Before a number of a sentence; not in a token, which stands in quotes or before its position."""


def minus(sentence: str) -> str:
    """One of our sentences with minus signs before its numbers, as pages write them."""
    return _HYPHEN.sub("−", sentence)


@renderable
def signed_grid(
    console: Console, options: ConsoleOptions, layout: Layout, values: Mapping[Head, float],
    limit: float, orange: int,
) -> RenderResult:  # fmt: skip
    """Draw layers downwards, heads across, each with its value, in as many bands as that needs.

    Colours end at ``limit``, and what has the sign of ``orange`` is orange.
    """

    def tile(head: Head) -> Text:
        value = values.get(head)
        if value is None:
            return Text(" " * TILE)
        style = on_terminal(value, limit, orange) if coloured(console) else Style()
        return Text(f"{signed(value, 2, _DECIMALS):^{TILE}}", style)

    for kind in layout.kinds if values else ():
        if len(layout.kinds) > 1:
            yield Text(kind, style="bold")
        sizes = {
            head: abs(value)
            for head, value in values.items()
            if head.site.kind == kind and signed(value, 2, _DECIMALS) != "0"
        }
        yield from head_tiles(options, layout, kind, tile, sizes, "a value")
        yield Text("")
