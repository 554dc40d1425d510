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
    for number, (capture, group) in enumerate(zip(captures, heads, strict=True)):
        all_heads = capture.layout.whole or bool(capture.layout.mean)
        key = (capture.source.model, capture.quantity, frozenset(() if all_heads else group))
        groups.setdefault(key, []).append(number)
    out: list[Mapping[SiteKind, Alike]] = [{} for _ in captures]
    for (_, _, group), numbers in groups.items():
        by_kind = _together([captures[number] for number in numbers], group)
        for number in numbers:
            out[number] = by_kind
    return out


def _together(captures: Sequence[Capture], heads: Collection[Head]) -> Mapping[SiteKind, Alike]:
    """Return the same heads over several texts."""
    chosen: dict[SiteKind, list[Head]] = {}
    for head in captures[0].layout:
        if head in heads:
            chosen.setdefault(head.site.kind, []).append(head)
    chosen = {kind: group for kind, group in chosen.items() if LEAST <= len(group) <= likeness.MOST}
    counts = {
        kind: tuple(sum(head.layer == n for head in group) for n in range(group[-1].layer + 1))
        for kind, group in chosen.items()
    }
    layout = Layout(counts)
    captures = captures[: likeness.sample_size(layout)] if chosen else ()
    sample = [
        _divergences(capture, chosen, layout, number, _PAIR_WORK // len(captures))
        for number, capture in enumerate(captures)
    ]
    by_kind: dict[SiteKind, Alike] = {}
    for kind, group in chosen.items():
        distances, _ = likeness.distances(sample, kind, len(group))
        if np.isnan(distances).any():
            continue
        mask = ~np.eye(len(group), dtype=np.bool_)
        places = likeness.plane(distances)
        total = float((distances**2).sum()) / (2 * len(group))
        by_kind[kind] = Alike(
            tuple(group),
            places,
            tuple(
                tuple(
                    (group[near], far)
                    for near, far in likeness.nearest(distances, n, NEAREST, mask)
                )
                for n in range(len(group))
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
        indices = [capture.place(head) for head in chosen.get(site.kind, ()) if head.site == site]
        if indices:
            weights = np.asarray(maps[indices], np.float32)
            watch.observe(Rows(site, 0, 0, arrays.array(weights[None]), None))
    return watch.divergences(0)
