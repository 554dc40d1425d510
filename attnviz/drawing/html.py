"""HTML that needs no script, of results: for browsers without one, and for notebooks.

Of what the terminal says sentences become paragraphs, tables tables, and what is drawn in cells an
SVG, whose colours stand in attributes, for a page's policy lets no other style in. Notebooks show
pictures with words for them, and tables. Everything is escaped.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from attnviz.core.scores import ScoredHeads
from attnviz.drawing.grid import minus
from attnviz.drawing.labels import visible
from attnviz.drawing.terminal import Line, heads_cells
from attnviz.scoring.roles import in_order

_WIDTH = 100  # columns of the console that is imitated
_CELL, _LINE = 7.2, 16  # pixels of a column and of a line
_ROWS = 100  # of a table at most
_DRAWN = re.compile("  |[\u2800-\u28ff]")  # what stands in columns, or is drawn with dots
_WORDS = re.compile(r"\S+(?: \S+)*")
"""A part of a line; more than one space parts columns, which keep their places."""
_HALVES = {"▀": (0, 1), "▄": (1, 0)}  # which half of its cell a sign fills, and which the ground


def still(result: Any, **options: Any) -> str:
    """Show what a terminal shows with these options, where no script runs."""
    console = Console(
        file=io.StringIO(), width=_WIDTH, color_system="truecolor", force_terminal=True,
        legacy_windows=False, emoji=False, markup=False, highlight=False, force_jupyter=False,
    )  # fmt: skip
    return "".join(
        piece for part in result.for_terminal(**options) for piece in _written(console, part)
    )


def paragraphs(*sentences: str) -> str:
    """Sentences, a paragraph each; empty ones are left out."""
    return "".join(
        f"<p>{html.escape(visible(sentence))}</p>\n" for sentence in sentences if sentence.strip()
    )


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; of a long one the first rows, and how many there are."""
    line = "".join
    head = line(f'<th scope="col">{html.escape(title)}</th>' for title in titles)
    listed = [list(row) for row in rows]
    body = line(
        f"<tr>{line(f'<td>{html.escape(minus(cell))}</td>' for cell in row)}</tr>\n"
        for row in listed[:_ROWS]
    )
    note = f"<p>The first {_ROWS} of {len(listed):,} rows.</p>\n" if len(listed) > _ROWS else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{body}</tbody></table>\n{note}"


def _written(console: Console, part: Any) -> Iterator[str]:
    lines: list[Text] = []
    for block in _whole(console, part):
        if isinstance(block, Table):
            yield from _texts(console, lines)
            lines = []
            columns = [[_plain(cell) for cell in column.cells] for column in block.columns]
            titles = (_plain(column.header) for column in block.columns)
            yield table(titles, zip(*columns, strict=True))
        else:
            lines.append(block)
    yield from _texts(console, lines, getattr(part, "style", "") if isinstance(part, Line) else "")


def _whole(console: Console, part: Any) -> Iterator[Table | Text]:
    """Yield the tables and lines that a part is made of."""
    if isinstance(part, Table | Text):
        yield part
    elif isinstance(part, str):
        yield Text(part)
    else:
        for block in part.__rich_console__(console, console.options):
            yield from _whole(console, block)


def _plain(cell: Any) -> str:
    return str(cell.plain if isinstance(cell, Text) else cell).strip()


def _texts(console: Console, lines: list[Text], style: str = "") -> Iterator[str]:
    """Lines as paragraphs, or where cells are coloured as a drawing."""
    segments = [line for text in lines for line in console.render_lines(text, pad=False)]
    coloured = any(s.style and s.style.bgcolor for line in segments for s in line)
    if coloured or any(_DRAWN.search(text.plain.strip()) for text in lines):
        yield _svg(segments)
        return
    for text in lines:
        if text.plain.strip():
            tag = "h2" if style == "bold" else "p"
            yield f"<{tag}>{html.escape(minus(text.plain.strip()))}</{tag}>\n"


