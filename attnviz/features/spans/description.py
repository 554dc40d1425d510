"""Heads and spans described: what the spans are, the grid, lifts, a matrix, gazes, findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from attnviz.core.heads import Head
from attnviz.core.result import Figures, Finding, Interval, Measure, Value, known
from attnviz.core.spans import ELSEWHERE, EVERY, LAST
from attnviz.drawing.console import Tile, tile_grid
from attnviz.drawing.description import (
    Column,
    Listing,
    estimate,
    estimate_column,
    head_column,
    interval,
    percent,
    plain,
    plain_percent,
    plain_share,
    points,
)
from attnviz.drawing.labels import counted, quoted, ran_on, said_alone, shorten, visible
from attnviz.drawing.labels import listing as joined
from attnviz.drawing.labels import percent as percent_of
from attnviz.drawing.terminal import Line
from attnviz.features.spans.result import (
    LEAST_LIFT,
    WORDS,
    Gaze,
    HeadGaze,
    NamedSpan,
    Spans,
    SpanShare,
    SpanWeights,
)

Ranked = tuple[SpanWeights, str, SpanShare]  # a head, the name of a span, and what it gives to it

_count = "{:,}".format
MARK = "*"
"""Behind the name of a head that finds the right document surely more often than any rule."""
_TOLD = 3  # heads of a span that a sentence names
RULE_NAMES = {
    "first": "first document",
    "last": "last document",
    "longest": "longest document",
    "question": "most words of the question",
    "answer": "most words of the answer",
}


def whose(result: Spans) -> str:
    """Whose weight it is, in words."""
    if result.rows == LAST:
        return "the last token's"
    return "all tokens'" if result.rows == EVERY else f"that of the tokens of {result.rows!r}"


def case(share: SpanShare) -> Interval:
    """Return a share as tables word it."""
    return Interval(share.mean, share.low, share.high)


def joint(share: SpanShare) -> Interval:
    """Return the same with the interval that holds for all heads and spans at once."""
    return Interval(share.mean, share.joint_low, share.joint_high)


def times(value: float | None) -> str:
    """Return a factor, ``×1.7``; a dash for none."""
    if value is None:
        return "–"
    return f"×{value:.{2 if value < 1 else 1 if value < 10 else 0}f}"


def gaze_line(result: Spans) -> str:
    """Return what gaze is, in one line."""
    quantity = "weight" if result.quantity == "weights" else said_alone(result.quantity)
    return (
        f"gaze: of the {quantity} that text gives to the picture, the part on the box; chance: the "
        f"box's share of the picture's tokens; {WORDS}: tokens neither special nor of a picture"
    )


def per_token(share: float) -> str:
    """Write the weight of one token, in percent."""
    return f"{100 * share:.2g}"


def answer(result: Spans, keys: str | None = None) -> str:
    """Which heads attend to what, in a sentence; or that none does."""
    sheet, name = result.documents, result.layout.name
    if sheet is not None:
        sure = [score for score in sheet.ranked if score.head in sheet.sure]
        parts = [f"{name(score.head)} ({estimate(score.accuracy)})" for score in sure]
        beside = f"; chance {plain_share(sheet.chance)}"
        if not parts:
            return (
                "No head is surely better than both chance and the best rule at finding the right "
                f"document{beside}"
            )
        finds = "finds" if len(parts) == 1 else "find"
        return f"{_few(parts)} {finds} the right document{beside}; no other head surely does"
    names = [span for span in result.names if span != ELSEWHERE and keys in (None, span)]
    triples = [triple for triple in result.ranked(keys) if triple[2].stands_out]
    clauses = []
    for span in names:
        parts = [
            f"{name(weights.head)} ({times(share.lift)}, {estimate(joint(share))})"
            for weights, which, share in triples
            if which == span
        ]
        if parts:
            attends = "attends" if len(parts) == 1 else "attend"
            clauses.append(f"{_few(parts)} {attends} to {quoted(span)}")
    if not clauses:
        return _nobody(result, names)
    return f"{'; '.join(clauses)}; no other head does"


def _nobody(result: Spans, names: Sequence[str]) -> str:
    """Return that no head attends to any of some spans more than chance; or that none could."""
    named = " or ".join(map(quoted, names))
    if result.family:
        return f"No head attends to {named} more than chance"
    chances = [
        share.chance
        for _, span, share in result.ranked()
        if span in names and share.chance is not None
    ]
    least = f"×{LEAST_LIFT:g} of chance"
    if chances and LEAST_LIFT * min(chances) >= 1:
        return (
            f"No head can attend to {named} as much as {least}: {percent_of(min(chances))} of the "
            "keys are there"
        )
    return f"No head attends to {named} as much as {least}"


def _few(heads: list[str]) -> str:
    """Return the first heads of a list, and how many more there are."""
    listed, hidden = heads[:_TOLD], len(heads) - _TOLD
    return joined([*listed, counted(hidden, "other")] if hidden > 0 else listed)


def choice_line(result: Spans) -> str:
    """Return what is known of the chosen head, in one line."""
    sheet = result.documents
    if sheet is None or sheet.best.accuracy.value is None:
        return "no head has a held-out figure"
    best, rival = sheet.best, sheet.rival
    return (
        f"head {result.layout.name(best.head)}{MARK * (best.head in sheet.sure)}: right document "
        f"in {percent(best.accuracy)} % (95 %: {interval(best.accuracy)}) of {sheet.measured_on}; "
        f"chance {plain_percent(sheet.chance)} %, {RULE_NAMES[rival.name]} "
        f"{plain_percent(rival.accuracy.value)} %, {points(best.margin)} points "
        f"(95 %: {interval(best.margin)})"
    )


def measured(result: Spans) -> str:
    """Return what was measured on what, in one line."""
    sheet = result.documents
    quantity = (
        "" if result.quantity == "weights" else f"{said_alone(result.quantity)}, rows sum to 1"
    )
    parts = [
        counted(result.texts, "example" if sheet else "text"),
        f"{sheet.documents:.3g} documents each" if sheet else "",
        f"weight: {whose(result)}",
        quantity,
        _joint_line(result),
        f"head and rule chosen on {sheet.chosen_on}, measured on {sheet.measured_on}"
        if sheet
        else "",
        ran_on(result.source),
    ]
    return " · ".join(filter(None, parts))


def _joint_line(result: Spans) -> str:
    """Return what the intervals of shares promise."""
    if not result.family:
        return ""
    sure = "" if result.documents is not None else f"; {MARK} differs from chance in that family"
    return f"95 % intervals hold for all {result.family:,} shares at once{sure}"


_TEXT = 40  # cells of a span's text


def parts(
    result: Spans, *, top: int = 10, keys: str | None = None, heads: Sequence[Head] = ()
) -> Iterator[RenderableType]:
    """Yield what the spans are, the grid, so many heads, matrices, and the legends."""
    yield Line(visible(answer(result, keys)), "bold")
    yield ""
    yield named_spans(result).table(fold=False)
    yield ""
    if tiles := span_tiles(result):
        yield tile_grid(result.layout, tiles)
        yield Line(
            "the span with the largest lift; full colour where it has all of the weight", "dim"
        )
        yield ""
    ranked = [triple for triple in result.ranked(keys) if triple[2].stands_out]
    if ranked:
        yield listing(result, ranked).table(top, fold=False)
    for head in [h for h in result.heads if h.head in heads] or [head for head, _, _ in ranked[:1]]:
        yield ""
        yield _matrix(result, head)
    if result.gazes:
        yield ""
        yield gazes(result, keys).table(top, fold=False)
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
    """Find every head's span of the largest lift where one stands out, as strong as its share."""
    tiles = {}
    for head in result.heads:
        named = [
            (share, name)
            for name, share in zip(result.names, head.shares, strict=True)
            if name != ELSEWHERE
        ]
        share, name = max(named, key=lambda pair: pair[0].lift or 0.0)
        if share.stands_out:
            tiles[head.head] = Tile(name, share.mean or 0.0)
    return tiles


