"""Answers as text with ANSI colours, Markdown and CSV: their tables, numbers and colours.

The walk must appear at once, and rich's console and tables take longer to import than the rest of
the walk together; so this small writer stands in for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Literal, NamedTuple
from unicodedata import combining, east_asian_width

from attnviz.attention.spec import Amount
from attnviz.errors import Message, UsageError
from attnviz.files import packaged

_SI = ("", " k", " M", " G", " T", " P", " E")
_IEC = (" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB")


def _scaled(value: float, base: int, suffixes: tuple[str, ...], exact: int) -> str:
    if value < exact:
        return f"{value:,.0f}{suffixes[0]}"
    power = 0
    while value >= base and power < len(suffixes) - 1:
        value /= base
        power += 1
    if value >= 1000:
        return f"{value:,.0f}{suffixes[power]}"
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:.{digits}f}{suffixes[power]}"


def count(value: float) -> str:
    """``1,234``, ``12.3 k``, ``1.07 G``: exact below 10,000, then three digits."""
    return _scaled(value, 1000, _SI, 10_000)


def size(value: float) -> str:
    """Bytes: ``512 B``, ``16.0 KiB``, ``1.25 GiB``."""
    return _scaled(value, 1024, _IEC, 1024)


def amount(value: Amount, unit: str = "") -> str:
    """Return an amount for a narrow column: short where it is a number, else its formula."""
    if value.value is not None:
        return size(value.value) if unit == "B" else count(value.value)
    parts = []
    for key, coefficient in sorted(value.terms.items(), key=lambda item: (len(item[0]), item[0])):
        letters = Amount({key: 1}).written()
        parts.append(f"{count(coefficient)}·{letters}" if key else count(coefficient))
    return " + ".join(parts) + (f" {unit}" if unit else "")


def percent(share: float) -> str:
    """``12.5 %``, with two digits where it is small."""
    value = 100 * share
    return f"{value:.1f} %" if value >= 10 else f"{value:.2f} %"


def plural(number: int, noun: str) -> str:
    """``1 layer``, ``2 layers``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def say(key: str, *values: object, **options: object) -> Message:
    """Return a sentence of ``words.toml``, as ``sweep.kept``, with what is filled in."""
    view, name = key.split(".")
    return Message(packaged(__file__, "words.toml")[view][name], *values, **options)


HEADS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#7f6fd1", "#a0a02c")
"""Eight colours that stay apart for colour-blind readers (after Okabe & Ito 2008); they repeat."""

NEUTRAL = "#8a8f98"
"""X, C and everything before heads exist."""

MIXED = "#3b4252"
"""Y and W_O: all heads at once."""


def head_colour(head: int) -> str:
    """Return the colour of a head, as hex."""
    return HEADS[head % len(HEADS)]


def ansi(colour: str, *, background: bool = False) -> str:
    """Return a hex colour as an ANSI truecolor code."""
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"{48 if background else 38};2;{red};{green};{blue}"


TONES: Mapping[str, str] = {
    "title": "1", "dim": "2", "strong": "1", "good": "32", "bad": "31;1", "B": "2", "T": "36",
    "S": "32", "D": "34;1", "H": "35", "G": "35;1", "d": "33", "r": "31",
}  # fmt: skip
"""What each tone looks like, as ANSI codes that are legible on light and dark."""

_ASCII = str.maketrans(
    {"·": "*", "ᵀ": "^T", "√": "sqrt", "∞": "inf", "²": "^2", "³": "^3", "→": "->", "×": "x"}
    | {"─": "-", "│": "|", "Σ": "sum", "ᵣ": "_r", "ᵥ": "_v", "–": "-", "…": "...", "≤": "<="}
    | {"⁴": "^4", "▼": "v", "▶": ">", "█": "#", "▓": "#", "▒": "+", "░": ".", "●": "o", "✓": "ok"}
    | {"┌": "+", "┐": "+", "└": "+", "┘": "+", "├": "+", "┤": "+", "┬": "+", "┴": "+", "┼": "+"}
    | {"∈": "in", "÷": "/", "↓": "v", "≈": "~", "◆": "X", "•": "*", "▲": "^", "′": "'"}
)

