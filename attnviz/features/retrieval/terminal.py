"""Needles on the terminal: lengths and depths, the grid of heads, the first of them, the proof."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from attnviz.core.heads import Head
from attnviz.drawing.labels import shorten, visible
from attnviz.drawing.shares import interval, percent, plain_percent, points
from attnviz.drawing.terminal import Line
from attnviz.drawing.tiles import Tile, TileGrid
from attnviz.features.retrieval.result import Retrieval
from attnviz.features.retrieval.words import (
    BY,
    chance_percent,
    control_line,
    depth_label,
    head_list,
    main_score,
    measured,
    summary,
)

_TEXT = 60


def parts(found: Retrieval, *, top: int = 10) -> Iterator[RenderableType]:
    """Lengths and depths, the grid, so many heads, the ablations, random weights, the origin.

    Args:
        found: the result.
        top: heads of the table.
    """
    first = found.layout.name(found.heads[0].head)
    what = "needles retrieved · " if found.generates else ""
    yield Line(f"{what}head {first}, %, by depth and tokens", "dim")
    yield cells_table(found)
    yield ""
    yield TileGrid(found.layout, retrieval_tiles(found))
    yield Line(f"{BY[found.by]}, %, on {found.held_out}; full colour at 40", "dim")
    yield ""
    yield heads_table(found, top)
    yield Line(summary(found))
    if found.ablations:
        yield ""
        yield ablations_table(found)
    yield ""
    for one in found.examples[:1]:
        wrote = f" → {visible(one.generated)}" if found.generates else ""
        text = f"{visible(one.needle)} … {visible(one.question)}{wrote}"
        yield Line(f"the first needle: {shorten(text, _TEXT + 40)}", "dim")
    if control_line(found):
        yield Line(control_line(found), "dim")
    yield Line(measured(found), "dim")


def cells_table(found: Retrieval) -> Table:
    """Needles retrieved, and the first head's score, by depth (lines) and length (columns)."""
    cells = {(cell.length, cell.depth): cell for cell in found.cells}
    table = _table(("depth", *[f"{length:,}" for length in found.lengths]))
    for depth in found.depths:
        row = []
        for length in found.lengths:
            cell = cells[length, depth]
            score = plain_percent(cell.copied if found.by == "copied" else cell.query)
            row.append(f"{plain_percent(cell.accuracy)} · {score}" if found.generates else score)
        table.add_row(depth_label(depth), *row)
    return table


def retrieval_tiles(found: Retrieval) -> dict[Head, Tile]:
    """The score of every head, in percent."""
    tiles = {}
    for one in found.heads:
        value = main_score(found, one).value
        if value is not None and round(100 * value) > 0:
            tiles[one.head] = Tile(f"{100 * value:.0f}", value / 0.4)
    return tiles


def heads_table(found: Retrieval, top: int) -> Table:
    """The first heads, and both scores of each."""
    titles = ["head", "copied %", "95 %", "all needles", "from question %", "95 %", "as it is"]
    table = _table(
        [title for n, title in enumerate(titles) if found.generates or n not in (1, 2, 3)]
    )
    for one in found.heads[:top]:
        row = [found.layout.name(one.head)]
        if found.generates:
            row += [percent(one.copied), interval(one.copied), percent(one.copied_all)]
        row += [percent(one.query), interval(one.query), percent(one.weight)]
        table.add_row(*row)
    table.add_section()
    chance = ["chance", *([chance_percent(found.chance), "", ""] if found.generates else [])]
    table.add_row(*chance, "0", "", chance_percent(found.weight_chance), style="dim")
    return table


def ablations_table(found: Retrieval) -> Table:
    """Needles retrieved without the first heads, and without others."""
    table = _table(("ablated", "retrieved %", "95 %", "others %", "draws", "points", "95 %"))
    table.add_row("nothing", percent(found.accuracy), interval(found.accuracy), "", "", "", "")
    for one in found.ablations:
        table.add_row(
            head_list(found, one),
            percent(one.accuracy),
            interval(one.accuracy),
            percent(one.random),
            f"{plain_percent(one.least)} to {plain_percent(one.most)}",
            points(one.margin),
            interval(one.margin),
        )
    return table


def _table(titles: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for number, title in enumerate(titles):
        table.add_column(Text(title), justify="right" if number else "left", no_wrap=bool(number))
    return table
