"""Circuits on the terminal: who copies, whom positions send where, the strongest edges."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from attnviz.drawing.labels import closing, number, signs
from attnviz.drawing.renderable import table_of
from attnviz.drawing.signed import SignedGrid
from attnviz.drawing.terminal import Line
from attnviz.features.circuits import words
from attnviz.features.circuits.positions import FIRST
from attnviz.features.circuits.result import SIDES, Circuits, Edge

_SENT = 10
"""Heads that are listed by where positions send them."""


def parts(report: Circuits, top: int = 10) -> Iterator[RenderableType]:
    """What is printed: all that there is, with so many edges of each side, and the model."""
    yield CircuitsText(report, top)
    yield Line(closing(report.source), "dim")


class CircuitsText:
    """A renderable: all that there is.

    Args:
        report: what was found.
        top: edges of each side.
    """

    def __init__(self, report: Circuits, top: int) -> None:
        self.report, self.top = report, top

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw for this console."""
        report = self.report
        yield Text(words.title(report), "bold")
        yield Text("")
        if report.plain:
            yield Line(words.copying_title(report), "bold")
            scores = {head: figure.score for head, figure in report.copying().items()}
            yield SignedGrid(report.layout, scores, 1.0, words.UP)
            yield Line(words.copying_below(report), "dim")
            yield Text("")
        if report.by_position:
            yield from self._sent()
        if report.edges:
            yield Line(words.edges_title(report), "bold")
            yield self._edges(options.ascii_only)
            yield Line(words.edges_below(report), "dim")
            yield Text("")

    def _sent(self) -> Iterator[RenderableType]:
        """The heads that positions alone send somewhere."""
        report = self.report
        yield Line(
            f"Positions: where heads would look if position embeddings were all they read "
            f"(rows {FIRST} to {report.positions - 2} of {report.positions} positions)",
            "bold",
        )
        heads = words.sent(report)
        if not heads:
            yield Line("none of them anywhere in particular", "dim")
            yield Text("")
            return
        table = table_of("head", "looks at", ">weight", ">uniform", no_wrap=True, gap=2)
        for head, place, weight, even in heads[:_SENT]:
            table.add_row(
                report.layout.name(head), words.PLACES[place], number(weight), number(even)
            )
        yield table
        if len(heads) > _SENT:
            yield Line(f"and {len(heads) - _SENT} more heads", "dim")
        yield Text("")

    def _edges(self, plain: bool) -> Table:
        """The strongest edges of each side, side by side."""
        sides = [side for side in SIDES if self.report.of(side)]
        into = (f"into {words.FED[side]}" for side in sides)
        table = table_of(">", *into, no_wrap=True, gap=2)
        columns = [words.shown(self.report, side, self.top) for side in sides]
        for rank, edges in enumerate(zip_longest(*columns), start=1):
            table.add_row(str(rank), *(self._edge(edge, plain) for edge in edges))
        return table

    def _edge(self, edge: Edge | None, plain: bool) -> str:
        if edge is None:
            return ""
        name = self.report.layout.name
        beside = words.measured(self.report, edge)
        weights = f"{name(edge.writer)} → {name(edge.reader)}  {edge.excess:+.3f}"
        return signs(f"{weights}{beside}", plain)