Tone = str
Span = tuple[str, Tone]


class TableCell(NamedTuple):
    """Text in pieces, each with a tone ("" for none), and the bare value for other programs."""

    spans: tuple[Span, ...]
    raw: Any = None

    @property
    def text(self) -> str:
        """The text without tones."""
        return "".join(text for text, _ in self.spans)


class Column(NamedTuple):
    """A column: its key in CSV, its heading, and what may happen to it where room is short.

    ``wrap`` is the width down to which its text may be broken, 0 for never. ``optional`` says how
    readily it is left out, 0 for never.
    """

    key: str
    title: str
    align: Literal["left", "right"] = "left"
    wrap: int = 0
    optional: int = 0


class Row(NamedTuple):
    """Cells, and perhaps a sentence below them."""

    cells: tuple[TableCell, ...]
    under: str = ""


class Table(NamedTuple):
    """Columns and rows under a title.

    ``narrow`` is another form of the table for terminals of less than ``wide`` columns.
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    narrow: Table | None = None
    wide: int = 0


def cell(text: object = "", tone: Tone = "", raw: Any = None) -> TableCell:
    """Return a cell of one piece."""
    label = "" if text is None else str(text)
    return TableCell(((label, tone),), label if raw is None else raw)


CellColumn = tuple[Column, Callable[[Any], TableCell]]
"""A column, and what stands in it for an item of those that have a row."""


def numbers(
    key: str,
    title: str,
    value: str,
    write: Callable[[Any], object] = "{:,}".format,
    tone: Tone = "",
    optional: int = 0,
) -> CellColumn:
    """Return a column of numbers: an item's attribute of that name, as ``write`` has it."""
    number_of = attrgetter(value)

    def of(item: Any) -> TableCell:
        number = number_of(item)
        return cell(write(number), tone, number)

    return Column(key, title, "right", optional=optional), of


def table_of(items: Iterable[Any], *columns: CellColumn) -> Table:
    """Return a table with a row for each item."""
    rows = tuple(Row(tuple(of(item) for _, of in columns)) for item in items)
    return Table("", tuple(column for column, _ in columns), rows)


def shape_cell(symbols: Sequence[str], texts: Sequence[str], brackets: str) -> TableCell:
    """Return a shape whose axes are coloured by what they are."""
    spans: list[Span] = [(brackets[0], "")]
    for i, (symbol, text) in enumerate(zip(symbols, texts, strict=True)):
        if i:
            spans.append((", ", ""))
        spans.append((text, symbol[0] if symbol[0] in TONES else ""))
    spans.append((brackets[1], ""))
    return TableCell(tuple(spans), "".join(text for text, _ in spans))


def stacked(above: TableCell, below: TableCell) -> TableCell:
    """Two cells in one, the second below the first."""
    return TableCell((*above.spans, ("\n", ""), *below.spans), above.raw)


def cells_wide(text: str) -> int:
    """How many terminal cells a text takes."""
    if text.isascii():
        return len(text)
    double = sum(1 for c in text if east_asian_width(c) in "WF")
    return len(text) + double - sum(1 for c in text if combining(c))


class Paint:
    """Turns tones into ANSI codes, or leaves them out; and text into ASCII where that is asked."""

    def __init__(self, *, colour: bool, ascii_only: bool = False) -> None:
        self.colour, self.ascii_only = colour, ascii_only

    def __call__(self, text: str, tone: Tone = "") -> str:
        """Return the text in its tone; a tone may be one of :data:`TONES` or bare ANSI codes."""
        if self.ascii_only:
            text = text.translate(_ASCII)
        if not self.colour or not tone or not text:
            return text
        return f"\x1b[{TONES.get(tone, tone)}m{text}\x1b[0m"

    def line(self, spans: Iterable[Span]) -> str:
        """Several pieces."""
        return "".join(self(text, tone) for text, tone in spans)


