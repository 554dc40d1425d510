"""What every head writes, as one offline page: a word of each, and all words of a chosen one.

The page holds its style, its script and its data; a content security policy lets nothing else in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnviz.drawing.labels import visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors
from attnviz.features.lens import words
from attnviz.features.lens.result import HeadWrites, Lens, TokenEffect
from attnviz.features.lens.tables import rows
from attnviz.web.page import html_page, parts, safe_json


def heads_page(found: Lens) -> bytes:
    """The whole page, as UTF-8.

    Args:
        found: with heads.
    """
    listed = rows(found)
    data = {
        "title": words.title(found),
        "chance": words.chance(found),
        "several": found.rows > 1,
        "rows": _lines(found),
        "heads": [_head(found, one) for one in found.heads],
        "table": [
            [*listed[0]],
            *(["" if v is None else str(v) for v in row.values()] for row in listed),
        ],
        "palette": anchors(DEFAULT_PALETTE),
        "closing": words.closing(found),
    }
    template, style, script = parts(__package__, "main")
    return html_page(
        template,
        command="lens",
        title=words.title(found),
        style=style,
        script=script,
        data=safe_json(data),
    )


def _lines(found: Lens) -> list[str]:
    """Layers with their kind, where there are several."""
    return list(dict.fromkeys(_layer(found, one) for one in found.heads))


def _layer(found: Lens, one: HeadWrites) -> str:
    return found.layout.name(one.head).rpartition(".")[0]


def _head(found: Lens, one: HeadWrites) -> dict[str, Any]:
    return {
        "name": found.layout.name(one.head),
        "layer": _layer(found, one),
        "norm": float(f"{one.norm:.6g}"),
        "raises": _effects(one.raises),
        "lowers": _effects(one.lowers),
        "recurring": [[visible(word.token), word.rows] for word in one.recurring],
        "inText": None if one.in_text is None else words.share(one.in_text),
    }


def _effects(effects: Sequence[TokenEffect]) -> list[list[Any]]:
    return [[visible(word.token), float(f"{word.value:.6g}")] for word in effects]
