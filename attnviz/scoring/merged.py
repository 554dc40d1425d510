"""Captures made of captures: maps of words, and means over heads or layers.

A mean is a picture of many heads at once and no head: what one of them does is averaged away, so
that it has a name of its own (``4.*``, ``*.3``, ``*.*``) and no scores.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.capture import Capture, KeyMask
from attnviz.core.heads import Head, Layout, Mean, Site
from attnviz.core.spans import picked
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import UsageError
from attnviz.scoring.observe import allowed_in

Map = NDArray[np.floating[Any]]

_BYTES = re.compile(r"(?:<[89A-F][0-9A-F](?: [89A-F][0-9A-F])*>)+")
"""Parts of characters in UTF-8, as texts of tokens show them."""
GOES_ON = re.compile(r"(?<=\w)@@$")
"""The mark behind a piece that goes on, as some vocabularies write it."""


def merge_words(weights: Map, sides: Sides) -> tuple[Map, Sides]:
    """Merge subwords into words.

    ``weights`` [H, T, S].
    """
    starts, queries = word_starts(sides.queries)
    key_starts, keys = (starts, queries) if sides.keys is sides.queries else word_starts(sides.keys)
    summed = np.add.reduceat(weights, key_starts, axis=2)
    given = np.add.reduceat(summed, starts, axis=1)
    full = np.add.reduceat(weights.any(-1), starts, axis=1, dtype=np.int64)
    merged: Map = (given / np.maximum(full, 1)[..., None]).astype(weights.dtype)
    return merged, Sides(queries, keys)


def in_words(sides: Sides) -> Sides:
    """The words on both axes, as :func:`merge_words` gives them."""
    _, queries = word_starts(sides.queries)
    return Sides(queries, queries if sides.keys is sides.queries else word_starts(sides.keys)[1])


def word_starts(tokens: Tokens) -> tuple[list[int], Tokens]:
    """Where each word starts, and the words as tokens; special tokens are words of their own."""
    starts = [
        i
        for i, (word, special) in enumerate(zip(tokens.words, tokens.special, strict=True))
        if i == 0 or special or word < 0 or word != tokens.words[i - 1]
    ]
    spans = list(zip(starts, [*starts[1:], len(tokens)], strict=True))
    return starts, Tokens(
        texts=tuple(_joined(tokens.texts[a:b]) for a, b in spans),
        special=tuple(tokens.special[a] for a in starts),
        separators=tuple(tokens.separators[a] for a in starts),
        words=tuple(tokens.words[a] for a in starts),
        segments=tuple(tokens.segments[a] for a in starts),
        places=tuple(tokens.places[a] for a in starts) if tokens.places else (),
        written=sum(a >= len(tokens) - tokens.written for a in starts),
        spans=picked(tokens.spans, starts),
    )


def _joined(texts: tuple[str, ...]) -> str:
    """The text of a word: pieces without the mark of continuation, their bytes as characters."""
    bare = [GOES_ON.sub("", text) for text in texts]
    joined = bare[0] + "".join(text.removeprefix("##") for text in bare[1:])
    return _BYTES.sub(_decoded, joined) if len(texts) > 1 else joined


def _decoded(match: re.Match[str]) -> str:
    """The characters that the bytes of several pieces make; unchanged if they make none."""
    try:
        return bytes.fromhex(match[0].replace("<", " ").replace(">", " ")).decode()
    except UnicodeDecodeError:
        return match[0]


Maps = NDArray[np.floating[Any]]

WORDS_NOTE = (
    "Maps are of words: the sum over a word's tokens as keys, the mean over its tokens as queries."
)
_OVER = {"heads": "the heads of each layer", "layers": "the layers", "all": "all heads"}


def mean_note(mean: Mean) -> str:
    """What a reader of a mean must know, as a sentence."""
    return (
        f"Maps are means over {_OVER[mean]}: a mean hides what single heads do, and says of none "
        "that it does it."
    )


def capture_in_words(capture: Capture) -> Capture:
    """The same capture with subwords merged into words, on both axes.

    A word may attend to another if one of its tokens may attend to one of the other's.
    """
    maps, reach = {}, {}
    for site, layer in capture.maps.items():
        sides, known = capture.inputs.sides[site.kind], capture.reach.get(site)
        maps[site] = merge_words(layer, sides)[0]
        allowed = _merged(allowed_in(layer, known), sides)
        reach[site] = KeyMask.of(
            allowed,
            sink=known is not None and known.sink,
            unselected=None
            if known is None or known.unselected is None
            else _merged(known.unselected, sides) & ~allowed[:1],
        )
    kept: dict[int, Any] = {}
    sides_of = {}
    for kind, sides in capture.inputs.sides.items():
        merged = in_words(sides)
        queries = kept.setdefault(id(sides.queries), merged.queries)
        keys = kept.setdefault(id(sides.keys), merged.keys)
        sides_of[kind] = replace(merged, queries=queries, keys=keys)
    inputs = replace(
        capture.inputs, sides=sides_of, notes=(*capture.inputs.notes, WORDS_NOTE), features={}
    )
    return replace(
        capture, inputs=inputs, maps=maps, reach=reach, terms={}, empty_rows=_empty(maps)
    )


def mean_layout(
    layout: Layout, heads: Collection[Head], mean: Mean
) -> tuple[Layout, frozenset[Head]]:
    """The layout of a mean over some heads, and the means that it holds."""
    if layout.mean:
        raise UsageError("these maps are means already; leave out {mean}", mean=mean)
    if layout.whole and mean == "heads":
        raise UsageError(
            "these maps are one for each layer already; {mean} takes layers here", mean=...
        )
    counts: dict[Any, tuple[int, ...]] = {}
    for kind in layout.kinds:
        if mean == "heads":
            counts[kind] = tuple(min(count, 1) for count in layout.heads[kind])
        else:
            counts[kind] = (max(layout.heads[kind]) if mean == "layers" else 1,)
    taken = Layout(counts, whole=mean == "heads", mean=mean)
    return taken, frozenset(_of(head, mean) for head in heads)


def mean_capture(capture: Capture, mean: Mean) -> Capture:
    """The mean of the maps that a capture holds, over the heads of a layer, layers or all.

    A key is allowed where one of the heads allows it; layers count alike in a mean over layers,
    heads alike in one over all.
    """
    held = [head for head in capture.layout if capture.holds(head)]
    layout, _ = mean_layout(capture.layout, held, mean)
    groups: dict[Head, list[Head]] = {}
    for head in held:
        groups.setdefault(_of(head, mean), []).append(head)
    reach_of = {
        site: allowed_in(layer, capture.reach.get(site)) for site, layer in capture.maps.items()
    }
    rows: dict[Site, list[tuple[int, Maps, NDArray[np.bool_]]]] = {}
    for group, heads in sorted(groups.items()):
        if len({capture[head].shape for head in heads}) > 1:
            raise UsageError("{mean} needs maps of one size; these layers have several", mean=mean)
        total = np.zeros(capture[heads[0]].shape, np.float64)
        allowed = np.zeros(total.shape, bool)
        for head in heads:
            masks = reach_of[head.site]
            total += capture[head]
            allowed |= masks[capture.place(head) if len(masks) > 1 else 0]
        weights = (total / len(heads)).astype(capture[heads[0]].dtype)
        rows.setdefault(group.site, []).append((group.index, weights, allowed))
    maps = {site: np.stack([weights for _, weights, _ in listed]) for site, listed in rows.items()}
    sinks = _sinks(capture)
    reach = {
        site: KeyMask.of(np.stack([allowed for *_, allowed in listed]), sink=site.kind in sinks)
        for site, listed in rows.items()
    }
    kept = {
        site: tuple(index for index, *_ in listed)
        for site, listed in rows.items()
        if len(listed) < layout.heads[site.kind][site.layer]
    }
    inputs = replace(capture.inputs, notes=(*capture.inputs.notes, mean_note(mean)))
    return replace(
        capture, layout=layout, inputs=inputs, maps=maps, reach=reach, kept=kept, terms={}
    )


def _of(head: Head, mean: Mean) -> Head:
    """The mean that a head is a part of."""
    layer = head.layer if mean == "heads" else 0
    return Head(Site(head.site.kind, layer), head.index if mean == "layers" else 0)


def _sinks(capture: Capture) -> frozenset[str]:
    """The kinds of layers some of which have a learned sink."""
    return frozenset(site.kind for site, mask in capture.reach.items() if mask.sink)


def _merged(allowed: NDArray[np.bool_], sides: Any) -> NDArray[np.bool_]:
    """Which words may attend to which, bool [H or 1, T', S']."""
    merged: NDArray[np.bool_] = merge_words(allowed.astype(np.float32), sides)[0] > 0
    return merged


def _empty(maps: Mapping[Site, Maps]) -> int:
    """How many query rows of any layer have no weight at all."""
    return sum(int((~layer.any(-1)).any(0).sum()) for layer in maps.values())
