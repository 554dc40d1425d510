"""Heads and spans on the terminal: what the spans are, the grid, the largest lifts, a matrix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from attnviz.core.heads import Head
from attnviz.core.interval import Interval
from attnviz.core.spans import ELSEWHERE
from attnviz.drawing.labels import shorten, visible
from attnviz.drawing.shares import interval, percent, plain_percent, points
from attnviz.drawing.terminal import Line
from attnviz.drawing.tiles import Tile, TileGrid
from attnviz.features.spans.result import Spans, SpanShare, SpanWeights
from attnviz.features.spans.words import (
    MARK,
    RULE_NAMES,
    answer,
    choice_line,
    gaze_line,
    joint,
    lift,
    measured,
    per_token,
    times,
)

_TEXT = 40
"""Cells of a span's text."""


def parts(
    result: Spans, *, top: int = 10, to: str | None = None, heads: Sequence[Head] = ()
) -> Iterator[RenderableType]:
    """What the spans are, the grid, so many heads, matrices, and the legends.

    Args:
        result: the result.
        top: lines of the table.
        to: only this span in it.
        heads: whose matrices follow; by default that of the first in the table.
    """
    yield Line(visible(answer(result, to)), "bold")
    yield ""
    yield _named(result)
    yield ""
    if tiles := span_tiles(result):
        yield TileGrid(result.layout, tiles)
        yield Line(
            "the span with the largest lift; full colour where it has all of the weight", "dim"
        )
        yield ""
    ranked = [triple for triple in result.ranked(to) if triple[2].stands_out]
    if ranked:
        yield _lifts(result, ranked[:top])
    for head in [h for h in result.heads if h.head in heads] or [head for head, _, _ in ranked[:1]]:
        yield ""
        yield _matrix(result, head)
    if result.gazes:
        yield ""
        yield gaze_table(result, top, to)
        yield Line(gaze_line(result), "dim")
    if result.documents is not None:
        yield ""
        yield documents_table(result, top)
        yield ""
        yield Line(choice_line(result))
        yield Line(
            f"{MARK} significantly above chance and every rule, by Holm's correction over all "
            "heads; a head takes the document whose tokens have the most weight on average",
            "dim",
        )
    yield ""
    yield Line(measured(result), "dim")


def span_tiles(result: Spans) -> dict[Head, Tile]:
    """The span with the largest lift of every head where it stands out, as strong as its share."""
    tiles = {}
    for head in result.heads:
        named = [
            (share, name)
            for name, share in zip(result.names, head.shares, strict=True)
            if name != ELSEWHERE
        ]
        share, name = max(named, key=lambda each: each[0].lift or 0.0)
        if share.stands_out:
            tiles[head.head] = Tile(name, share.mean or 0.0)
    return tiles


def _named(result: Spans) -> Table:
    table = _table(("span", "tokens", "text"))
    several = result.texts > 1
    if several:
        table.add_column("texts", justify="right")
    for span in result.spans:
        text = "" if span.name == ELSEWHERE else shorten(visible(span.shown), _TEXT)
        cells = [visible(span.name), f"{span.tokens:.3g}", text]
        table.add_row(*cells, *([f"{span.texts:,}"] if several else []))
    return table


def _lifts(result: Spans, ranked: Sequence[tuple[SpanWeights, str, SpanShare]]) -> Table:
    titles = ["head", "span", "%", "95 %", "chance", "lift", "per token", "rows"]
    table = _table([title for title in titles if title != "95 %" or result.texts > 1])
    for head, name, share in ranked:
        mark = MARK if share.sure and result.documents is None else ""
        cells = [result.layout.name(head.head) + mark, visible(name)]
        cells += [percent(joint(share))]
        cells += [interval(joint(share))] if result.texts > 1 else []
        cells += [plain_percent(share.chance), lift(share), per_token(share), f"{share.rows:,}"]
        table.add_row(*cells)
    return table


def _matrix(result: Spans, head: SpanWeights) -> Table:
    """Mean weight in percent, from the spans of the lines to those of the columns."""
    table = _table((f"{result.layout.name(head.head)}: from, to", *map(visible, result.names)))
    for column in table.columns[1:]:
        column.justify = "right"
    for name, line in zip(result.names, head.matrix, strict=True):
        table.add_row(visible(name), *map(plain_percent, line))
    return table


def gaze_table(result: Spans, top: int, to: str | None = None) -> Table:
    """The heads that look at boxes of pictures most, against chance."""
    sure = any(look.low is not None for _, _, look in result.looks(to))
    ends = ("95 %",) * sure
    table = _table(
        ("head", "gaze at", "from", "%", *ends, "chance", "lift", "% on picture", "rows")
    )
    for head, gaze, look in result.looks(to)[:top]:
        cells = [result.layout.name(head), visible(gaze.box), visible(gaze.rows)]
        cells += [plain_percent(look.share)]
        cells += [interval(Interval(look.share, look.low, look.high))] * sure
        cells += [plain_percent(look.chance), times(look.lift)]
        table.add_row(*cells, plain_percent(look.on_picture), f"{gaze.count:,}")
    return table


def documents_table(result: Spans, top: int) -> Table:
    """The heads that are right most often where heads are chosen, and the rules."""
    sheet = result.documents
    assert sheet is not None
    table = _table(("head", "right %", "95 %", "points", "95 %", "where chosen"))
    for head in sheet.ranked[:top]:
        table.add_row(
            result.layout.name(head.head) + MARK * (head.head in sheet.sure),
            percent(head.accuracy),
            interval(head.accuracy),
            points(head.margin),
            interval(head.margin),
            plain_percent(head.where_chosen),
        )
    table.add_section()
    table.add_row("chance", plain_percent(sheet.chance), "", "", "", "", style="dim")
    for rule in sheet.rules:
        cells = (percent(rule.accuracy), interval(rule.accuracy), "", "")
        table.add_row(RULE_NAMES[rule.name], *cells, plain_percent(rule.where_chosen), style="dim")
    return table


def _table(titles: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for number, title in enumerate(titles):
        left = not number or title in ("span", "text", "gaze at", "from")
        table.add_column(Text(title), justify="left" if left else "right", no_wrap=title != "text")
    return table
