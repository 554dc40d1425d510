"""The page of a long text: tiles of every head, and the largest weights of each row.

A weight w of a head whose largest is m becomes the whole number round(255 sqrt(w / m)), as colours
have 256 steps by the square root as well: what is drawn is exact to the step of a colour.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.capture import Tiled, TiledMap
from attnviz.core.heads import Layout
from attnviz.core.provenance import Made
from attnviz.drawing.html import paragraphs, table
from attnviz.drawing.labels import counted, head_phrase, head_title, model_name, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors
from attnviz.features.view.encoding import deflated
from attnviz.features.view.page import by_layer, maps_svg
from attnviz.web.page import result_page

_STEPS = 255
LARGEST_TEXT = 1 << 16
"""Tokens of a page; keys are stored in 16 bits."""


def page(tiles: Tiled, layout: Layout, *, title: str, made: Made) -> bytes:
    """Return the whole page, as UTF-8."""
    sides = tiles.inputs.sides[next(iter(tiles.maps)).site.kind]
    roles = {scores.head: scores.roles for scores in tiles.scores}
    masks: dict[bytes, int] = {}
    heads = []
    for head, head_tiles in tiles.maps.items():
        codes = tiles.allowed[head.site].astype(np.uint8)
        if head.site in tiles.unselected:
            codes[tiles.unselected[head.site]] = _UNSELECTED
        mask = masks.setdefault(codes.tobytes(), len(masks))
        name = layout.name(head)
        heads.append(
            {
                "name": name,
                "said": head_title(name, roles.get(head, ())),
                "layer": head.site.layer,
                "mask": mask,
                **_packed(head_tiles, tiles.rows.start),
            }
        )
    typed, read = (
        [visible(text) for text in tokens.texts] for tokens in (sides.queries, sides.keys)
    )
    shape = next(iter(tiles.allowed.values())).shape
    keys_kept = next(iter(tiles.maps.values())).keys.shape[1]
    data: dict[str, Any] = {
        "title": title,
        "said": f"{_part(tiles, len(typed), len(read))}{counted(len(heads), 'head')} of "
        f"{model_name(tiles.source)}",
        "part": [tiles.rows.start, tiles.rows.stop, tiles.keys.start, tiles.keys.stop],
        "size": tiles.size,
        "tiles": list(shape),
        "kept": keys_kept,
        "queries": typed,
        "keys": None if sides.keys == sides.queries else read,
        "causal": all(_causal(tiles, allowed) for allowed in tiles.allowed.values()),
        "masks": list(map(deflated, masks)),
        "heads": heads,
        "palette": anchors(DEFAULT_PALETTE),
        "closing": f"{model_name(tiles.source)} · {tiles.source.backend} backend · "
        f"{tiles.source.exactness} · {tiles.source.device} {tiles.source.dtype}",
        "notes": list(tiles.inputs.notes),
    }
    roles_said = ((layout.name(head), head_phrase(roles.get(head, ()))) for head in tiles.maps)
    maps = [
        [(layout.name(head), tiles.maps[head].largest) for head in line]
        for line in by_layer(list(tiles.maps))
    ]
    still = paragraphs(data["said"]) + maps_svg(maps) + table(("head", "what it does"), roles_said)
    return result_page(__package__, made, title=title, still=still, data=data)


def kept_weights(heads: int, rows: int, budget: float) -> int:
    """How many weights of a row a page keeps.

    ``budget``: bytes of the page for them.
    """
    return int(min(32, max(1, budget / (heads * rows * _ENTRY))))


_UNSELECTED = 2
"""What a tile's mask is where an indexer left its keys out; 1 where some are allowed, else 0."""
_ENTRY = 3.6  # bytes of a weight in a page: three, which deflate little, in base64


def _packed(tiles: TiledMap, start: int) -> dict[str, Any]:
    """Return a head's tiles and weights; the first row is of the query at ``start``."""
    top, largest_sum = float(tiles.largest.max()), float(tiles.sums.max())
    codes = np.concatenate([_codes(tiles.largest, top), _codes(tiles.sums, largest_sum)], axis=None)
    rows = start + np.arange(len(tiles.keys), dtype=np.int64)[:, None]
    gaps = ((rows - tiles.keys) & 0xFFFF).astype(np.uint16)  # a weight of 0 says that there is none
    gaps[tiles.keys < 0] = 0
    raw = b"".join(
        part.tobytes()
        for part in (
            (gaps >> 8).astype(np.uint8),
            (gaps & 255).astype(np.uint8),
            _codes(tiles.weights, top),
        )
    )
    return {
        "top": round(top, 6),
        "most": round(largest_sum, 6),
        "tiles": deflated(codes.tobytes()),
        "rows": deflated(raw),
    }


def _codes(values: NDArray[np.float32], top: float) -> NDArray[np.uint8]:
    shares = np.sqrt(values.astype(np.float64) / top) if top > 0 else np.zeros(values.shape)
    return np.rint(shares.clip(0, 1) * _STEPS).astype(np.uint8)


def _part(tiles: Tiled, queries: int, keys: int) -> str:
    """How much of a text of so many queries and keys there is."""
    if (len(tiles.rows), len(tiles.keys)) == (queries, keys):
        return f"{counted(queries, 'token')}, "
    rows, across = (f"{span.start:,}–{span.stop - 1:,}" for span in (tiles.rows, tiles.keys))
    return f"queries {rows} × keys {across} of {counted(keys, 'token')}, "


def _causal(tiles: Tiled, allowed: NDArray[np.bool_]) -> bool:
    """Whether no tile is allowed all of whose keys come after its queries, and there are some."""
    rows, columns = allowed.shape
    lasts = np.minimum(
        tiles.rows.start + tiles.size * np.arange(1, rows + 1) - 1, tiles.rows.stop - 1
    )
    firsts = tiles.keys.start + tiles.size * np.arange(columns)
    later = firsts[None] > lasts[:, None]
    return bool(later.any()) and not (later & allowed).any()
