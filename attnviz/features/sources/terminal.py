"""Sources on the terminal: the matrix, the sums of both sides, what heads read, a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text

from attnviz.drawing.labels import percent, signs, visible
from attnviz.drawing.signed import BLUE, ORANGE, coloured, on_terminal, signed
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
            yield ShareBars(result, side)
            yield ""
        yield Text(words.shares_sentence(result))
        yield ""
        yield Line(words.closing(result), "dim")
        return
    yield Subject(result)
    yield ""
    yield SourceMatrix(result)
    yield ""
    for side in words.SIDES:
        yield SideBars(result, side)
        yield ""
    if result.reads:
        yield Reads(result)
        yield ""
    yield RowKeys(result)
    yield ""
    yield Text(words.sentence(result))
    yield ""
    yield Line(words.closing(result), "dim")


class Subject:
    """A renderable: whose score it is, and that the sources add up to it."""

    def __init__(self, result: Sources) -> None:
        self.result = result

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw for this console."""
        yield Text(words.subject(self.result, ascii_only=options.ascii_only), "bold")
        yield Text(words.checked(self.result))


class SourceMatrix:
    """A renderable: sources of the query downwards, of the key across."""

    def __init__(self, result: Sources) -> None:
        self.result = result

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw for this console, in as many bands of columns as its width needs."""
        rows, columns, values = words.grouped(self.result)
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


class SideBars:
    """A renderable: what every source of one side adds."""

    def __init__(self, result: Sources, side: ScoreSide) -> None:
        self.result, self.side = result, side

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw for this console."""
        listed = list(words.listed(self.result, self.side))[:_LISTED]
        most = max((abs(value) for _, value, _ in listed), default=0.0)
        table = _table((f"the {self.side} is from", "<"), ("adds", ">"), ("share", ">"), ("", "<"))
        for name, value, share in listed:
            table.add_row(
                name, signed(value, 3), "" if share is None else f"{words.whole(share)} %",
                _bar(value, most, console, options),
            )  # fmt: skip
        yield table


class ShareBars:
    """A renderable: the shares of one side over many texts."""

    def __init__(self, result: SourceShares, side: ScoreSide) -> None:
        self.result, self.side = result, side

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw for this console."""
        shares = self.result.side(self.side)[:_LISTED]
        most = max((abs(share.share) for share in shares), default=0.0)
        table = _table(
            (f"the {self.side} is from", "<"), ("share of the contrast", ">"), ("adds", ">"),
            ("", "<"),
        )  # fmt: skip
        for share in shares:
            table.add_row(
                words.label(self.result, share.origin), words.share_of(share),
                signed(share.value, 3), _bar(share.share, most, console, options),
            )  # fmt: skip
        yield table


class Reads:
    """A renderable: the tokens that the strongest earlier heads read."""

    def __init__(self, result: Sources) -> None:
        self.result = result

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw for this console."""
        table = _table(("one level down", "<"), ("reads", "<"), ("weight", ">"), ("adds", ">"))
        before = ""
        for read in self.result.reads:
            head = f"{read.side}: head {self.result.layout.name(read.head)}"
            token = f"{visible(read.token, ascii_only=options.ascii_only)} ({read.position})"
            name = "" if head == before else head
            table.add_row(name, token, percent(read.weight), signed(read.value, 3))
            before = head
        yield table


class RowKeys:
    """A renderable: the strongest keys of the row and the sources of their scores."""

    def __init__(self, result: Sources) -> None:
        self.result = result

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Draw for this console."""
        result = self.result
        table = _table(("keys of the row", "<"), ("weight", ">"), ("score", ">"), ("of it", "<"))
        for key in sorted(result.row, key=lambda row: -row.weight)[:_KEYS]:
            order = sorted(range(len(key.by_key)), key=lambda n: -abs(key.by_key[n]))[:3]
            named = (
                f"{words.label(result, result.key_origins[n])} {signed(key.by_key[n])}"
                for n in order
            )
            token = f"{visible(key.token, ascii_only=options.ascii_only)} ({key.position})"
            table.add_row(token, percent(key.weight), f"{key.score:.2f}", ", ".join(named))
        yield table


def _bar(value: float, most: float, console: Console, options: ConsoleOptions) -> Text:
    length = round(_BAR * abs(value) / most) if most > 0 else 0
    mark = ("#" if value > 0 else "-") if options.ascii_only else "█"
    style = Style(color=BLUE if value > 0 else ORANGE) if coloured(console) else Style()
    return Text(mark * length, style)


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    for title, side in columns:
        table.add_column(title, justify="right" if side == ">" else "left", overflow="fold")
    return table
