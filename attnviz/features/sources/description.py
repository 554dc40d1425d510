"""Sources of scores described: the matrix, the sums of both sides, what heads read, findings."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.text import Text

from attnviz.core.reasons import Origin
from attnviz.core.result import Finding, Interval, Measure
from attnviz.core.split import EVERYTHING
from attnviz.drawing.console import coloured, renderable, table_of
from attnviz.drawing.description import Column, Listing, Value, estimate_column, plain
from attnviz.drawing.grid import BLUE, ORANGE, on_terminal, signed
from attnviz.drawing.labels import closing, percent, signs, visible
from attnviz.drawing.terminal import Line
from attnviz.features.sources.result import (
    MEAN,
    REST,
    ScoreSide,
    Sources,
    SourceShare,
    SourceShares,
)

UP = -1  # what raises the score is blue, what lowers it orange: the sign that is orange

LEAST = 0.02  # of the largest sum of a side: smaller sources stand together as the others

MOST = 24  # sources of a side that the matrix has one by one, the largest

OTHERS = "others"

SIDES: tuple[ScoreSide, ScoreSide] = ("query", "key")


def subject(result: Sources, *, ascii_only: bool = False) -> str:
    """Whose score it is: ``score of 2.0, ·the (7) to ·cat (2) less that of ·moon (4)``."""

    def named(texts: tuple[str, ...], position: int) -> str:
        return f"{visible(texts[position], ascii_only=ascii_only)} ({position})"

    phrase = f"score of {result.name}, {named(result.queries, result.query)} to "
    phrase += named(result.keys, result.key)
    if result.other_key == MEAN:
        return f"{phrase} less the mean of all other keys"
    if result.other_key == REST:
        return f"{phrase} less the mean of all other keys by their weights"
    if isinstance(result.other_key, int):
        return f"{phrase} less that to {named(result.keys, result.other_key)}"
    return phrase


def checked(result: Sources) -> str:
    """Return the sum beside the model's own score."""
    beside = f", {signed(result.added, 3)} of it by position" if result.added else ""
    return (
        f"the sources add up to {result.sum:.4f}{beside}, the model says {result.score:.4f} "
        f"(difference {abs(result.sum - result.score):.0e}); weight {result.weight:.3f}"
    )


def label(result: Sources | SourceShares, origin: Origin) -> str:
    """Return the name of a source; heads say that they are heads."""
    name = origin.name(result.layout)
    return f"head {name}" if origin.head is not None else name


def listed(result: Sources, side: ScoreSide) -> Iterator[tuple[str, float, float | None]]:
    """Name, value and share of a side's sources, the largest first and the small ones together."""
    sums = result.side(side)
    largest = max((abs(part.value) for part in sums), default=0.0)
    remainder, remainder_share, count = 0.0, 0.0, 0
    for part in sums:
        if abs(part.value) >= LEAST * largest:
            yield label(result, part.origin), part.value, part.share
        else:
            remainder, count = remainder + part.value, count + 1
            remainder_share += part.share or 0.0
    if count:
        has_shares = sums[0].share is not None
        yield f"{count} {OTHERS}", remainder, remainder_share if has_shares else None


def grouped(result: Sources) -> tuple[list[str], list[str], list[list[float]]]:
    """Join small sources of either side: names of rows, names of columns, values."""

    def largest(side: ScoreSide) -> tuple[list[str], list[list[int]]]:
        origins = result.query_origins if side == "query" else result.key_origins
        sums = {part.origin: part.value for part in result.side(side)}
        sizes = sorted(map(abs, sums.values()), reverse=True)
        least = max(LEAST * sizes[0], sizes[min(MOST, len(sizes)) - 1]) if sizes else 0.0
        names: list[str] = []
        groups: list[list[int]] = []
        small: list[int] = []
        for number, origin in enumerate(origins):
            if abs(sums[origin]) >= least:
                names.append(label(result, origin))
                groups.append([number])
            else:
                small.append(number)
        if small:
            names.append(f"{len(small)} {OTHERS}")
            groups.append(small)
        return names, groups

    rows, row_groups = largest("query")
    columns, column_groups = largest("key")
    values = [
        [
            sum(result.matrix[a][b] for a in row_indices for b in column_indices)
            for column_indices in column_groups
        ]
        for row_indices in row_groups
    ]
    return rows, columns, values


def sentence(result: Sources) -> str:
    """Where the key comes from, and the query, in one line."""
    quantity = "difference" if result.other_key is not None else "score"
    clauses = []
    for side in reversed(SIDES):
        sums = result.side(side)
        if not sums:
            continue
        if sums[0].share is None:
            clauses.append(f"the sources of the {side} cancel")
            continue
        top = [part for part in sums[:3] if abs(part.share or 0.0) >= 0.1] or [sums[0]]
        parts = ", ".join(
            f"{whole(part.share or 0.0)} % {label(result, part.origin)}" for part in top
        )
        clauses.append(f"on the {side} side {parts}")
    return f"Of the {quantity}, {'; '.join(clauses)}."