def named_spans(result: Spans) -> Listing:
    """List the spans and what they are."""

    def text(span: NamedSpan) -> str:
        return "" if span.name == ELSEWHERE else shorten(visible(span.shown), _TEXT)

    columns = [
        Column("", "name", "span", visible, left=True),
        Column("", "tokens", "tokens", "{:.3g}".format),
        Column("", text, "text", left=True),
        Column("", "texts", "texts", _count, when=result.texts > 1),
    ]
    return Listing(columns, result.spans)


def _matrix(result: Spans, head: SpanWeights) -> Table:
    """Show mean weight in percent, from the spans of the lines to those of the columns."""
    columns = [
        Column(
            "", itemgetter(0), f"{result.layout.name(head.head)}: rows, keys", visible, left=True
        ),
        *(
            Column("", itemgetter(n), visible(name), plain_percent).under(itemgetter(1))
            for n, name in enumerate(result.names)
        ),
    ]
    lines = list(zip(result.names, head.matrix, strict=True))
    return Listing(columns, lines).table(fold=False)


def gazes(result: Spans, keys: str | None = None) -> Listing:
    """List the heads that look at boxes of pictures most, against chance."""
    looks = result.looks(keys)
    sure = any(look.low is not None for _, _, look in looks)

    def share(row: tuple[Head, Gaze, HeadGaze]) -> Interval:
        return Interval(row[2].share, row[2].low, row[2].high)

    columns = [
        head_column(result.layout, itemgetter(0)),
        Column("", lambda row: row[1].box, "gaze at", visible, left=True),
        Column("", lambda row: row[1].rows, "rows", visible, left=True),
        Column("", share, "%", lambda gaze: plain_percent(gaze.value), interval if sure else None),
        Column("", lambda row: row[2].chance, "chance", plain_percent),
        Column("", lambda row: row[2].lift, "lift", times),
        Column("", lambda row: row[2].on_picture, "% on picture", plain_percent),
        Column("", lambda row: row[1].count, "rows", _count),
    ]
    return Listing(columns, looks)


