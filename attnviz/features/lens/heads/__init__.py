"""What every head writes, as one offline page: a word of each, and all words of a chosen one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attnviz.drawing.grid import minus
from attnviz.drawing.html import still
from attnviz.drawing.labels import closing, rounded, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors
from attnviz.drawing.tables import lines
from attnviz.features.lens import description
from attnviz.features.lens.result import HeadWrites, Lens, TokenEffect
from attnviz.web.page import result_page


def heads_page(result: Lens) -> bytes:
    """Return the whole page, as UTF-8."""
    data = {
        "title": description.title(result),
        "chance": description.chance(result),
        "first": result.heads.index(description.clearest(result)),
        "several": result.rows > 1,
        "rows": list(dict.fromkeys(_layer(result, writes) for writes in result.heads)),
        "heads": [_head(result, writes) for writes in result.heads],
        "table": lines(description.listing(result).rows()),
        "palette": anchors(DEFAULT_PALETTE),
        "closing": closing(result.source),
    }
    return result_page(
        __package__,
        result,
        title=description.title(result),
        headline=minus(description.headline(result)),
        still=still(result),
        data=data,
    )


def _layer(result: Lens, writes: HeadWrites) -> str:
    """Name a head's layer, with its kind where there are several."""
    return result.layout.name(writes.head).rpartition(".")[0]


def _head(result: Lens, writes: HeadWrites) -> dict[str, Any]:
    return {
        "name": result.layout.name(writes.head),
        "layer": _layer(result, writes),
        "norm": rounded(writes.norm),
        "raises": _effects(writes.raises),
        "lowers": _effects(writes.lowers),
        "recurring": [[visible(word.token), word.rows] for word in writes.recurring],
        "inText": None if writes.in_text is None else description.share(writes.in_text),
    }


def _effects(effects: Sequence[TokenEffect]) -> list[list[Any]]:
    return [[visible(word.token), rounded(word.value)] for word in effects]
