"""What a page carries besides its figures: what made it, on one line, and the result that it shows.

Both stand in the page once, packed, so that :func:`attnviz.read` gives the result back.
"""

from __future__ import annotations

import base64
import binascii
import html
import json
import re
import zlib
from typing import Any

from attnviz.core.made import Made
from attnviz.core.record import Record
from attnviz.core.result import Result

PAGE = "attnviz.page/1"
"""The schema of a page that shows no single result."""

_LINE = (
    '<p id="made" class="small"><span id="made-line">{}</span> '
    '<button type="button" id="copy-made" hidden>copy</button></p>\n'
)
_RESULT = '<script type="application/octet-stream" id="result">{}</script>\n'
_FOUND = re.compile(rb'<script type="application/octet-stream" id="result">([\w+/=]*)</script>')


def with_made(template: str, of: Record | Made) -> str:
    """A template with what made its page in its footer, and the result before its end.

    Args:
        template: of a page; where it has no footer, one stands behind its ``main``.
        of: the result, or what made the page where it shows none.
    """
    made = of if isinstance(of, Made) else of.made
    line = _LINE.format(_escaped(made.line()))
    if isinstance(of, Result) and (origin := of.origin()):
        line += f'<p class="small">{_escaped(origin)}</p>\n'
    if "</footer>" in template:
        template = _before(template, "</footer>", line)
    else:
        main, end, rest = template.rpartition("</main>\n")
        template = f"{main}{end}<footer>{line}</footer>\n{rest}"
    return _before(template, "</body>", _RESULT.format(_packed(of)))


def read_page(page: bytes) -> Any:
    """The JSON document that a page holds; None where it holds none, or a damaged one."""
    held = _FOUND.search(page)
    if held is None:
        return None
    try:
        return json.loads(zlib.decompress(base64.b64decode(held[1])))
    except (ValueError, binascii.Error, zlib.error):
        return None


def _packed(of: Record | Made) -> str:
    if isinstance(of, Made):
        text = json.dumps({"schema": PAGE, "made": of.to_dict()}, ensure_ascii=False)
    else:
        text = of.to_json(of.made)
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode("ascii")


def _escaped(text: str) -> str:
    """A text in a template, whose parts have names in braces."""
    return html.escape(text).replace("{", "&#123;")


def _before(template: str, end: str, part: str) -> str:
    """A template with a part before the last of what ends something."""
    first, _, rest = template.rpartition(end)
    return f"{first}{part}{end}{rest}"
