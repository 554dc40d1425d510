"""The viewer: captures in, one HTML file out that needs nothing but a browser.

The page holds its style, its script and its data; a content security policy lets nothing else in
and nothing out. It is put together here from ``page.html``, ``style.css`` and the modules in
``js/``, without a bundler (:mod:`attnviz.web.page`).

What the page shows where no script runs: the overview, and what each head does.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import Made
from attnviz.core.scores import HeadScores
from attnviz.drawing.html import paragraphs, table
from attnviz.drawing.labels import counted, head_phrase, model_name, visible
from attnviz.drawing.palette import DEFAULT_PALETTE, ramp
from attnviz.drawing.shades import binned
from attnviz.features.view.encoding import is_causal, map_bytes, most_bytes, terms_bytes
from attnviz.web.page import parts, result_page

_MOST = 144  # heads that are drawn
_CELLS, _FEWEST, _ALL = 24, 8, 9_000
"""Along a side of a map at most and at least, and of all maps together, about; where a map has
more, each shows the largest weight of a block."""
_SIDE, _GAP, _NAME = 64, 10, 14
"""Pixels of a map, between maps, and of the line with its name."""
_LEVELS = 12  # colours; the page itself has as many as its palette
_TEXT = 300
_HEAD_BYTES, _CELL_BYTES = 150, 11


def still_overview(
    capture: Capture,
    scores: Sequence[HeadScores],
    heads: Collection[Head],
    notes: Sequence[str] = (),
) -> str:
    """Return the overview as HTML that needs no script."""
    items = [scored for scored in scores if scored.head in heads and capture.holds(scored.head)]
    text = " ".join(capture.inputs.texts)
    read = f" on “{visible(text[:_TEXT])}{'…' * (len(text) > _TEXT)}”" if text else ""
    hidden = len(items) - _MOST
    roles = (
        (capture.layout.name(scored.head), head_phrase(scored.roles))
        for scored in items
        if scored.roles
    )
    return (
        paragraphs(
            f"{counted(len(items), 'head')} of {model_name(capture.source)}{read}. Queries go "
            "down, keys across; brighter is more attention, by the square root."
        )
        + maps_svg(
            [
                [(capture.layout.name(head), capture[head]) for head in line]
                for line in by_layer([scored.head for scored in items])
            ]
        )
        + (paragraphs(f"{hidden:,} more heads are not drawn here.") if hidden > 0 else "")
        + table(("head", "what it does here"), roles)
        + paragraphs(*notes)
    )


def still_bytes(capture: Capture, heads: Collection[Head]) -> int:
    """About how much the overview takes at most."""
    count = min(sum(map(capture.holds, heads)), _MOST)
    return count * (_HEAD_BYTES + _CELL_BYTES * _side(count) ** 2)


def _side(count: int) -> int:
    """Cells along a side of so many maps."""
    return min(max(math.isqrt(_ALL // max(count, 1)), _FEWEST), _CELLS)


def by_layer(heads: Sequence[Head]) -> list[list[Head]]:
    """Heads that are drawn, a line a layer."""
    lines: dict[Site, list[Head]] = {}
    for head in heads[:_MOST]:
        lines.setdefault(head.site, []).append(head)
    return list(lines.values())


def maps_svg(lines: Sequence[Sequence[tuple[str, NDArray[np.floating[Any]]]]]) -> str:
    """Small maps on one scale.

    ``lines``: of maps, each a name and its weights [T, S].
    """
    across, down = _SIDE + _GAP, _SIDE + _NAME + _GAP
    width, height = across * max(map(len, lines), default=1), down * len(lines)
    sizes = (float(np.abs(weights).max(initial=0.0)) for line in lines for _, weights in line)
    top, parts = max(sizes, default=0.0), list[str]()
    side = _side(sum(map(len, lines)))
    for n, line in enumerate(lines):
        for m, (name, weights) in enumerate(line):
            x, y = m * across, n * down
            parts.append(f'<text x="{x}" y="{y + 11}" fill="currentColor">{escape(name)}</text>')
            parts += _map(np.abs(weights).astype(float), top, side, x, y + _NAME)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" role="img" aria-label="a small map of each head" '
        f'font-family="sans-serif" font-size="11">{"".join(parts)}</svg>\n'
    )


def _map(weights: NDArray[np.float64], top: float, side: int, x: float, y: float) -> Iterator[str]:
    """One map: a path for each colour, over the colour of no weight."""
    rows, columns = (-(-size // side) for size in weights.shape)
    cells = np.sqrt(binned(weights, rows, columns) / (top or 1.0))
    levels = np.rint(cells * (_LEVELS - 1)).astype(int)
    colors = ramp(DEFAULT_PALETTE, _LEVELS)
    height, width = levels.shape
    scale = f"{_SIDE / width:.4g} {_SIDE / height:.4g}"
    yield f'<g transform="translate({x} {y}) scale({scale})" shape-rendering="crispEdges">'
    yield f'<path fill="{colors[0]}" d="M0 0h{width}v{height}h-{width}z"/>'
    for level in np.unique(levels[levels > 0]):
        runs = "".join(
            f"M{start} {row}h{stop - start}v1h-{stop - start}z"
            for row, line in enumerate(levels == level)
            for start, stop in _runs(line)
        )
        yield f'<path fill="{colors[level]}" d="{runs}"/>'
    yield "</g>"


def _runs(line: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Where a line is true, from and up to."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], line.astype(np.int8), [0]])))
    return [(int(start), int(stop)) for start, stop in edges.reshape(-1, 2)]


_SCORES_BYTES = 900  # about what the scores of one head take


def page(
    data: Mapping[str, Any], chunks: Sequence[str], still: str, *, title: str, made: Made
) -> bytes:
    """Return the whole page, as UTF-8, of what :func:`.document.document` gives."""
    pictures = any((item["scene"] or {}).get("kind") == "picture" for item in data["items"])
    maps = "\n".join(
        f'<script type="application/octet-stream" id="maps-{number}">{text}</script>'
        for number, text in enumerate(chunks)
    )
    rules = ["img-src data:"] * pictures
    return result_page(
        __package__, made, *rules, title=visible(title), still=still, data=data, maps=maps
    )


def estimate(captures: Sequence[Capture], heads: Sequence[Collection[Head]], bits: int = 8) -> int:
    """About how many bytes the page will have, at most, before any of the work is done."""
    total = sum(len(part.encode()) for part in parts(__package__, "main"))
    if captures:
        total += still_bytes(captures[0], heads[0])
    for capture, chosen in zip(captures, heads, strict=True):
        total += most_bytes(capture.inputs)
        for site, maps in capture.maps.items():
            count = sum(head.site == site for head in chosen)
            _, rows, columns = maps.shape
            size = map_bytes(rows, columns, bits, causal=is_causal(maps))
            total += count * (size + _SCORES_BYTES)
        total += sum(terms_bytes(terms) for head, terms in capture.terms.items() if head in chosen)
    return total


def least(inputs: Inputs, heads: Collection[Head], bits: int = 8) -> int:
    """Return what one text adds to :func:`estimate` at least, known before the model runs."""
    total = 0
    for head in heads:
        sides = inputs.sides[head.site.kind]
        rows, columns = len(sides.queries), len(sides.keys)
        total += map_bytes(rows, columns, bits, causal=rows == columns) + _SCORES_BYTES
    return total
