"""Sources on the terminal: the matrix, the sums of both sides, what heads read, a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.text import Text

from attnviz.drawing.labels import closing, percent, signs, visible
from attnviz.drawing.renderable import coloured, renderable, table_of
from attnviz.drawing.signed import BLUE, ORANGE, on_terminal, signed
from attnviz.drawing.terminal import Line
from attnviz.features.sources import words
from attnviz.features.sources.result import ScoreSide, Sources, SourceShares

_BAR = 24
_COLUMN = 9
_LISTED = 12
_KEYS = 6


def parts(result: Sources | SourceShares) -> Iterator[RenderableType]:
    """One score: its matrix, sums by side and the row; many texts: shares of both sides."""
    if isinstance(result, SourceShares):
        yield Line(words.rows_of(result), "bold")
        yield ""
        for side in words.SIDES:
            yield share_bars(result, side)
            yield ""
        yield Text(words.shares_sentence(result))
        yield ""
        yield Line(closing(result.source), "dim")
        return
    yield subject(result)
    yield ""
    yield source_matrix(result)
    yield ""
    for side in words.SIDES:
        yield side_bars(result, side)
        yield ""
    if result.reads:
        yield reads(result)
        yield ""
    yield row_keys(result)
    yield ""
    yield Text(words.sentence(result))
    yield ""
    yield Line(closing(result.source), "dim")


@renderable
def subject(console: Console, options: ConsoleOptions, result: Sources) -> RenderResult:
    """Whose score it is, and that the sources add up to it."""
    yield Text(words.subject(result, ascii_only=options.ascii_only), "bold")
    yield Text(words.checked(result))


@renderable
def source_matrix(console: Console, options: ConsoleOptions, result: Sources) -> RenderResult:
    """Sources of the query downwards, of the key across."""
    rows, columns, values = words.grouped(result)
    most = max((abs(v) for row in values for v in row), default=0.0)
    yield Text(signs("query ↓  key →, in units of the score", options.ascii_only), "dim")
    wide = max(len(name) for name in rows)
    fitting = max((options.max_width - wide - 1) // (_COLUMN + 1), 1)
    for first in range(0, len(columns), fitting):
        some = range(first, min(first + fitting, len(columns)))
        heading = " ".join(f"{columns[n]:^{_COLUMN}}" for n in some)
        yield Text(f"{'':{wide}} {heading}".rstrip(), "dim", no_wrap=True)
        for name, row in zip(rows, values, strict=True):
            line = Text(f"{name:>{wide}} ", "dim", no_wrap=True)
            for n in some:
                style = on_terminal(row[n], most, words.UP) if coloured(console) else Style()
                line.append(f"{signed(row[n], 3, 2):^{_COLUMN}}", style)
                line.append(" ")
            line.rstrip()
            yield line


@renderable
def side_bars(
    console: Console, options: ConsoleOptions, result: Sources, side: ScoreSide
) -> RenderResult:
    """What every source of one side adds."""
    listed = list(words.listed(result, side))[:_LISTED]
    most = max((abs(value) for _, value, _ in listed), default=0.0)
    table = table_of(f"the {side} is from", ">adds", ">share", "")
    for name, value, share in listed:
        table.add_row(
            name, signed(value, 3), "" if share is None else f"{words.whole(share)} %",
            _bar(value, most, console, options),
        )  # fmt: skip
    yield table


@renderable
def share_bars(
    console: Console, options: ConsoleOptions, result: SourceShares, side: ScoreSide
) -> RenderResult:
    """The shares of one side over many texts."""
    shares = result.side(side)[:_LISTED]
    most = max((abs(share.share) for share in shares), default=0.0)
    table = table_of(f"the {side} is from", ">share of the contrast", ">adds", "")
    for share in shares:
        table.add_row(
            words.label(result, share.origin), words.share_of(share),
            signed(share.value, 3), _bar(share.share, most, console, options) + Text(
                words.nothing(share), "dim"
            ),
        )  # fmt: skip
    yield table


@renderable
def reads(console: Console, options: ConsoleOptions, result: Sources) -> RenderResult:
    """The tokens that the strongest earlier heads read."""
    table = table_of("one level down", "reads", ">weight", ">adds")
    before = ""
    for read in result.reads:
        head = f"{read.side}: head {result.layout.name(read.head)}"
        token = f"{visible(read.token, ascii_only=options.ascii_only)} ({read.position})"
        name = "" if head == before else head
        table.add_row(name, token, percent(read.weight), signed(read.value, 3))
        before = head
    yield table


@renderable
def row_keys(console: Console, options: ConsoleOptions, result: Sources) -> RenderResult:
    """The strongest keys of the row and the sources of their scores."""
    table = table_of("keys of the row", ">weight", ">score", "of it")
    for key in sorted(result.row, key=lambda row: -row.weight)[:_KEYS]:
        order = sorted(range(len(key.by_key)), key=lambda n: -abs(key.by_key[n]))[:3]
        named = (
            f"{words.label(result, result.key_origins[n])} {signed(key.by_key[n])}" for n in order
        )
        token = f"{visible(key.token, ascii_only=options.ascii_only)} ({key.position})"
        table.add_row(token, percent(key.weight), f"{key.score:.2f}", ", ".join(named))
    yield table


def _bar(value: float, most: float, console: Console, options: ConsoleOptions) -> Text:
    length = round(_BAR * abs(value) / most) if most > 0 else 0
    mark = ("#" if value > 0 else "-") if options.ascii_only else "█"
    style = Style(color=BLUE if value > 0 else ORANGE) if coloured(console) else Style()
    return Text(mark * length, style)
