"""What heads do on a text described: their table, rows, picture, and figures to compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import RenderableType

from attnviz.core.result import Figures
from attnviz.core.scores import HeadScores
from attnviz.drawing import terminal
from attnviz.drawing.grid import heads_grid
from attnviz.drawing.tables import HEAD, Row, head_rows
from attnviz.features.heads.result import Heads


def chance(false_names: float, heads: int) -> str:
    """How many of the roles of one text are to be expected of heads that attend at random."""
    few = "fewer than one" if false_names < 1 else f"about {false_names:.0f}"
    return f"of {heads:,} heads that attend at random, {few} would do something on this text"


def parts(
    result: Heads,
    rows: Sequence[HeadScores] | None = None,
    probed: Sequence[HeadScores] | None = None,
    *,
    score: str | None = None,
    more: tuple[str, str] = ("", ""),
    resting: str = "",
) -> Iterator[RenderableType]:
    """Yield the grid, the evidence, what other results say, the probe, and where it comes from."""
    yield heads_grid(result)
    yield terminal.heads_table(result, rows, score=score)
    if result.false_names is not None:
        yield terminal.Line(chance(result.false_names, len(result.layout)), "dim")
    if more[0]:
        yield terminal.Line(more[0], "dim")
    if resting and (line := terminal.resting_line(result)):
        yield terminal.Line(f"{line} {resting}", "dim")
        yield ""
    if result.findings:
        listed = [scores for scores in result.heads if scores.roles] if rows is None else rows
        names = [result.layout.name(scores.head) for scores in listed]
        yield from terminal.finding_lines(result.findings, names)
    if result.probe:
        yield "On repeated random tokens:"
        if probed is None:
            probed = [scores for scores in result.probe if scores.roles]
        yield terminal.heads_table(result, probed, score=score)
        if more[1]:
            yield terminal.Line(more[1], "dim")
        if result.matching is not None:
            heads = {scores.head for scores in result.heads}
            yield terminal.Line(terminal.matching_line(result.matching, result.layout, heads))
    if result.user_defined:
        yield terminal.Line(terminal.user_defined_line(result.user_defined), "dim")
    if result.mixing:
        yield terminal.mixing_table(result)
    yield terminal.closing_line(result)


COLUMNS = (*HEAD, "does", "rests", "roles")


def rows(result: Heads) -> list[Row]:
    """List a row a head: its roles, mean, chance, lift and rows of every score, its sink."""
    return [
        {**row, "sink.position": scores.sink, "sink.token": _token(result, scores)}
        for row, scores in zip(head_rows(result.heads, result.layout), result.heads, strict=True)
    ]


def _token(result: Heads, scores: HeadScores) -> str | None:
    """Return the token of a head's sink."""
    if scores.sink is None:
        return None
    return result.inputs.sides[scores.head.site.kind].keys.texts[scores.sink]


def figures(result: Heads) -> Figures:
    """Return the mean of every score, and the roles."""
    name = result.layout.name
    return Figures(
        {name(head.head): {key: s.mean for key, s in head.scores.items()} for head in result.heads},
        {name(head.head): frozenset(role.name for role in head.roles) for head in result.heads},
        {"quantity": result.quantity},
    )


def draw(result: Heads, format: str = "png") -> Any:
    """Each head in the colour and with the code of its role, in ``png``, ``svg`` or ``pdf``."""
    from attnviz.drawing.figure import heads_figure

    return heads_figure(result, format)
