"""What a picture shows of maps: words in place of tokens, no sink, means over heads or layers.

A mean is a picture of many heads at once and no head: what one of them does is averaged away, so
that it has a name of its own (``4.*``, ``*.3``, ``*.*``) and no scores.

Without the sink, a picture of a map leaves out the tokens on which heads rest when they have
nothing to do: the first one (Xiao et al. 2024, arXiv:2309.17453) and separators (Clark et al. 2019,
arXiv:1906.04341, section 3.2). Each row is divided by what it leaves to the others, so that it sums
to 1 again: it answers "of the weight that is not at rest, where does it go?".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.capture import Capture, KeyMask, empty_rows
from attnviz.core.heads import Head, Layout, Mean, Site
from attnviz.core.media import Picture, Place
from attnviz.core.spans import places
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError, UsageError
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
    pooled = np.add.reduceat(summed, starts, axis=1)
    full = np.add.reduceat(weights.any(-1), starts, axis=1, dtype=np.int64)
    merged: Map = (pooled / np.maximum(full, 1)[..., None]).astype(weights.dtype)
    return merged, Sides(queries, keys)


def in_words(sides: Sides) -> Sides:
    """Return the words on both axes, as :func:`merge_words` gives them."""
    _, queries = word_starts(sides.queries)
    return Sides(queries, queries if sides.keys is sides.queries else word_starts(sides.keys)[1])


def word_starts(tokens: Tokens) -> tuple[list[int], Tokens]:
    """Where each word starts, and the words as tokens; special tokens are words of their own."""
    starts = [
        i
        for i, (word, special) in enumerate(zip(tokens.words, tokens.special, strict=True))
        if i == 0 or special or word < 0 or word != tokens.words[i - 1]
    ]
    spans = zip(starts, [*starts[1:], len(tokens)], strict=True)
    texts = tuple(_joined(tokens.texts[a:b]) for a, b in spans)
    return starts, replace(_picked(tokens, starts), texts=texts)


def _joined(texts: tuple[str, ...]) -> str:
    """Spell a word: pieces without the mark of continuation, their bytes as characters."""
    bare = [GOES_ON.sub("", text) for text in texts]
    word = bare[0] + "".join(text.removeprefix("##") for text in bare[1:])
    return _BYTES.sub(_decoded, word) if len(texts) > 1 else word


def _decoded(match: re.Match[str]) -> str:
    """Return the characters that the bytes of several pieces make; unchanged if they make none."""
    try:
        return bytes.fromhex(match[0].replace("<", " ").replace(">", " ")).decode()
    except UnicodeDecodeError:
        return match[0]


WORDS_NOTE = (
    "Maps are of words: the sum over a word's tokens as keys, the mean over its tokens as queries."
)
_OVER = {"heads": "the heads of each layer", "layers": "the layers", "all": "all heads"}


def capture_in_words(capture: Capture) -> Capture:
    """Return the same capture with subwords merged into words, on both axes.

    A word may attend to another if one of its tokens may attend to one of the other's.
    """
    maps, reach = {}, {}
    for site, layer in capture.maps.items():
        sides, mask = capture.inputs.sides[site.kind], capture.reach.get(site)
        maps[site] = merge_words(layer, sides)[0]
        allowed = _merged(allowed_in(layer, mask), sides)
        reach[site] = KeyMask.of(
            allowed,
            sink=mask is not None and mask.sink,
            unselected=None
            if mask is None or mask.unselected is None
            else _merged(mask.unselected, sides) & ~allowed[:1],
        )
    shared: dict[int, Any] = {}
    sides_of = {}
    for kind, sides in capture.inputs.sides.items():
        merged = in_words(sides)
        queries = shared.setdefault(id(sides.queries), merged.queries)
        keys = shared.setdefault(id(sides.keys), merged.keys)
        sides_of[kind] = replace(merged, queries=queries, keys=keys)
    inputs = replace(
        capture.inputs, sides=sides_of, notes=(*capture.inputs.notes, WORDS_NOTE), features={}
    )
    return replace(
        capture, inputs=inputs, maps=maps, reach=reach, terms={}, empty_rows=empty_rows(maps)
    )


def mean_layout(
    layout: Layout, heads: Collection[Head], mean: Mean
) -> tuple[Layout, frozenset[Head]]:
    """Return the layout of a mean over some heads, and the means that it holds."""
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
    means = Layout(counts, whole=mean == "heads", mean=mean)
    return means, frozenset(_of(head, mean) for head in heads)


def mean_capture(capture: Capture, mean: Mean) -> Capture:
    """Return the mean of the maps that a capture holds, over the heads of a layer, layers or all.

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
    rows: dict[Site, list[tuple[int, Map, NDArray[np.bool_]]]] = {}
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
    sinks = {site.kind for site, mask in capture.reach.items() if mask.sink}
    reach = {
        site: KeyMask.of(np.stack([allowed for *_, allowed in listed]), sink=site.kind in sinks)
        for site, listed in rows.items()
    }
    indices = {
        site: tuple(index for index, *_ in listed)
        for site, listed in rows.items()
        if len(listed) < layout.heads[site.kind][site.layer]
    }
    note = (
        f"Maps are means over {_OVER[mean]}: a mean hides what single heads do, and says of none "
        "that it does it."
    )
    inputs = replace(capture.inputs, notes=(*capture.inputs.notes, note))
    return replace(
        capture, layout=layout, inputs=inputs, maps=maps, reach=reach, kept=indices, terms={}
    )


