"""How much alike the heads of captures are: likeness from maps that are there already."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from attnviz.core import arrays
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout, SiteKind
from attnviz.core.source import Rows
from attnviz.features.profile import likeness
from attnviz.features.profile.result import Alike

LEAST = 3  # heads of a kind: fewer have no map to speak of
NEAREST = 3
ROWS = 32  # rows of a text, at most
_PAIR_WORK = 1 << 28
"""Logarithms of all texts together, about: a second for 1,024 heads, a sixth of one for 144."""


def alike(
    captures: Sequence[Capture], heads: Sequence[Collection[Head]]
) -> list[Mapping[SiteKind, Alike]]:
    """Give how alike the heads of every capture are; of one model's, over its texts together."""
    groups: dict[tuple[str, str, frozenset[Head]], list[int]] = {}
    for number, (capture, some) in enumerate(zip(captures, heads, strict=True)):
        whole = capture.layout.whole or bool(capture.layout.mean)
        key = (capture.source.model, capture.quantity, frozenset(() if whole else some))
        groups.setdefault(key, []).append(number)
    out: list[Mapping[SiteKind, Alike]] = [{} for _ in captures]
    for (_, _, some), numbers in groups.items():
        together = _together([captures[number] for number in numbers], some)
        for number in numbers:
            out[number] = together
    return out


def _together(captures: Sequence[Capture], heads: Collection[Head]) -> Mapping[SiteKind, Alike]:
    """Return the same heads over several texts."""
    chosen: dict[SiteKind, list[Head]] = {}
    for head in captures[0].layout:
        if head in heads:
            chosen.setdefault(head.site.kind, []).append(head)
    chosen = {kind: some for kind, some in chosen.items() if LEAST <= len(some) <= likeness.MOST}
    counts = {
        kind: tuple(sum(head.layer == n for head in some) for n in range(some[-1].layer + 1))
        for kind, some in chosen.items()
    }
    layout = Layout(counts)
    captures = captures[: likeness.sample_size(layout)] if chosen else ()
    sample = [
        _divergences(capture, chosen, layout, number, _PAIR_WORK // len(captures))
        for number, capture in enumerate(captures)
    ]
    by_kind: dict[SiteKind, Alike] = {}
    for kind, some in chosen.items():
        apart, _ = likeness.distances(sample, kind, len(some))
        if np.isnan(apart).any():
            continue
        others = ~np.eye(len(some), dtype=np.bool_)
        places = likeness.plane(apart)
        total = float((apart**2).sum()) / (2 * len(some))
        by_kind[kind] = Alike(
            tuple(some),
            places,
            tuple(
                tuple(
                    (some[other], far) for other, far in likeness.nearest(apart, n, NEAREST, others)
                )
                for n in range(len(some))
            ),
            float((places**2).sum()) / total if total > 0 else 1.0,
            sum(text.rows.get(kind, 0) for text in sample),
            sum(kind in text.rows for text in sample),
        )
    return by_kind


def _divergences(
    capture: Capture, chosen: Mapping[SiteKind, Sequence[Head]], layout: Layout, key: int, work: int
) -> likeness.Divergences:
    """Return what one text says of the heads that are compared."""
    watch = likeness.Comparing([capture.inputs], {0: key}, layout, ROWS, work)
    for site, maps in capture.maps.items():
        some = [capture.place(head) for head in chosen.get(site.kind, ()) if head.site == site]
        if some:
            weights = np.asarray(maps[some], np.float32)
            watch.observe(Rows(site, 0, 0, arrays.array(weights[None]), None))
    return watch.divergences(0)