def whole(share: float) -> str:
    """Return a share in percent, without decimals and without a negative zero."""
    return f"{round(100 * share) + 0:d}"


def share_of(share: SourceShare) -> str:
    """Return a share with its interval, in percent."""
    ends = ""
    if share.low is not None and share.high is not None:
        ends = f" [{whole(share.low)}, {whole(share.high)}]"
    return f"{whole(share.share)} %{ends}"


def nothing(share: SourceShare) -> str:
    """``nothing (7 % would show)`` of a share that is not told from 0; empty else."""
    if share.sure or share.detectable is None:
        return ""
    return f"nothing ({100 * share.detectable:.2g} % would show)"


def rows_of(result: SourceShares) -> str:
    """Which rows were looked at."""
    phrase = (
        f"the targets of {result.score}"
        if result.score
        else "the key with the largest weight of every row"
    )
    by_weights = " by their weights" if result.other_key == REST else ""
    held_out = ""
    if result.chosen_on and result.split != EVERYTHING:
        held_out = f", the role chosen on {result.chosen_on:,} other ones ({result.split})"
    return (
        f"{result.name}, {phrase} against all other keys{by_weights}: {result.rows:,} of "
        f"{result.of_rows:,} rows of {result.texts:,} texts{held_out}"
    )


def shares_sentence(result: SourceShares) -> str:
    """Through what a head finds its key, and what all sources come to that add and take away.

    ``2.0 finds its key through head 1.4 (63 % [58, 68] of the contrast); sources of its keys that
    add come to +116 %, those that take away to -16 %``.
    """
    through = [share for share in result.by_key if share.origin.kind != "bias"]
    if not through or through[0].share <= 0:
        return f"No source of the keys of {result.name} carries the contrast."
    top = [share for share in through[:3] if share.share >= 0.1] or through[:1]
    first, *further = (f"{label(result, share.origin)} ({share_of(share)}" for share in top)
    parts = " and ".join([f"{first} of the contrast)", *(f"{phrase})" for phrase in further)])
    return f"{result.name} finds its key through {parts}; {both_signs(result)}."


def both_signs(result: SourceShares) -> str:
    """Return what the sources of the keys come to that add, and that take away."""
    adds, takes = result.both_signs("key")
    return (
        f"sources of its keys that add come to {100 * adds:+.0f} %, those that take away to "
        f"{100 * takes:+.0f} %"
    )


_BAR = 24
_COLUMN = 9
_LISTED = 12
_KEYS = 6


def parts(result: Sources | SourceShares) -> Iterator[RenderableType]:
    """One score: its matrix, sums by side and the row; many texts: shares of both sides."""
    if isinstance(result, SourceShares):
        yield Line(rows_of(result), "bold")
        yield ""
        for side in SIDES:
            yield share_bars(result, side)
            yield ""
        yield Text(shares_sentence(result))
        yield ""
        yield Line(closing(result.source), "dim")
        return
    yield _heading(result)
    yield ""
    yield source_matrix(result)
    yield ""
    for side in SIDES:
        yield side_bars(result, side)
        yield ""
    if result.reads:
        yield reads(result)
        yield ""
    yield row_keys(result)
    yield ""
    yield Text(sentence(result))
    yield ""
    yield Line(closing(result.source), "dim")


@renderable
def _heading(console: Console, options: ConsoleOptions, result: Sources) -> RenderResult:
    """Say whose score it is, and that the sources add up to it."""
    yield Text(subject(result, ascii_only=options.ascii_only), "bold")
    yield Text(checked(result))


