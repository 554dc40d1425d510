"""Sinks on the terminal: the grid of heads, the heads with sinks, massive activations."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table

from attnviz.core.heads import Head
from attnviz.drawing.labels import shorten
from attnviz.drawing.renderable import table_of
from attnviz.drawing.terminal import Line
from attnviz.drawing.tiles import Tile, TileGrid
from attnviz.features.sinks.result import GATE_CLASSES, GateByToken, Sinks
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


def parts(result: Sinks, *, top: int = 12) -> Iterator[RenderableType]:
    """The grid, so many heads with sinks, the states, the origin.

    Args:
        result: the result.
        top: lines of the table.
    """
    yield TileGrid(result.layout, sink_tiles(result))
    yield Line(
        f"the key with the most weight, where it has more than {result.threshold:g}; full colour "
        "at all of the weight",
        "dim",
    )
    yield ""
    if result.sinks:
        yield sinks_table(result, top)
        yield Line(
            f"norm: {norms(result)} of the sink against other keys; written: its share of the "
            "weight times norm; output: of the head, against its layer",
            "dim",
        )
    if result.gated:
        yield gates_table(result, top)
        yield Line(
            "how far the gate on a head's output is open, by the token that attends: the first, "
            "punctuation, one that was there before, any other; most shut at the first on top",
            "dim",
        )
    yield Line(summary(result))
    learned = max((head.learned.value or 0.0 for head in result.heads), default=0.0)
    if learned > 0:
        yield Line(f"learned sinks, which are no keys, take up to {learned:.2f} of a head's weight")
    if activation_line(result):
        yield Line(activation_line(result))
    yield ""
    yield Line(measured(result), "dim")


def sink_tiles(result: Sinks) -> dict[Head, Tile]:
    """The sink of every head that has one."""
    return {
        head.head: Tile(tile_text(result, head), result.rests_with(head)) for head in result.sinks
    }


def sinks_table(result: Sinks, top: int) -> Table:
    """The heads with most weight on their sink."""
    several, costs = result.texts > 1, result.unit is not None
    learned = any(head.learned.value for head in result.heads)
    names = ["share", *(["95 %"] if several else []), "chance", *(["learned"] if learned else [])]
    gated = any(head.gate.value is not None for head in result.heads)
    names += ["norm", "written", "output", *(["gate"] if gated else [])]
    names += [f"without it, {result.unit}", "without sink"] if costs else []
    table = table_of("head", "sink", *(f">{name}" for name in names), fold=False)
    for head in result.sinks[:top]:
        row = [result.layout.name(head.head), shorten(sink_name(result, head), _NAME)]
        row += [share(head.share), *([ends(head.share)] if several else [])]
        row += [f"{head.chance:.2f}", *([share(head.learned)] if learned else [])]
        row += [times(head.norm), share(head.written), times(head.output)]
        row += [share(head.gate)] if gated else []
        row += [signed(head.without), signed(head.without_sink)] if costs else []
        table.add_row(*row)
    return table


def gates_table(result: Sinks, top: int) -> Table:
    """The gates on heads' outputs by the token that attends, with intervals over texts."""
    table = table_of("head", ">gate", *(f">{name}" for name in GATE_CLASSES), fold=False)
    for head in result.gated[:top]:
        gates = head.gates or GateByToken()
        row = [result.layout.name(head.head), share(head.gate)]
        for name in GATE_CLASSES:
            gate = getattr(gates, name)
            row.append(share(gate) + (f" ({ends(gate)})" if gate.low is not None else ""))
        table.add_row(*row)
    return table
