"""Where named parts of a text stand among its tokens.

A token belongs to a part if it shares a character with it that is not white space; a token that is
nothing but white space, if it shares any. So ``" Paris"`` is in the part ``Paris``, and not in the
part that ends before it. A patch of a picture belongs to a box that covers at least half of its
area; to a box that covers half of no patch belongs that with its centre.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from attnviz.core.media import Crop, Picture
from attnviz.core.prompt import Prompt
from attnviz.core.spans import (
    Range,
    Span,
    SpanQuery,
    box_of,
    check_apart,
    found_in,
    no_picture,
    ranges_of,
    runs,
    span_query,
)
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, cut
from attnviz.models.text import Offsets


def spanned(
    tokens: Tokens,
    prompt: Prompt,
    offsets: Offsets | None,
    notes: list[str],
    picture: Picture | None = None,
) -> Tokens:
    """Tokens with the named parts that a prompt asks for."""
    if not prompt.spans:
        return tokens
    spans = []
    for name, written in prompt.spans.items():
        query = span_query(name, written)
        if query.kind == "tokens":
            spans.append(_by_tokens(query, len(tokens)))
            continue
        if query.kind == "box":
            if prompt.image is None:
                raise no_picture(name)
            spans.append(_by_box(query, tokens, picture, notes))
            continue
        if offsets is None or prompt.text is None:  # of ids: in what they stand for
            ends = [*accumulate(map(len, tokens.texts), initial=0)]
            read = _by_characters(query, "".join(tokens.texts), [*pairwise(ends)], notes)
            spans.append(replace(read, characters=()))
            continue
        spans.append(_by_characters(query, prompt.text, offsets, notes))
    check_apart(spans)
    return replace(tokens, spans=tuple(spans))


def needs_offsets(prompt: Prompt) -> bool:
    """Whether parts of a prompt are looked for among characters."""
    queries = (span_query(name, written) for name, written in (prompt.spans or {}).items())
    return any(query.kind not in ("tokens", "box") for query in queries)


def _by_box(query: SpanQuery, tokens: Tokens, picture: Picture | None, notes: list[str]) -> Span:
    """The patches of a box; see the module."""
    box = box_of(query)
    name, crops = query.name, () if picture is None else picture.crops
    if not crops:
        raise InputError(
            f"span {name!r} is a box, and where in the picture this model's tokens lie is not known"
        )
    mine = [crop for crop in crops if crop.number == box.picture]
    if not mine:
        count = max(crop.number for crop in crops)
        given = "one picture is" if count == 1 else f"{count} pictures are"
        raise InputError(f"span {name!r} is a box of picture {box.picture}; {given} given")
    wide, high = mine[0].size
    if box.edges[2] > wide or box.edges[3] > high:
        raise InputError(
            f"span {name!r} reaches beyond {mine[0].name or 'the picture'}, which has {wide:,} × "
            f"{high:,} pixels"
        )
    at = {place: number for number, place in enumerate(tokens.places) if place}

    def patches(of: Callable[[Crop], list[tuple[int, int]]]) -> list[int]:
        cells = ((crop.row + row, column) for crop in mine for row, column in of(crop))
        return [at[place] for place in cells if place in at]

    covered = patches(lambda crop: crop.covered(box.edges))
    if not covered:
        covered = patches(lambda crop: crop.with_centre(box.edges))
        notes.append(f"Span '{name}' covers half of no patch; that with its centre is taken.")
    if not covered:
        raise InputError(f"span {name!r} lies where the model sees nothing of the picture")
    return Span(name, runs(sorted(covered)), box=box)


def _by_tokens(query: SpanQuery, length: int) -> Span:
    ranges = ranges_of(query)
    if ranges[-1][1] > length:
        raise InputError(
            f"span {query.name!r} ends at token {ranges[-1][1] - 1}; the text has {length:,} "
            "tokens, from 0"
        )
    return Span(query.name, runs(place for a, b in ranges for place in range(a, b)))


def _by_characters(query: SpanQuery, text: str, offsets: Offsets, notes: list[str]) -> Span:
    if query.kind == "chars":
        characters = list(ranges_of(query))
        if characters[-1][1] > len(text):
            raise InputError(
                f"span {query.name!r} ends at character {characters[-1][1] - 1}; the text has "
                f"{len(text):,}, from 0"
            )
    else:
        characters, more = found_in(query, text)
        notes += [more] if more else []
    inside = [place for place, token in enumerate(offsets) if _shared(text, token, characters)]
    if not inside:
        raise InputError(
            f"span {query.name!r} has no token among those that are read; it was cut off, or is "
            "nothing but spaces"
        )
    _tell_edges(query.name, text, offsets, characters, inside, notes)
    return Span(query.name, runs(inside), tuple(characters))


def _shared(text: str, token: Range, characters: Sequence[Range]) -> bool:
    """Whether a token belongs to these characters; see the module."""
    for a, b in characters:
        start, end = max(token[0], a), min(token[1], b)
        if start < end and (text[start:end].strip() or not text[token[0] : token[1]].strip()):
            return True
    return False


def _tell_edges(
    name: str,
    text: str,
    offsets: Offsets,
    characters: Sequence[Range],
    inside: Sequence[int],
    notes: list[str],
) -> None:
    """Say where the first or last token of a part holds more than the part, spaces aside."""
    for a, b in characters:
        mine = [offsets[place] for place in inside if _shared(text, offsets[place], [(a, b)])]
        if not mine:
            notes.append(f"Span '{name}': part of it was cut off.")
            continue
        before, after = text[mine[0][0] : a].strip(), text[b : mine[-1][1]].strip()
        for more, which in ((before, "first"), (after, "last")):
            if more:
                notes.append(f"Span '{name}': its {which} token also holds {cut(more)!r}.")
        if mine[-1][1] < b and text[mine[-1][1] : b].strip():
            notes.append(f"Span '{name}': part of it was cut off.")
