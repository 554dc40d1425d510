"""Circuits described: who copies, whom positions send where, the strongest edges, findings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import zip_longest
from operator import itemgetter

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from attnviz.core.heads import Head
from attnviz.core.result import COPYING, Figures, Finding, Interval, Measure, bare
from attnviz.drawing.console import renderable, table_of
from attnviz.drawing.description import Column, Listing, estimate_column, head_column
from attnviz.drawing.grid import signed_grid
from attnviz.drawing.labels import closing, model_name, number, percent, signs
from attnviz.drawing.terminal import Line
from attnviz.features.circuits.copying import FIRST
from attnviz.features.circuits.result import SIDES, ByPosition, Chance, Circuits, Edge, Side

_SENT = 10  # heads that are listed by where positions send them
UP = -1
"""What raises the token that is read is blue: the sign that is orange."""

FED: dict[Side, str] = {"Q": "queries", "K": "keys", "V": "values"}
PLACES = {
    "previous": "the position before",
    "first": "the first position",
    "same": "its own position",
    "next": "the position after",
}
_CLEAR = 0.2  # least weight on a place that positions are said to send a head to
_TIMES = 5  # and that in uniform attention


_ENOUGH = 50  # edges from which on their upper tenth means something


def title(report: Circuits) -> str:
    """Return what is shown."""
    return f"What the weights of {model_name(report.source)} say, without any text"


def expected(chance: Chance, digits: int) -> str:
    """``0.072, sd 0.002``."""
    digits += chance.sd < 0.5 * 10**-digits
    mean = round(chance.mean, digits) + 0.0  # no negative zero
    return f"{mean:.{digits}f}, sd {chance.sd:.{digits}f}"


def copying_title(report: Circuits) -> str:
    """Return what the grid of copying shows."""
    kind = "first" if "first" in report.copying_chance else "plain"
    chance, matched = report.copying_chance[kind], report.copying_matched[kind]
    return (
        "Copying: 1 where a head raises the very tokens that it reads, -1 where it lowers them "
        f"(random heads: {expected(chance, 2)}; with these heads' singular values: "
        f"{expected(matched, 2)})"
    )


def copying_below(report: Circuits) -> str:
    """Return what the grid's heads read, and how plain embeddings mislead."""
    tokens = f"{report.tokens:,} tokens"
    shares = {head: copying.lowered or 0.0 for head, copying in report.copying().items()}
    head = max(shares, key=lambda head: shares[head])
    most = f"{report.layout.name(head)} lowers the own logits of most of them"
    tokens += f"; {most}, {percent(shares[head])}"
    if not report.first:
        return f"heads read the token embeddings as they are; {tokens}"
    lower = sum(report.plain[head].score < 0 for head in report.first)
    return (
        "layer 0 reads the token embeddings, later layers the embeddings as they leave layer 0 "
        f"(read as they are, {lower} of {len(report.first)} of these heads would score below 0); "
        f"{tokens}"
    )


def sent(report: Circuits) -> list[tuple[Head, str, float, float]]:
    """Heads that positions alone send somewhere: head, place, weight, uniform; largest first."""
    if report.uniform is None:
        return []
    uniform: ByPosition = report.uniform
    heads = []
    for head, means in report.by_position.items():
        place, weight = means.strongest()
        if weight >= max(_CLEAR, _TIMES * (even := getattr(uniform, place))):
            heads.append((head, place, weight, even))
    return sorted(heads, key=lambda row: -row[2])


def edges_title(report: Circuits) -> str:
    """Return what the excess is over."""
    means = {expected(chance, 3) for chance in report.chance.values()}
    return (
        "Composition: how much of what a head writes a later head reads, above random matrices "
        f"of the same shapes ({'; '.join(sorted(means))})"
    )


def shown(report: Circuits, side: Side, top: int) -> tuple[Edge, ...]:
    """Return the strongest edges of a side that random heads would hardly have."""
    return report.clear(side)[:top]


def edges_below(report: Circuits) -> str:
    """How many edges there are, and where their upper end begins."""
    sides = list(report.spread.items())
    counts = "; ".join(
        f"{FED[side]} {spread.edges:,}"
        + (f", 90th percentile {spread.top10:+.3f}" if spread.edges >= _ENOUGH else "")
        for side, spread in sides
    )
    measured = (
        "; in brackets what the writer was measured to add to the reader on texts, as a share of "
        "what sets its keys apart"
        if report.measured
        else ""
    )
    return (
        f"edges in total: {counts}; omitted are those no stronger than the strongest of as many "
        f"random heads with the same singular values{measured}"
    )


def measured(report: Circuits, edge: Edge) -> str:
    """Return what was measured of an edge, `` (58 %)``; empty for nothing."""
    value = report.measured.get((edge.side, edge.writer, edge.reader))
    return "" if value is None else f" ({round(100 * value[0]) + 0:d} %)"


def parts(report: Circuits, top: int = 10) -> Iterator[RenderableType]:
    """Show all that there is, with so many edges of each side, and the model."""
    yield Text(title(report), "bold")
    yield Text("")
    if report.plain:
        yield Line(copying_title(report), "bold")
        scores = {head: figure.score for head, figure in report.copying().items()}
        yield signed_grid(report.layout, scores, 1.0, UP)
        yield Line(copying_below(report), "dim")
        yield Text("")
    if report.by_position:
        yield from _by_position(report)
    if report.edges:
        yield Line(edges_title(report), "bold")
        yield edges_table(report, top)
        yield Line(edges_below(report), "dim")
        yield Text("")
    yield Line(closing(report.source), "dim")