def _svg(lines: list[list[Segment]]) -> str:
    """Coloured cells and the letters on them."""
    shapes: list[str] = []
    width = 0.0
    for n, line in enumerate(lines):
        x, y = 0.0, n * _LINE
        for segment in line:
            size = segment.cell_length * _CELL
            shapes += _cells(segment.text, segment.style or Style(), x, y, size)
            x += size
        width = max(width, x)
    height = len(lines) * _LINE
    words = html.escape(" ".join("".join(s.text for s in line).strip() for line in lines).strip())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height}" role="img" '
        f'viewBox="0 0 {width:g} {height}" font-family="monospace" font-size="12" '
        f'aria-label="{words}">{"".join(shapes)}</svg>\n'
    )


def _cells(text: str, style: Style, x: float, y: float, size: float) -> Iterator[str]:
    fore, ground = _hex(style, "color"), _hex(style, "bgcolor")
    if style.reverse:
        fore, ground = ground, fore
    half = _HALVES.get(text[:1]) if len(set(text)) == 1 else None
    if half is not None:
        for color, offset in zip((fore, ground), half, strict=True):
            if color:
                yield _rect(x, y + offset * _LINE / 2, size, _LINE / 2, color)
        return
    if ground:
        yield _rect(x, y, size, _LINE, ground)
    for words in _WORDS.finditer(text):
        fill = f' fill="{fore}"' if fore else ' fill="currentColor"'
        start, length = x + words.start() * _CELL, len(words[0]) * _CELL
        bold = ' font-weight="700"' if style.bold else ""
        yield (
            f'<text x="{start:g}" y="{y + 12:g}" textLength="{length:g}"'
            f"{fill}{bold}>{html.escape(minus(words[0]))}</text>"
        )


def _rect(x: float, y: float, width: float, height: float, color: str) -> str:
    return f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="{color}"/>'


def _hex(style: Style, name: str) -> str:
    color = getattr(style, name)
    return "" if color is None or color.is_default else str(color.get_truecolor().hex)


_RIGHT = ("score", "chance", "lift", "rows")  # columns of numbers


def picture(png: bytes, alt: str) -> str:
    """Return a picture that is part of the page, no wider than it, with words in its place."""
    data = base64.b64encode(png).decode("ascii")
    words = html.escape(alt, quote=True)
    return (
        f'<img alt="{words}" src="data:image/png;base64,{data}" style="max-width:100%;height:auto">'
    )


def facts(rows: Mapping[str, str]) -> str:
    """Names and values, a line each."""
    lines = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in rows.items()
    )
    return f"<table>{lines}</table>"


def heads(report: ScoredHeads, png: bytes) -> str:
    """Return the grid, and the evidence of every head that has a role."""
    titles, rows = heads_cells(report)
    return f"{picture(png, described(report))}{_evidence(titles, rows)}"


def described(report: ScoredHeads) -> str:
    """Return what the grid shows, in words: how many heads have which role, and which they are."""
    named = [(scores.roles[0].name, report.layout.name(scores.head))
             for scores in report.heads if scores.roles]  # fmt: skip
    counts = Counter(role for role, _ in named)
    parts = [
        f"{role} {', '.join(name for of, name in named if of == role)}" for role in in_order(counts)
    ]
    silent = len(report.heads) - len(named)
    if silent:
        parts.append(f"no role: {silent}")
    return f"Roles of the {len(report.heads)} heads of {report.source.model}: {'; '.join(parts)}"


def _evidence(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under their titles; it scrolls sideways where it is wider than the page, never down."""
    if not rows:
        return "<p>no head shows a role on this input</p>"
    sides = ["right" if title in _RIGHT else "left" for title in titles]
    styles = [f' style="text-align:{side};padding:2px 8px;white-space:nowrap"' for side in sides]
    line = "".join
    top = line(f"<th{s}>{html.escape(t)}</th>" for t, s in zip(titles, styles, strict=True))
    body = line(
        "<tr>"
        + line(f"<td{s}>{html.escape(cell)}</td>" for cell, s in zip(row, styles, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div style="overflow-x:auto;overflow-y:hidden"><table><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