def _of(head: Head, mean: Mean) -> Head:
    """Return the mean that a head is a part of."""
    layer = head.layer if mean == "heads" else 0
    return Head(Site(head.site.kind, layer), head.index if mean == "layers" else 0)


def _merged(allowed: NDArray[np.bool_], sides: Sides) -> NDArray[np.bool_]:
    """Which words may attend to which, bool [H or 1, T', S']."""
    return merge_words(allowed.astype(np.float32), sides)[0] > 0


def shown_sides(sides: Sides, *, words: bool, hide_sink: bool) -> Sides:
    """Return the tokens or words on the axes of :func:`shown_map`."""
    if words:
        sides = in_words(sides)
    if not hide_sink:
        return sides
    rows, columns = _kept(sides)
    if not rows or not columns:
        raise InputError("without the first token and separators nothing is left to draw")
    keys = _picked(sides.keys, columns)
    return Sides(keys if sides.queries == sides.keys else _picked(sides.queries, rows), keys)


def shown_map(
    weights: Map,
    allowed: NDArray[np.bool_],
    sides: Sides,
    *,
    words: bool,
    hide_sink: bool,
    unselected: NDArray[np.bool_] | None = None,
) -> Map:
    """One head's map to be drawn, [T, S] or smaller; what is not allowed is masked.

    ``weights`` [T, S]; ``allowed``: bool [T, S], the keys that each query may attend to; a word may
    attend to another if one of its tokens may attend to one of the other's; ``unselected``: bool
    [T, S], those of the keys that are not allowed which the layer's indexer did not select; None
    where nothing selects.
    """
    if words:
        unselected = None if unselected is None else _merged(unselected[None], sides)[0]
        weights, allowed = merge_words(weights[None], sides)[0][0], _merged(allowed[None], sides)[0]
        sides = in_words(sides)
    if hide_sink:
        region = np.ix_(*_kept(sides))
        weights, allowed = weights[region], allowed[region]
        unselected = None if unselected is None else unselected[region]
        sums = weights.sum(axis=1, keepdims=True, dtype=np.float64)
        weights = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
    if unselected is not None:
        weights = np.where(unselected & ~allowed, np.nan, weights)
    return weights if allowed.all() else np.ma.array(weights, mask=~allowed)


def asked_places(
    requests: tuple[str | None, str | None], sides: Sides
) -> tuple[Sequence[int], Sequence[int]]:
    """Give the positions of the rows and keys that a map is cut to; all where nothing is asked."""
    rows, keys = (
        range(len(tokens)) if request is None else places(request, tokens.spans, len(tokens), axis)
        for request, tokens, axis in zip(
            requests, (sides.queries, sides.keys), ("rows", "keys"), strict=True
        )
    )
    return rows, keys


def cropped(
    weights: Map, axes: Sides, sides: Sides, places: tuple[Sequence[int], Sequence[int]],
    *, words: bool, hide_sink: bool,
) -> tuple[Map, Sides]:  # fmt: skip
    """Give some rows and columns of a map that :func:`shown_map` gave, and what is on its axes."""
    firsts = shown_sides(_numbered(sides), words=words, hide_sink=hide_sink)
    few = [
        [n for n, first in enumerate(axis.segments) if first in set(positions)]
        for axis, positions in zip((firsts.queries, firsts.keys), places, strict=True)
    ]
    if not all(few):
        raise InputError("none of the tokens that were asked for is in the map; take others")
    rows, columns = few
    queries = _picked(axes.queries, rows)
    keys = queries if rows == columns and axes.queries == axes.keys else _picked(axes.keys, columns)
    return weights[np.ix_(rows, columns)], Sides(queries, keys)


