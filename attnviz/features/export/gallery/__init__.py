"""``index.html``: a gallery of an export's pictures that works offline, from the file system.

One file: the page, its style and script, and a line of data for every picture. Everything that
came from outside is data in a JSON block and reaches the page as text only; a content security
policy lets nothing run but the script it was written with, and nothing load but pictures beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from attnviz.core.heads import SITE_KINDS
from attnviz.core.provenance import Made
from attnviz.drawing.palette import dark
from attnviz.features.export.paths import LAYOUTS
from attnviz.scoring.roles import SHOWN
from attnviz.web.page import html_page, parts, safe_json

INDEX = "index.html"
_TITLE = "attention maps"
_LONGEST_TEXT = 300
_HERE = "{{data}}"
_STILL = "<p>This page needs JavaScript. The pictures are in the folders beside it.</p>"


def page(lines: Iterable[bytes], made: Made, palette: str) -> Iterator[bytes]:
    """Yield the page, piece by piece; the palette is that of all pictures."""
    template, style, script = parts(__package__, "main")
    html = html_page(
        template,
        "img-src 'self' file:",
        title=_TITLE,
        style=style,
        script=script,
        of=made,
        still=_STILL,
        data=_HERE,
    )
    start, end = html.split(_HERE.encode())
    yield start
    yield from _data(lines, palette)
    yield end


def _data(lines: Iterable[bytes], palette: str) -> Iterator[bytes]:
    """Yield the JSON: inputs, each with its pictures as short lists of numbers."""
    roles = list(SHOWN)
    head = {"layouts": LAYOUTS, "sites": SITE_KINDS, "roles": roles}
    models: dict[str, None] = {}
    yield _json(head)[:-1] + b',"items":['
    pictures = (line for line in map(json.loads, lines) if line["layout"] in LAYOUTS)
    comma = b""
    for number, group in groupby(pictures, key=lambda line: line["number"]):
        mine = list(group)
        models[mine[0]["model"]] = None
        text = str(mine[0]["text"])[:_LONGEST_TEXT]
        name = mine[0]["id"] or ""
        yield comma + _json([number, name, text, [_picture(line, roles) for line in mine]])
        comma = b","
    yield b'],"title":' + _json(", ".join(models)[:_LONGEST_TEXT])
    yield b',"dark":' + _json(dark(palette)) + b"}"


def _picture(line: dict[str, Any], roles: list[str]) -> list[Any]:
    titles = line.get("roles") or [r for names in line.get("heads", {}).values() for r in names]
    names = dict.fromkeys(role.partition(":")[0] for role in titles)
    played = [roles.index(name) for name in names if name in roles]
    kind, site = LAYOUTS.index(line["layout"]), SITE_KINDS.index(line["site"])
    box = line.get("map")
    sizes = isinstance(box, list) and len(box) == 4 and all(type(n) is int and n >= 0 for n in box)
    return [line["file"], kind, site, line["layer"], line["index"], played, box if sizes else None]


def _json(value: Any) -> bytes:
    return safe_json(value).encode("ascii")