Draw = Callable[[int, Paint], list[str]]  # draws something for a terminal of so many columns


class Printed(NamedTuple):
    """What people see of a view."""

    title: str  # the first line
    notes: tuple[str, ...] = ()  # sentences below
    tables: tuple[Table, ...] = ()  # the first of them is what CSV holds
    draw: Draw | None = None  # a plot or diagram for the terminal, shown before the notes


def table_text(table: Table, width: int, paint: Paint) -> list[str]:
    """Write a table in ``width`` columns, without the most optional ones where it is too wide."""
    if table.narrow is not None and width < table.wide:
        table = table.narrow._replace(title=table.title)
    if paint.ascii_only:
        table = _in_ascii(table)
    while True:
        bodies = [[_lines(c) for c in row.cells] for row in table.rows]
        widths = []
        for i, column in enumerate(table.columns):
            texts = [line for row in bodies for line in row[i]]
            widths.append(max([cells_wide(column.title), *(_spans_wide(line) for line in texts)]))
        room = width - sum(widths) - 2 * (len(widths) - 1)
        wraps = zip(widths, table.columns, strict=True)
        spare = sum(max(0, full - column.wrap) for full, column in wraps if column.wrap)
        droppable = [i for i, column in enumerate(table.columns) if column.optional]
        if room + spare >= 0 or not droppable:
            break
        table = _without(table, max(droppable, key=lambda i: (table.columns[i].optional, i)))
    for i, column in reversed(list(enumerate(table.columns))):
        if column.wrap and room < 0:
            cut = min(-room, widths[i] - column.wrap)
            widths[i] -= max(0, cut)
            room += max(0, cut)
    out = [paint(line, "title") for line in wrapped(table.title, width)] if table.title else []
    titles = [
        _pad([(c.title, "dim")], w, c.align) for c, w in zip(table.columns, widths, strict=True)
    ]
    if any(column.title for column in table.columns):
        out.append(_joined(titles, paint))
    for row, body in zip(table.rows, bodies, strict=True):
        blocks = [
            [piece for line in lines for piece in _wrap(line, w)] if c.wrap else lines
            for lines, c, w in zip(body, table.columns, widths, strict=True)
        ]
        for k in range(max(len(block) for block in blocks)):
            pieces = [
                _pad(block[k] if k < len(block) else [], w, c.align)
                for block, c, w in zip(blocks, table.columns, widths, strict=True)
            ]
            out.append(_joined(pieces, paint))
        if row.under:
            out += [paint("    " + line, "dim") for line in wrapped(row.under, width - 4)]
    return out


def _without(table: Table, index: int) -> Table:
    """Leave one column out."""

    def rest(parts: Sequence[Any]) -> tuple[Any, ...]:
        return (*parts[:index], *parts[index + 1 :])

    rows = tuple(row._replace(cells=rest(row.cells)) for row in table.rows)
    return Table(table.title, rest(table.columns), rows)


def _in_ascii(part: Any) -> Any:
    """Translate every text of a table, before anything is measured."""
    if isinstance(part, str):
        return part.translate(_ASCII)
    if not isinstance(part, tuple):
        return part
    inner = map(_in_ascii, part)
    return type(part)(*inner) if hasattr(part, "_fields") else tuple(inner)


def _joined(pieces: Sequence[Sequence[Span]], paint: Paint) -> str:
    spans: list[Span] = []
    for i, piece in enumerate(pieces):
        spans += [("  ", ""), *piece] if i else list(piece)
    return paint.line(spans).rstrip(" ")


