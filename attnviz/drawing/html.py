"""Pieces of HTML for notebooks: pictures with words for them, tables. Everything is escaped."""

from __future__ import annotations

import base64
import html
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from attnviz.core.scores import ScoredHeads
from attnviz.drawing.labels import visible
from attnviz.drawing.terminal import heads_cells
from attnviz.scoring.roles import in_order

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
    return f"{picture(png, described(report))}{_table(titles, rows)}"


def described(report: ScoredHeads) -> str:
    """Return what the grid shows, in words: how many heads have which role, and which they are."""
    named = [(scores.roles[0].name, report.layout.name(scores.head))
             for scores in report.heads if scores.roles]  # fmt: skip
    counts = Counter(role for role, _ in named)
    parts = [
        f"{role} {', '.join(name for other, name in named if other == role)}"
        for role in in_order(counts)
    ]
    silent = len(report.heads) - len(named)
    if silent:
        parts.append(f"no role: {silent}")
    return f"Roles of the {len(report.heads)} heads of {report.source.model}: {'; '.join(parts)}"


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Rows under their titles; it scrolls sideways where it is wider than the page, never down."""
    if not rows:
        return "<p>no head shows a role on this input</p>"
    sides = ["right" if title in _RIGHT else "left" for title in titles]
    line = "".join
    top = line(f"<th{_to(s)}>{html.escape(t)}</th>" for t, s in zip(titles, sides, strict=True))
    body = line(
        "<tr>"
        + line(f"<td{_to(s)}>{html.escape(cell)}</td>" for cell, s in zip(row, sides, strict=True))
        + "</tr>"
        for row in rows
    )
    return (
        f'<div style="overflow-x:auto;overflow-y:hidden"><table><thead><tr>{top}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _to(side: str) -> str:
    return f' style="text-align:{side};padding:2px 8px;white-space:nowrap"'


_ACTIVE = re.compile(r"[\\`*\[\]<>#|~@&]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def plain(text: str) -> str:
    """Get a text of others, such as a token or a name, in which nothing is a link, a tag or a name.

    Characters that Markdown or HTML would read are written as HTML entities, which both show as
    themselves; ``@`` among them, so that nobody is notified.
    """
    return _ACTIVE.sub(lambda match: f"&#{ord(match.group())};", visible(text))


def code(text: str) -> str:
    """Return a text as code, on one line, whatever quotes it has."""
    text = " ".join(text.split())
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence, space = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{space}{text}{space}{fence}"


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; cells are Markdown already."""
    lines = [
        [title.removeprefix(">") for title in titles],
        ["--:" if title.startswith(">") else "---" for title in titles],
        *rows,
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
