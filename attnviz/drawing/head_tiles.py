"""Heads on a terminal, a line of tiles a layer: in bands that fit, folded where there are many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from rich.console import ConsoleOptions
from rich.text import Text

from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.drawing.folded import Strong, folded, is_long
from attnviz.drawing.labels import signs

TILE = 6
"""Columns of the console that a head has."""


def head_tiles(
    options: ConsoleOptions,
    layout: Layout,
    kind: SiteKind,
    tile: Callable[[Head], Text],
    strengths: Mapping[Head, float],
    what: str,
) -> Iterator[Text]:
    """Layers downwards, heads across.

    Args:
        options: of the console.
        layout: which heads there are.
        kind: of the layers that are drawn.
        tile: draws a head, :data:`TILE` columns wide.
        strengths: of the heads that have something to show; the strongest stay in a folded grid.
        what: such heads have, such as ``a value``.
    """
    counts = layout.heads[kind]
    fitting = max((options.max_width - 3) // (TILE + 1), 1)
    if is_long(len(counts), max(counts), fitting):
        rows: dict[int, dict[int, Strong]] = {layer: {} for layer in range(len(counts))}
        for head, strength in strengths.items():
            rows[head.layer][head.index] = Strong(strength, tile(head))
        yield from folded(rows, options, what)
        return
    yield Text(signs("layer ↓  head →", options.ascii_only), "dim")
    for first in range(0, max(counts), fitting):
        columns = range(first, min(first + fitting, max(counts)))
        yield Text("   " + " ".join(f"{n:^{TILE}}" for n in columns).rstrip(), "dim")
        for layer, count in enumerate(counts):
            line = Text(f"{layer:>2} ", "dim", no_wrap=True)
            for index in (n for n in columns if n < count):
                line.append_text(tile(Head(Site(kind, layer), index)))
                line.append(" ")
            line.rstrip()
            yield line