def _by_position(report: Circuits) -> Iterator[RenderableType]:
    """Show the heads that positions alone send somewhere."""
    yield Line(
        f"Positions: where heads would look if position embeddings were all they read "
        f"(rows {FIRST} to {report.positions - 2} of {report.positions} positions)",
        "bold",
    )
    heads = sent(report)
    if heads:
        columns = [
            head_column(report.layout, itemgetter(0)),
            Column("", itemgetter(1), "looks at", PLACES.__getitem__, left=True),
            Column("", itemgetter(2), "weight", number),
            Column("", itemgetter(3), "uniform", number),
        ]
        yield Listing(columns, heads).table(_SENT, no_wrap=True, gap=2)
    if len(heads) > _SENT:
        yield Line(f"and {len(heads) - _SENT} more heads", "dim")
    if not heads:
        yield Line("none of them anywhere in particular", "dim")
    yield Text("")


@renderable
def edges_table(
    console: Console, options: ConsoleOptions, report: Circuits, top: int
) -> RenderResult:
    """Show the strongest edges of each side, side by side."""
    name = report.layout.name

    def written(edge: Edge | None) -> str:
        if edge is None:
            return ""
        weights = f"{name(edge.writer)} → {name(edge.reader)}  {edge.excess:+.3f}"
        return signs(f"{weights}{measured(report, edge)}", options.ascii_only)

    sides = [side for side in SIDES if report.of(side)]
    table = table_of(">", *(f"into {FED[side]}" for side in sides), no_wrap=True, gap=2)
    columns = [shown(report, side, top) for side in sides]
    for rank, edges in enumerate(zip_longest(*columns), start=1):
        table.add_row(str(rank), *map(written, edges))
    yield table


def listing(result: Circuits) -> Listing:
    """List each edge, with what was measured of it where that is known."""
    name = result.layout.name

    def share(edge: Edge) -> Interval:
        return Interval(*result.measured.get((edge.side, edge.writer, edge.reader), (None,) * 3))

    columns = [
        Column("side", "side"),
        Column("writer", lambda edge: name(edge.writer)),
        Column("reader", lambda edge: name(edge.reader)),
        *(Column(value, value) for value in ("ratio", "excess", "p")),
        *([estimate_column("share", share)] if result.measured else []),
    ]
    return Listing(columns, result.edges)


_NAMED = 3  # edges of each side that a head is told of, in and out


def finding(result: Circuits, name: str) -> Finding:
    """Return what each head copies, where positions alone send it, and which heads feed it."""
    layout = result.layout
    scores = result.copying()
    strongest = {
        layout.name(head): max(of)
        for head in layout
        if (of := [edge.excess for edge in result.edges if edge.writer == head])
    }
    copied = bare({layout.name(head): copying.score for head, copying in scores.items()})
    before = bare({layout.name(head): p.previous for head, p in result.by_position.items()})
    edge = "strongest edge into a later head, above random matrices"
    measures = (
        Measure("copying", "copying score", "", UP, copied, COPYING),
        Measure("previous", "weight on the position before, by positions alone", "", 0, before),
        Measure("writes", edge, "", 0, bare(strongest)),
    )
    how = (
        "From weights alone, no text: how much of what it writes later heads read, above random "
        "matrices of the same shapes; whether it raises the tokens that it reads (copying, -1 to "
        "1); and where it would look if position embeddings were all there is."
    )
    missing = [reason for what, reason in result.reasons.items() if what != "Q and K"]
    if missing:
        how += f" Not all of it is known: {'; '.join(missing)}."
    said = {layout.name(head): _lines(result, head) for head in layout}
    return Finding.of("circuits", name, "What its weights allow", how, said, measures)


def _lines(result: Circuits, head: Head) -> Iterator[str]:
    copying, places = result.copying().get(head), result.by_position.get(head)
    if copying is not None:
        yield f"copying score {copying.score:+.2f}"
        if copying.lowered is not None:
            yield f"lowers the own logit of {percent(copying.lowered)} of tokens"
    if places is not None and result.uniform is not None:
        place, weight = places.strongest()
        even = getattr(result.uniform, place)
        yield (
            f"by positions alone most weight on {PLACES[place]}: {number(weight)} "
            f"(uniform {number(even)})"
        )
    name = result.layout.name
    for side in SIDES if result.edges else ():
        edges = shown(result, side, len(result.edges))
        into = [f"{name(e.writer)} ({e.excess:+.3f})" for e in edges if e.reader == head][:_NAMED]
        out = [f"{name(e.reader)} ({e.excess:+.3f})" for e in edges if e.writer == head][:_NAMED]
        if into:
            yield f"its {FED[side]} can be fed by {', '.join(into)}"
        if out:
            yield f"it can feed the {FED[side]} of {', '.join(out)}"


def figures(result: Circuits) -> Figures:
    """Get copying, where positions send a head, and its strongest edges as writer and as reader."""
    return Figures({result.layout.name(head): _of(result, head) for head in result.layout})


def _of(result: Circuits, head: Head) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for name, scores in (("copying plain", result.plain), ("copying first", result.first)):
        if head in scores:
            values[name] = scores[head].score
            values[f"{name}, lowered"] = scores[head].lowered
    if head in result.by_position:
        means = asdict(result.by_position[head])
        values |= {f"{place} by position": weight for place, weight in means.items()}
    written = [edge.excess for edge in result.edges if edge.writer == head]
    read = [edge.excess for edge in result.edges if edge.reader == head]
    values["strongest edge out"] = max(written, default=None)
    values["strongest edge in"] = max(read, default=None)
    return values
