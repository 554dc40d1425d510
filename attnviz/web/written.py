"""Pages that are made: one self-contained file, saved or shown in a notebook."""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from attnviz import files
from attnviz.core.provenance import Made
from attnviz.core.record import Record, parsed
from attnviz.core.result import Result
from attnviz.errors import InputError
from attnviz.files import inflated

_TITLE = re.compile(rb"<title>(.*?)</title>", re.DOTALL)
PAGE = "attnviz.page/1"  # the schema of a page that shows no single result

_LINE = (
    '<p id="made" class="small"><span id="made-line">{}</span> '
    '<button type="button" id="copy-made" hidden>copy</button></p>\n'
)
_RESULT = '<script type="application/octet-stream" data-bytes="{}" id="result">{}</script>\n'
_FOUND = re.compile(
    rb'<script type="application/octet-stream" data-bytes="(\d{1,12})" id="result">'
    rb"([\w+/=]*)</script>"
)


def with_made(template: str, of: Record | Made) -> str:
    """Return a template with what made its page in its footer, and the result before its end."""
    made = of if isinstance(of, Made) else of.made
    line = _LINE.format(_escaped(made.line()))
    if isinstance(of, Result) and (origin := of.origin()):
        line += f'<p class="small">{_escaped(origin)}</p>\n'
    if "</footer>" in template:
        template = _before(template, "</footer>", line)
    else:
        main, end, tail = template.rpartition("</main>\n")
        template = f"{main}{end}<footer>{line}</footer>\n{tail}"
    return _before(template, "</body>", _RESULT.format(*_packed(of)))


def read_page(page: bytes) -> dict[str, Any] | None:
    """Return the JSON object that a page holds; None where it holds none, or a damaged one."""
    held = _FOUND.search(page)
    if held is None:
        return None
    try:
        document = parsed(inflated(base64.b64decode(held[2]), int(held[1])), "the page")
    except (ValueError, InputError):
        return None
    return document if isinstance(document, dict) else None


def read_made(document: Mapping[str, Any]) -> Made | None:
    """Return what a page's object says made it; None where it does not say."""
    try:
        return msgspec.convert(document["made"], Made)
    except (KeyError, msgspec.ValidationError):
        return None


def page_title(page: bytes) -> str | None:
    """Return the title of a page; None where it has none."""
    title = _TITLE.search(page)
    return None if title is None else html.unescape(title[1].decode("utf-8", "replace"))


def _packed(of: Record | Made) -> tuple[int, str]:
    """Return how many bytes the result has as JSON, and these packed."""
    if isinstance(of, Made):
        text = json.dumps({"schema": PAGE, "made": of.to_dict()}, ensure_ascii=False)
    else:
        text = of.to_json(of.made)
    data = text.encode()
    return len(data), base64.b64encode(zlib.compress(data, 9)).decode("ascii")


def _escaped(text: str) -> str:
    """Return a text in a template, whose parts have names in braces."""
    return html.escape(text).replace("{", "&#123;")


def _before(template: str, end: str, part: str) -> str:
    """Return a template with a part before the last of what ends something."""
    first, _, tail = template.rpartition(end)
    return f"{first}{part}{end}{tail}"


@dataclass(frozen=True, eq=False)
class Page:
    """One self-contained HTML file; it asks for nothing: no server, no network.

    ``page`` is the whole file, ``made`` what made one that was read, ``command`` what makes such
    pages.
    """

    command: ClassVar[str] = "page"

    page: bytes = field(compare=False)
    title: str
    made: Made | None = field(default=None, kw_only=True)

    def to_json(self) -> str:
        """Return what the page says of itself: its title, and what made it."""
        made = {} if self.made is None else self.made.to_dict()
        return json.dumps({"schema": PAGE, "title": self.title, "made": made}, ensure_ascii=False)

    def save(self, path: str | Path) -> Path:
        """Write the page; its name must end in .html or .htm."""
        path = Path(path)
        page_path(path)
        files.write(path, self.page)
        return path

    @property
    def size(self) -> str:
        """Of the page, for people: ``2.1 MB``."""
        return files.human_bytes(len(self.page))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.title!r}, {self.size}>"

    def _repr_html_(self) -> str:
        return framed(self.page, self.title)


def page_path(path: Path) -> None:
    """UsageError for a file that a browser would not open as a page."""
    files.check_suffix(path, (".html", ".htm"))


def framed(page: bytes, title: str) -> str:
    """Return a page as a part of another, as notebooks show it."""
    inside = escape(page.decode("utf-8"), quote=True)
    return (
        f'<iframe data-attnviz="1" title="{escape(title)}" srcdoc="{inside}" '
        'style="width:100%;height:760px;border:1px solid #ccc;border-radius:6px"></iframe>'
    )
