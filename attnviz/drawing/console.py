"""What adapts itself to the console: drawn by functions, tiles of heads, what is folded; dots."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.drawing.labels import shorten, signs
from attnviz.drawing.palette import NO_ROLE, ink, mix

Values = ParamSpec("Values")


@dataclass(frozen=True, eq=False, slots=True)
class Drawn:
    """A renderable: draws itself when it is printed."""

    draw: Callable[[Console, ConsoleOptions], RenderResult]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console."""
        return self.draw(console, options)


def renderable(
    draw: Callable[Concatenate[Console, ConsoleOptions, Values], RenderResult],
) -> Callable[Values, RenderableType]:
    """Give a function of console, options and values as one of values, which gives a renderable."""

    @wraps(draw)
    def of(*args: Values.args, **kwargs: Values.kwargs) -> RenderableType:
        return Drawn(lambda console, options: draw(console, options, *args, **kwargs))

    return of


def coloured(console: Console) -> bool:
    """Whether a console shows colours."""
    return console.color_system is not None and not console.no_color


def table_of(*columns: str, fold: bool = True, no_wrap: bool = False, gap: int = 1) -> Table:
    """Return an empty table with a rule below its headings."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, gap))
    for heading in columns:
        right = heading.startswith(">")
        table.add_column(
            Text(heading[right:]), justify="right" if right else "left", no_wrap=no_wrap,
            overflow="fold" if fold and not no_wrap else "ellipsis",
        )  # fmt: skip
    return table


MOST_LINES = 72  # a grid that takes more lines is folded
_LINES = 32  # of a folded grid, at most
_WHOLE = 50  # layers that a table has one by one, without heads
MOST_ROWS, FIRST_ROWS = 150, 40  # a table of heads that has more rows shows the first of them alone
_REST = 7  # cells for how many more there are


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Strong:
    """What a head shows in a folded grid."""

    order: float | tuple[float, ...]  # heads with a larger one come first
    tile: Text  # as the whole grid would draw it


Row = Mapping[int, Strong]  # the heads of a layer that have something to show, by their number


def rows_shown(rows: int, top: int | None = None) -> int:
    """How many rows of a table are shown: those that are wanted, else all that can be read."""
    return min(rows, top or (rows if rows <= MOST_ROWS else FIRST_ROWS))


def every_few(layers: Sequence[T]) -> Sequence[T]:
    """Of very many layers every few of them, with the last; all where these can be read."""
    step = -(-len(layers) // _LINES) if len(layers) > _WHOLE else 1
    return layers[(len(layers) - 1) % step :: step]


def layers_a_line(layers: int) -> int:
    """How many layers stand together on a line, so that there are few lines."""
    return -(-layers // _LINES)


def is_long(layers: int, heads: int, across: int) -> bool:
    """Whether a grid takes more lines than anyone reads, with so many heads across."""
    return -(-heads // max(across, 1)) * (layers + 1) > MOST_LINES


def folded(rows: Mapping[int, Row], options: ConsoleOptions, noun: str) -> Iterator[Text]:
    """Show the strongest heads of every few layers that have some, and how many more there are."""
    plain, layers = options.ascii_only, list(rows)
    step = layers_a_line(len(layers))
    lines = [layers[first : first + step] for first in range(0, len(layers), step)]
    lines = [group for group in lines if any(rows[layer] for layer in group)]
    dash = "-" if plain else "–"
    labels = [str(group[0]) + (f"{dash}{group[-1]}" if len(group) > 1 else "") for group in lines]
    gutter = max(map(len, labels), default=0)
    lines_shown = [[(f"{n}.{i}", s) for n in group for i, s in rows[n].items()] for group in lines]
    name = max((len(name) for line in lines_shown for name, _ in line), default=0)
    tile = max((s.tile.cell_len for line in lines_shown for _, s in line), default=0)
    room = max((options.max_width - gutter - _REST) // (name + tile + 3), 1)
    titled = "layers" if step > 1 else "layer"
    yield Text(signs(f"{titled} ↓  the strongest heads first →", plain), "dim")
    for label, line in zip(labels, lines_shown, strict=True):
        text = Text(f"{label:>{gutter}}", "dim", no_wrap=True)
        for head, strong in sorted(line, key=lambda entry: entry[1].order, reverse=True)[:room]:
            text.append(f"  {head:>{name}} ", "")
            text.append_text(strong.tile)
        if len(line) > room:
            text.append(f"  +{len(line) - room}", "dim")
        text.rstrip()
        yield text
    count = sum(min(len(line), room) for line in lines_shown)
    total = sum(map(len, lines_shown))
    if count < total:
        note = f"{count:,} of the {total:,} heads with {noun}; a picture or a table has all of them"
        yield Text(note, "dim")


TILE = 6  # columns of the console that a head has


def head_tiles(
    options: ConsoleOptions,
    layout: Layout,
    kind: SiteKind,
    tile: Callable[[Head], Text],
    strengths: Mapping[Head, float],
    noun: str,
) -> Iterator[Text]:
    """Layers downwards, heads across."""
    counts = layout.heads[kind]
    fitting = max((options.max_width - 3) // (TILE + 1), 1)
    if is_long(len(counts), max(counts), fitting):
        rows: dict[int, dict[int, Strong]] = {layer: {} for layer in range(len(counts))}
        for head, strength in strengths.items():
            rows[head.layer][head.index] = Strong(strength, tile(head))
        yield from folded(rows, options, noun)
        return
    yield Text(signs("layer ↓  head →", options.ascii_only), "dim")
    for first in range(0, max(counts), fitting):
        columns = range(first, min(first + fitting, max(counts)))
        yield Text("   " + " ".join(f"{n:^{TILE}}" for n in columns).rstrip(), "dim")
        for layer, count in enumerate(counts):
            line = Text(f"{layer:>2} ", "dim", no_wrap=True)
            for index in (n for n in columns if n < count):
                line.append_text(tile(Head(Site(kind, layer), index)))
                line.append(" ")
            line.rstrip()
            yield line


COLOR = "#2a9d5c"
FULL = 0.4  # the margin at which the colour is full: forty points

_GROUND = "#808080"
"""No margin is mid grey, which reads on light and on dark terminals."""


@dataclass(frozen=True, slots=True)
class Tile:
    """What a head shows."""

    text: str  # cut to what fits
    strength: float  # of its colour, up to 1; from 0 downwards there is none


@renderable
def tile_grid(
    console: Console, options: ConsoleOptions, layout: Layout, tiles: Mapping[Head, Tile]
) -> RenderResult:
    """Draw layers downwards, heads across; heads without a tile are a dim dot."""

    def tile(head: Head) -> Text:
        return _drawn(tiles.get(head), coloured(console), options.ascii_only)

    strengths = {head: tile.strength for head, tile in tiles.items()}
    return head_tiles(options, layout, layout.kinds[0], tile, strengths, "something to show")


def _drawn(tile: Tile | None, colors: bool, ascii_only: bool) -> Text:
    if tile is None:
        return Text(f"{signs(NO_ROLE, ascii_only):^{TILE}}", "dim")
    text = f"{shorten(tile.text, TILE, ascii_only=ascii_only):^{TILE}}"
    if tile.strength <= 0:
        return Text(text, "dim")
    if not colors:
        return Text(text)
    paint = mix(_GROUND, COLOR, min(tile.strength, 1.0))
    return Text(text, Style(color=ink(paint), bgcolor=paint))


DOTS_HIGH, DOTS_WIDE = 4, 2  # dots of a character of Braille, downwards and across
_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


def dot_bit(row: int, column: int) -> int:
    """Return the bit of a dot of the whole field, in the character that it falls into."""
    return _BITS[row % DOTS_HIGH][column % DOTS_WIDE]


def dots_sign(bits: int) -> str:
    """Return the character of Braille with these dots."""
    return chr(0x2800 + bits)
