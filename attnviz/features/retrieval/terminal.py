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


def parts(result: Retrieval, *, top: int = 10) -> Iterator[RenderableType]:
    """Lengths and depths, the grid, so many heads, the ablations, random weights, the origin.

    Args:
        result: the result.
        top: heads of the table.
    """
    first = result.layout.name(result.heads[0].head)
    what = "needles retrieved · " if result.generates else ""
    yield Line(f"{what}head {first}, %, by depth and tokens", "dim")
    yield cells_table(result)
    yield ""
    yield TileGrid(result.layout, retrieval_tiles(result))
    yield Line(f"{BY[result.by]}, %, on {result.held_out}; full colour at 40", "dim")
    yield ""
    yield heads_table(result, top)
    yield Line(summary(result))
    if result.ablations:
        yield ""
        yield ablations_table(result)
    yield ""
    for example in result.examples[:1]:
        wrote = f" → {visible(example.generated)}" if result.generates else ""
        text = f"{visible(example.needle)} … {visible(example.question)}{wrote}"
        yield Line(f"the first needle: {shorten(text, _TEXT + 40)}", "dim")
    if control_line(result):
        yield Line(control_line(result), "dim")
    yield Line(measured(result), "dim")


def cells_table(result: Retrieval) -> Table:
    """Needles retrieved, and the first head's score, by depth (lines) and length (columns)."""
    cells = {(cell.length, cell.depth): cell for cell in result.cells}
    table = _table(("depth", *[f"{length:,}" for length in result.lengths]))
    for depth in result.depths:
        row = []
        for length in result.lengths:
            cell = cells[length, depth]
            score = plain_percent(cell.copied if result.by == "copied" else cell.query)
            row.append(f"{plain_percent(cell.accuracy)} · {score}" if result.generates else score)
        table.add_row(depth_label(depth), *row)
    return table


def retrieval_tiles(result: Retrieval) -> dict[Head, Tile]:
    """The score of every head, in percent."""
    tiles = {}
    for head in result.heads:
        value = main_score(result, head).value
        if value is not None and round(100 * value) > 0:
            tiles[head.head] = Tile(f"{100 * value:.0f}", value / 0.4)
    return tiles


def heads_table(result: Retrieval, top: int) -> Table:
    """The first heads, and both scores of each."""
    titles = ["head", "copied %", "95 %", "all needles", "from question %", "95 %", "as it is"]
    table = _table(
        [title for n, title in enumerate(titles) if result.generates or n not in (1, 2, 3)]
    )
    for head in result.heads[:top]:
        row = [result.layout.name(head.head)]
        if result.generates:
            row += [percent(head.copied), interval(head.copied), percent(head.copied_all)]
        row += [percent(head.query), interval(head.query), percent(head.weight)]
        table.add_row(*row)
    table.add_section()
    chance = ["chance", *([chance_percent(result.chance), "", ""] if result.generates else [])]
    table.add_row(*chance, "0", "", chance_percent(result.weight_chance), style="dim")
    return table


def ablations_table(result: Retrieval) -> Table:
    """Needles retrieved without the first heads, and without others."""
    table = _table(("ablated", "retrieved %", "95 %", "others %", "draws", "points", "95 %"))
    table.add_row("nothing", percent(result.accuracy), interval(result.accuracy), "", "", "", "")
    for ablation in result.ablations:
        table.add_row(
            head_list(result, ablation),
            percent(ablation.accuracy),
            interval(ablation.accuracy),
            percent(ablation.random),
            f"{plain_percent(ablation.least)} to {plain_percent(ablation.most)}",
            points(ablation.margin),
            interval(ablation.margin),
        )
    return table


def _table(titles: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for number, title in enumerate(titles):
        table.add_column(Text(title), justify="right" if number else "left", no_wrap=bool(number))
    return table
