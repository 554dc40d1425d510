"""Pieces of Markdown: texts of others in which nothing is active, code, tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from attnviz.drawing.labels import visible

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