@renderable
def source_matrix(console: Console, options: ConsoleOptions, result: Sources) -> RenderResult:
    """Yield sources of the query downwards, of the key across."""
    rows, columns, values = grouped(result)
    largest = max((abs(v) for row in values for v in row), default=0.0)
    yield Text(signs("query ↓  key →, in units of the score", options.ascii_only), "dim")
    width = max(len(name) for name in rows)
    fitting = max((options.max_width - width - 1) // (_COLUMN + 1), 1)
    for first in range(0, len(columns), fitting):
        band = range(first, min(first + fitting, len(columns)))
        heading = " ".join(f"{columns[n]:^{_COLUMN}}" for n in band)
        yield Text(f"{'':{width}} {heading}".rstrip(), "dim", no_wrap=True)
        for name, row in zip(rows, values, strict=True):
            line = Text(f"{name:>{width}} ", "dim", no_wrap=True)
            for n in band:
                style = on_terminal(row[n], largest, UP) if coloured(console) else Style()
                line.append(f"{signed(row[n], 3, 2):^{_COLUMN}}", style)
                line.append(" ")
            line.rstrip()
            yield line


@renderable
def side_bars(
    console: Console, options: ConsoleOptions, result: Sources, side: ScoreSide
) -> RenderResult:
    """Yield what every source of one side adds."""
    bars = list(listed(result, side))[:_LISTED]
    largest = max((abs(value) for _, value, _ in bars), default=0.0)
    table = table_of(f"the {side} is from", ">adds", ">share", "")
    for name, value, share in bars:
        table.add_row(
            name, signed(value, 3), "" if share is None else f"{whole(share)} %",
            _bar(value, largest, console, options),
        )  # fmt: skip
    yield table


@renderable
def share_bars(
    console: Console, options: ConsoleOptions, result: SourceShares, side: ScoreSide
) -> RenderResult:
    """Yield the shares of one side over many texts."""
    shares = result.side(side)[:_LISTED]
    largest = max((abs(share.share) for share in shares), default=0.0)
    table = table_of(f"the {side} is from", ">share of the contrast", ">adds", "")
    for share in shares:
        table.add_row(
            label(result, share.origin), share_of(share),
            signed(share.value, 3), _bar(share.share, largest, console, options) + Text(
                nothing(share), "dim"
            ),
        )  # fmt: skip
    yield table


@renderable
def reads(console: Console, options: ConsoleOptions, result: Sources) -> RenderResult:
    """Yield the tokens that the strongest earlier heads read."""
    table = table_of("one level down", "reads", ">weight", ">adds")
    prefix = ""
    for read in result.reads:
        head = f"{read.side}: head {result.layout.name(read.head)}"
        token = f"{visible(read.token, ascii_only=options.ascii_only)} ({read.position})"
        name = "" if head == prefix else head
        table.add_row(name, token, percent(read.weight), signed(read.value, 3))
        prefix = head
    yield table


@renderable
def row_keys(console: Console, options: ConsoleOptions, result: Sources) -> RenderResult:
    """Yield the strongest keys of the row and the sources of their scores."""
    table = table_of("keys of the row", ">weight", ">score", "of it")
    for key in sorted(result.row, key=lambda row: -row.weight)[:_KEYS]:
        order = sorted(range(len(key.by_key)), key=lambda n: -abs(key.by_key[n]))[:3]
        named = (f"{label(result, result.key_origins[n])} {signed(key.by_key[n])}" for n in order)
        token = f"{visible(key.token, ascii_only=options.ascii_only)} ({key.position})"
        table.add_row(token, percent(key.weight), f"{key.score:.2f}", ", ".join(named))
    yield table


def _bar(value: float, largest: float, console: Console, options: ConsoleOptions) -> Text:
    length = round(_BAR * abs(value) / largest) if largest > 0 else 0
    mark = ("#" if value > 0 else "-") if options.ascii_only else "█"
    style = Style(color=BLUE if value > 0 else ORANGE) if coloured(console) else Style()
    return Text(mark * length, style)


def listing(result: Sources | SourceShares) -> Listing:
    """List each pair of sources of a score; of many texts, each source of a side."""
    layout = result.layout

    def source(name: str, kind: str, value: Value) -> list[Column]:
        origin = Column(name, value)
        return [
            Column(name, lambda record: origin.of(record).name(layout)),
            Column(kind, lambda record: origin.of(record).kind),
        ]

    if isinstance(result, SourceShares):
        return Listing(
            [
                Column("side", itemgetter(0)),
                *source("source", "kind", lambda record: record[1].origin),
                Column("value", lambda record: record[1].value),
                estimate_column(
                    "share", lambda record: Interval(record[1].share, record[1].low, record[1].high)
                ),
                *plain("joint_low", "joint_high", "detectable", of=itemgetter(1)),
            ],
            [("query", share) for share in result.by_query]
            + [("key", share) for share in result.by_key],
        )
    return Listing(
        [
            *source("query_source", "query_kind", itemgetter(0)),
            *source("key_source", "key_kind", itemgetter(1)),
            Column("value", itemgetter(2)),
        ],
        [
            (query, key, value)
            for query, values in zip(result.query_origins, result.matrix, strict=True)
            for key, value in zip(result.key_origins, values, strict=True)
        ],
    )


def finding(result: Sources | SourceShares, name: str) -> Finding | None:
    """Through which earlier heads a head finds its keys; None for a single score."""
    if isinstance(result, Sources):
        return None
    reader = result.name
    shares = {
        result.layout.name(share.origin.head): share for share in result.by_key if share.origin.head
    }
    sentences: dict[str, tuple[str, ...]] = {
        head: (f"{share_of(share)} of what sets the keys of {reader} apart comes through it",)
        for head, share in shares.items()
    }
    sentences[reader] = (shares_sentence(result), *sentences.get(reader, ()))
    measure = Measure(
        "share",
        f"share of what sets the keys of {reader} apart",
        "",
        UP,
        {head: (share.share, share.low, share.high) for head, share in shares.items()},
        ("sets them less apart", "sets them more apart"),
    )
    explanation = (
        f"{rows_of(result)}; the mean score of these keys less that of the others, split "
        "over what earlier parts wrote to the keys, every normalization's scale held."
    )
    return Finding("sources", name, "Where its keys come from", explanation, sentences, (measure,))
