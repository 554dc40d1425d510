"""Two maps of the same rows: what stands where in both, and how far apart the rows are."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from attnviz.core.capture import Capture
from attnviz.core.heads import Site
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError
from attnviz.features.diff.result import Alignment
from attnviz.scoring.words import merge_words

ALIGNMENTS: tuple[Alignment, ...] = get_args(Alignment)

Maps = NDArray[np.float64]


def distributions(capture: Capture, site: Site) -> Maps:
    """The maps of a layer, [H, T, S], rows that are not weights divided by their sums."""
    maps = capture.maps[site].astype(np.float64)
    if not np.isfinite(maps).all():
        raise InputError(f"{capture.source.model} gives weights that are not finite")
    if capture.quantity == "weights":
        return maps
    sums = maps.sum(-1, keepdims=True)
    return maps / np.where(sums > 0, sums, 1.0)


def alignment(name: str) -> Alignment:
    """How rows are matched, by its name; UsageError for none."""
    for known in ALIGNMENTS:
        if name == known:
            return known
    raise UsageError(f"unknown alignment {name!r}: choose one of {', '.join(ALIGNMENTS)}")


def aligned(
    first: Capture, other: Capture, site: Site, align: Alignment
) -> tuple[Maps, Maps, tuple[Sides, Sides]]:
    """The maps of a layer in both captures, row by row and key by key the same.

    Returns: two [H, T, S], and the tokens of each on both axes.
    """
    maps = [distributions(capture, site) for capture in (first, other)]
    sides = [capture.inputs.sides[site.kind] for capture in (first, other)]
    if align == "word":
        merged = [merge_words(*pair) for pair in zip(maps, sides, strict=True)]
        maps, sides = [m.astype(np.float64) for m, _ in merged], [s for _, s in merged]
    for a, b in ((sides[0].queries, sides[1].queries), (sides[0].keys, sides[1].keys)):
        _check(a, b, align)
    return maps[0], maps[1], (sides[0], sides[1])


def masked(
    first: Capture, other: Capture, site: Site, align: Alignment
) -> NDArray[np.bool_] | None:
    """Bool [H or 1, T, S]: keys that no query may attend to in either run; None for none."""
    blocked = []
    for capture in (first, other):
        reach, sides = capture.reach.get(site), capture.inputs.sides[site.kind]
        if reach is None:
            return None
        allowed = reach.allowed(len(sides.queries), len(sides.keys))
        if align == "word":
            allowed = merge_words(allowed.astype(np.float64), sides)[0] > 0
        blocked.append(~allowed)
    both: NDArray[np.bool_] = blocked[0] & blocked[1]
    return both if both.any() else None


def _check(first: Tokens, other: Tokens, align: Alignment) -> None:
    """InputError where two sequences cannot be aligned."""
    unit = "words" if align == "word" else "tokens"
    if align == "token":
        for place, (a, b) in enumerate(zip(first.texts, other.texts, strict=False)):
            if a != b:
                raise InputError(
                    "the tokens differ from position {} on: {!r} and {!r}",
                    place,
                    a,
                    b,
                    remedy="choose how rows are matched with {align}: position or word",
                    align=...,
                )
    if len(first) != len(other):
        raise InputError(f"{len(first)} {unit} and {len(other)} cannot be aligned")


def distances(p: Maps, q: Maps) -> Maps:
    """The Jensen-Shannon distance of every row, [H, T]: √ of the divergence in bits, from 0 to 1.

    Lin 1991; its root is a metric (Endres & Schindelin 2003). What a row lacks to 1 (a learned
    sink's part) counts as one more key. NaN for rows without any weight in both.
    """
    empty = ~(p.any(-1) | q.any(-1))
    p, q = (np.concatenate([m, np.maximum(1 - m.sum(-1, keepdims=True), 0)], -1) for m in (p, q))
    p, q = (m / m.sum(-1, keepdims=True) for m in (p, q))
    divergence = _entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2
    apart: Maps = np.sqrt(np.clip(divergence, 0, 1))
    apart[(p == q).all(-1)] = 0.0  # not the root of a rounding error
    apart[empty] = np.nan
    return apart


def _entropy(p: NDArray[Any]) -> NDArray[Any]:
    """In bits, [..., S] -> [...]."""
    logs = np.log2(p, where=p > 0, out=np.zeros_like(p))
    entropy: NDArray[Any] = -(p * logs).sum(-1)
    return entropy