def _lines(cell: TableCell) -> list[list[Span]]:
    """Return a cell's spans, line by line."""
    lines: list[list[Span]] = [[]]
    for text, tone in cell.spans:
        for i, part in enumerate(text.split("\n")):
            if i:
                lines.append([])
            if part:
                lines[-1].append((part, tone))
    return lines


def _spans_wide(line: Iterable[Span]) -> int:
    return sum(cells_wide(text) for text, _ in line)


def _pad(line: Sequence[Span], width: int, align: str) -> list[Span]:
    gap = " " * max(0, width - _spans_wide(line))
    return [(gap, ""), *line] if align == "right" else [*line, (gap, "")]


def _wrap(line: Sequence[Span], width: int) -> list[list[Span]]:
    if _spans_wide(line) <= width:
        return [list(line)]
    tone = line[0][1] if line else ""
    return [[(text, tone)] for text in wrapped("".join(text for text, _ in line), width)]


def wrapped(text: str, width: int) -> list[str]:
    """Text broken at spaces into lines of at most ``width`` cells; a longer word stays whole."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if cells_wide(longer) > width and lines[-1]:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def table_markdown(table: Table) -> str:
    """Return a GitHub table; ``under`` sentences become a last column."""
    explained = any(row.under for row in table.rows)
    titles = [column.title for column in table.columns] + (["why"] if explained else [])
    marks = [("---:" if c.align == "right" else "---") for c in table.columns]
    lines = [f"**{_escaped(table.title)}**", ""] if table.title else []
    lines.append("| " + " | ".join(map(_escaped, titles)) + " |")
    lines.append("| " + " | ".join(marks + (["---"] if explained else [])) + " |")
    for row in table.rows:
        texts = [cell.text.replace("\n", " ") for cell in row.cells]
        texts += [row.under] if explained else []
        lines.append("| " + " | ".join(map(_escaped, texts)) + " |")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return re.sub(r"([|\\`*_<\[\]])", r"\\\1", text)


def table_csv(table: Table) -> str:
    """Bare values under the columns' keys; the ``under`` sentences as column ``why``."""
    import csv
    import io

    explained = any(row.under for row in table.rows)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([c.key for c in table.columns] + (["why"] if explained else []))
    for row in table.rows:
        values = ["" if cell.raw is None else cell.raw for cell in row.cells]
        writer.writerow([*values, row.under] if explained else values)
    return out.getvalue()


MARKDOWN_WIDTH = 100


def as_text(answer: Any, width: int, paint: Paint) -> str:
    """Write an answer for a terminal of ``width`` columns."""
    lines = [paint(line, "title") for line in wrapped(answer.title, width)]
    blocks = [table_text(table, width, paint) for table in answer.tables]
    if answer.draw is not None:
        blocks.insert(0 if answer.draws_first else len(blocks), answer.draw(width, paint))
    for block in blocks:
        lines += ["", *block]
    if answer.notes:
        lines.append("")
    for note in answer.notes:
        first, *continued = wrapped(note, width - 2)
        lines += [paint("• " + first, "dim"), *(paint("  " + line, "dim") for line in continued)]
    return "\n".join(lines) + "\n"


def as_markdown(answer: Any) -> str:
    """For papers and READMEs; what is only drawn is drawn as text."""
    parts = [f"### {answer.title}\n", *(table_markdown(table) for table in answer.tables)]
    if answer.draw is not None and not answer.tables:
        lines = answer.draw(MARKDOWN_WIDTH, Paint(colour=False))
        parts.append("\n".join(["```text", *lines, "```\n"]))
    parts += ["\n".join(f"- {note}" for note in answer.notes) + "\n"] if answer.notes else []
    return "\n".join(parts)


def as_csv(answer: Any) -> str:
    """Write the first table in bare values; UsageError for an answer without one."""
    if not answer.tables:
        raise UsageError(f"this answer, a {answer.view}, has no table; take its JSON")
    return table_csv(answer.tables[0])
