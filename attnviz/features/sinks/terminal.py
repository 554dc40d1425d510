"""Sinks on the terminal: the grid of heads, the heads with sinks, massive activations."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from attnviz.core.heads import Head
from attnviz.drawing.labels import shorten
from attnviz.drawing.terminal import Line
from attnviz.drawing.tiles import Tile, TileGrid
from attnviz.features.sinks.result import Sinks
from attnviz.features.sinks.words import (
    activation_line,
    ends,
    measured,
    norms,
    share,
    signed,
    sink_name,
    summary,
    tile_text,
    times,
)

_NAME = 26


def parts(found: Sinks, *, top: int = 12) -> Iterator[RenderableType]:
    """The grid, so many heads with sinks, the states, the origin.

    Args:
        found: the result.
        top: lines of the table.
    """
    yield TileGrid(found.layout, sink_tiles(found))
    yield Line(
        f"the key with the most weight, where it has more than {found.threshold:g}; full colour at "
        "all of the weight",
        "dim",
    )
    yield ""
    if found.found:
        yield sinks_table(found, top)
        yield Line(
            f"norm: {norms(found)} of the sink against other keys; written: its share of the "
            "weight times norm; output: of the head, against its layer",
            "dim",
        )
    yield Line(summary(found))
    learned = max((one.learned.value or 0.0 for one in found.heads), default=0.0)
    if learned > 0:
        yield Line(f"learned sinks, which are no keys, take up to {learned:.2f} of a head's weight")
    if activation_line(found):
        yield Line(activation_line(found))
    yield ""
    yield Line(measured(found), "dim")


def sink_tiles(found: Sinks) -> dict[Head, Tile]:
    """The sink of every head that has one."""
    return {one.head: Tile(tile_text(found, one), found.rests_with(one)) for one in found.found}


def sinks_table(found: Sinks, top: int) -> Table:
    """The heads with most weight on their sink."""
    several, costs = found.texts > 1, found.unit is not None
    learned = any(one.learned.value for one in found.heads)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    table.add_column(Text("head"))
    table.add_column(Text("sink"))
    names = ["share", *(["95 %"] if several else []), "chance", *(["learned"] if learned else [])]
    names += ["norm", "written", "output"]
    names += [f"without it, {found.unit}", "without sink"] if costs else []
    for name in names:
        table.add_column(Text(name), justify="right")
    for one in found.found[:top]:
        row = [found.layout.name(one.head), shorten(sink_name(found, one), _NAME)]
        row += [share(one.share), *([ends(one.share)] if several else [])]
        row += [f"{one.chance:.2f}", *([share(one.learned)] if learned else [])]
        row += [times(one.norm), share(one.written), times(one.output)]
        row += [signed(one.without), signed(one.without_sink)] if costs else []
        table.add_row(*row)
    return table