def documents_table(result: Spans, top: int) -> Table:
    """Return the heads that are right most often where heads are chosen, and the rules."""
    sheet = result.documents
    assert sheet is not None
    columns = [
        Column(
            "",
            "head",
            "head",
            lambda h: result.layout.name(h) + MARK * (h in sheet.sure),
            left=True,
        ),
        Column("", "accuracy", "right %", percent, interval),
        Column("", "margin", "points", points, interval),
        Column("", "where_chosen", "where chosen", plain_percent),
    ]
    table = Listing(columns, sheet.ranked).table(top, fold=False)
    table.add_section()
    table.add_row("chance", plain_percent(sheet.chance), "", "", "", "", style="dim")
    for rule in sheet.rules:
        cells = (percent(rule.accuracy), interval(rule.accuracy), "", "")
        table.add_row(RULE_NAMES[rule.name], *cells, plain_percent(rule.where_chosen), style="dim")
    return table


def listing(
    result: Spans, ranked: Sequence[tuple[SpanWeights, str, SpanShare]] | None = None
) -> Listing:
    """List each head and span, or box with all gazes, largest lift first, with its accuracy."""
    sheet = result.documents
    right = {} if sheet is None else {head.head: head for head in sheet.ranked}
    looks = {(head, gaze.box): look for head, gaze, look in result.looks() if gaze.rows == WORDS}

    def name(row: Ranked) -> str:
        mark = MARK if row[2].sure and sheet is None else ""
        return result.layout.name(row[0].head) + mark

    def look(part: str) -> Callable[[Ranked], Any]:
        return lambda row: getattr(looks.get((row[0].head, row[1])), part, None)

    def choice(part: str) -> Callable[[Ranked], Any]:
        return lambda row: getattr(right.get(row[0].head), part, None)

    columns = [
        replace(head_column(result.layout, lambda row: row[0].head), label=None),
        Column("", name, "head", left=True),
        Column("span", itemgetter(1), "span", visible, left=True),
        estimate_column("share", lambda row: case(row[2])),
        Column("", lambda row: joint(row[2]), "%", percent, interval if result.texts > 1 else None),
        *plain("joint_low", "joint_high", "sure", of=itemgetter(2)),
        Column("chance", lambda row: row[2].chance, "chance", plain_percent),
        Column("lift", lambda row: row[2].lift, "lift", times),
        Column("per_token", lambda row: row[2].per_token, "per token", per_token),
        Column("rows", lambda row: row[2].rows, "rows", _count),
        *(
            Column(f"gaze{end}", look(part))
            for end, part in (("", "share"), ("_low", "low"), ("_high", "high"))
        ),
        Column("gaze_chance", look("chance")),
        Column("gaze_lift", look("lift")),
        Column("on_picture", look("on_picture")),
        estimate_column("accuracy", choice("accuracy")),
        estimate_column("margin", choice("margin")),
    ]
    return Listing(columns, result.ranked() if ranked is None else ranked)