def shown_positions(
    sides: Sides, places: tuple[Sequence[int], Sequence[int]] | None,
    *, words: bool, hide_sink: bool,
) -> tuple[list[int], list[int]]:  # fmt: skip
    """Where the rows and columns of a map stand among all tokens, or all words; as for cropped."""
    numbered = _numbered(sides)
    axes = shown_sides(numbered, words=words, hide_sink=hide_sink)
    complete = in_words(numbered) if words else numbered
    rows, keys = (
        [
            listed.segments.index(first)
            for first in axis.segments
            if places is None or first in set(places[number])
        ]
        for number, (axis, listed) in enumerate(
            zip((axes.queries, axes.keys), (complete.queries, complete.keys), strict=True)
        )
    )
    return rows, keys


def _numbered(sides: Sides) -> Sides:
    """Return the same tokens, each with its position in place of its segment."""
    numbered = Sides(
        *(replace(t, segments=tuple(range(len(t)))) for t in (sides.queries, sides.keys))
    )
    return Sides(numbered.keys, numbered.keys) if sides.queries == sides.keys else numbered


def _kept(sides: Sides) -> tuple[list[int], list[int]]:
    """Return the places of the queries and keys that are not the sink."""
    separators = sides.keys.separators
    keys = [n for n in range(1, len(sides.keys)) if not separators[n]]
    return (keys if sides.queries == sides.keys else list(range(len(sides.queries)))), keys


def _picked(tokens: Tokens, places: list[int]) -> Tokens:
    """Return some of the tokens; their numbers in the vocabulary are left out."""
    return replace(tokens.picked(places), ids=())


_PATCH = re.compile(r"\s*([0-9]{1,5})\s*,\s*([0-9]{1,5})\s*")
_OF_SEVERAL = re.compile(r"(?:[1-9][0-9]{0,2}:)?(?:whole:)?[0-9]{1,5},[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class SelectedQuery:
    """Some query rows of a map, over which weights are averaged."""

    rows: tuple[int, ...]  # their numbers
    name: str  # what they are, ``from [CLS]``
    place: Place = ()  # of the patch, where it is one


def selected_query(tokens: Tokens, picture: Picture, query: str | None = None) -> SelectedQuery:
    """Return the query rows that somebody means.

    ``query``: ``cls``, ``3,4`` (row and column of a patch, from 0; ``2:3,4`` in the second picture,
    ``whole:3,4`` in the small whole of a picture in tiles), ``mean`` (of all patches), or the
    number of a token. By default [CLS]; the last token of a text; else all patches.
    """
    places = tokens.places or ((),) * len(tokens)
    text = tokens.space == "text"
    mixed = text and any(places)  # it begins with a mark of its own, not with [CLS]
    cls = tokens.special[0] and not places[0] and not mixed
    if query is None:
        query = "cls" if cls else str(len(tokens) - 1) if text else "mean"
    if query == "cls":
        if not cls:
            raise UsageError("this model has no [CLS]; name a patch such as 3,4, or mean")
        return SelectedQuery((0,), f"from {tokens.texts[0]}")
    if query == "mean":
        rows = tuple(n for n, patch in enumerate(places) if patch)
        if not rows:
            raise UsageError("no patches among the queries; name a token by its number")
        return SelectedQuery(rows, "mean over all patches")
    if ":" in query and _OF_SEVERAL.fullmatch(query):
        patches = {text: n for n, text in enumerate(tokens.texts) if places[n]}
        if query not in patches:
            raise UsageError(
                f"no patch {query}; the last patch is "
                f"{max(patches, key=lambda text: patches[text], default='none')}"
            )
        row = patches[query]
        return SelectedQuery((row,), f"from patch {query}", places[row])
    match = _PATCH.fullmatch(query)
    if match:
        patch = (int(match[1]), int(match[2]))
        if patch not in places:
            raise UsageError(
                f"no patch {patch[0]},{patch[1]}: rows go from 0 to {picture.rows - 1}, columns "
                f"from 0 to {picture.columns - 1}"
            )
        return SelectedQuery((places.index(patch),), f"from patch {patch[0]},{patch[1]}", patch)
    if not (query.isascii() and query.isdigit() and len(query) < 9):
        raise UsageError(f"no query {query[:20]!r}: write cls, mean, 3,4 for a patch, or a number")
    row = int(query)
    if row >= len(tokens):
        raise UsageError(f"no token {row}; they go from 0 to {len(tokens) - 1}")
    return SelectedQuery((row,), f"from token {row} {tokens.texts[row].strip()}", places[row])
