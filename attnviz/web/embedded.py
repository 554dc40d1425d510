"""What a page carries besides its figures: what made it, on one line, and the result that it shows.

Both stand in the page once, packed, so that :func:`attnviz.read` gives the result back.
"""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from attnviz.core.provenance import Made
from attnviz.core.record import Record, parsed
from attnviz.core.result import Result
from attnviz.errors import InputError
from attnviz.files import inflated

_TITLE = re.compile(rb"<title>(.*?)</title>", re.DOTALL)
PAGE = "attnviz.page/1"
"""The schema of a page that shows no single result."""

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
    """A template with what made its page in its footer, and the result before its end."""
    made = of if isinstance(of, Made) else of.made
    line = _LINE.format(_escaped(made.line()))
    if isinstance(of, Result) and (origin := of.origin()):
        line += f'<p class="small">{_escaped(origin)}</p>\n'
    if "</footer>" in template:
        template = _before(template, "</footer>", line)
    else:
        main, end, rest = template.rpartition("</main>\n")
        template = f"{main}{end}<footer>{line}</footer>\n{rest}"
    return _before(template, "</body>", _RESULT.format(*_packed(of)))


def read_page(page: bytes) -> dict[str, Any] | None:
    """The JSON object that a page holds; None where it holds none, or a damaged one."""
    held = _FOUND.search(page)
    if held is None:
        return None
    try:
        document = parsed(inflated(base64.b64decode(held[2]), int(held[1])), "the page")
    except (ValueError, InputError):
        return None
    return document if isinstance(document, dict) else None


def read_made(document: Mapping[str, Any]) -> Made | None:
    """What a page's object says made it; None where it does not say."""
    try:
        return msgspec.convert(document["made"], Made)
    except (KeyError, msgspec.ValidationError):
        return None


def page_title(page: bytes) -> str | None:
    """The title of a page; None where it has none."""
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
    """A text in a template, whose parts have names in braces."""
    return html.escape(text).replace("{", "&#123;")


def _before(template: str, end: str, part: str) -> str:
    """A template with a part before the last of what ends something."""
    first, _, rest = template.rpartition(end)
    return f"{first}{part}{end}{rest}"