_SPANS = 3  # spans that are told of a head


def finding(result: Spans, name: str) -> Finding:
    """Return what each head gives to the spans, or how often it finds the right document."""
    return _of_documents(result, name) if result.documents is not None else _of_spans(result, name)


def _of_spans(result: Spans, name: str) -> Finding:
    sentences, values = {}, {span: dict[str, Value]() for span in result.names if span != ELSEWHERE}
    for weights in result.heads:
        head, lines = result.layout.name(weights.head), []
        for span, share in zip(result.names, weights.shares, strict=True):
            if span == ELSEWHERE or share.mean is None:
                continue
            values[span][head] = (share.mean, share.joint_low, share.joint_high)
            line = f"{span} {estimate(joint(share))}, {times(share.lift)} chance"
            lines.append((share.lift or 0.0, line))
        sentences[head] = [line for _, line in sorted(lines, reverse=True)[:_SPANS]]
    measures = [
        Measure(span, f"share of the weight on {span}", "", 0, heads)
        for span, heads in values.items()
    ]
    measures += _gazes(result, sentences)
    texts = f"{result.texts} texts" if result.texts > 1 else "one text"
    intervals = "; 95 % intervals hold for all heads and spans at once" if result.family else ""
    method = (
        f"The share of the weight ({whose(result)}) on each span, and how many times the share of "
        f"the keys that it is; {texts}{intervals}."
    )
    if result.gazes:
        method += " Gaze: of the weight that all words give to a picture, the part on the box."
    return Finding.of("spans", name, "Which parts it attends to", method, sentences, measures)


def _gazes(result: Spans, sentences: dict[str, list[str]]) -> list[Measure]:
    """Return the gaze of all words at every box; a line of it is added to what is said of heads."""
    measures = []
    for gaze in result.gazes:
        if gaze.rows != WORDS:
            continue
        values = dict[str, Value]()
        for weights, look in zip(result.heads, gaze.heads, strict=True):
            if look.share is None:
                continue
            head = result.layout.name(weights.head)
            values[head] = (look.share, look.low, look.high)
            sentences[head].append(
                f"gaze at {gaze.box} {plain_share(look.share)}, {times(look.lift)} chance"
            )
        title = f"gaze at {gaze.box}, of the weight on its picture"
        measures.append(Measure(f"gaze at {gaze.box}", title, "", 0, values))
    return measures


def _of_documents(result: Spans, name: str) -> Finding:
    sheet = result.documents
    assert sheet is not None
    rival = f"{RULE_NAMES[sheet.baseline]} {plain_share(sheet.rival.accuracy.value)}"
    beside = f"{sheet.measured_on}, chance {plain_share(sheet.chance)}, {rival}"
    shares = {result.layout.name(score.head): score.accuracy for score in sheet.ranked}
    values = known(shares)
    sentences = {head: [f"{estimate(shares[head])} of {beside}"] for head in values}
    method = (
        f"How often the document with the most weight per token ({whose(result)}) is the right one "
        f"of {sheet.documents:.3g}, on {sheet.measured_on} that no head was chosen on; 95 % "
        "intervals."
    )
    measure = Measure("documents", "how often it finds the right document", "", 0, values)
    return Finding.of("spans", name, "Which document it attends to", method, sentences, [measure])


def figures(result: Spans) -> Figures:
    """Shares by span of the same name, and how often the right document is found."""
    name = result.layout.name
    values: dict[str, dict[str, float | None]] = {
        name(head.head): {
            span: share.mean
            for span, share in zip(result.names, head.shares, strict=True)
            if span != ELSEWHERE  # what the others leave
        }
        for head in result.heads
    }
    if result.documents is not None:
        for head in result.documents.ranked:
            values[name(head.head)]["right document"] = head.accuracy.value
    settings = {"rows": result.rows, "quantity": result.quantity}
    return Figures(values, settings=settings)
