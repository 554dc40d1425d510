"""From which tokens a picture is looked at: [CLS], a patch, a token of the text, or all patches."""

from __future__ import annotations

import re
from dataclasses import dataclass

from attnviz.core.media import Picture, Place
from attnviz.core.tokens import Tokens
from attnviz.errors import UsageError

_PATCH = re.compile(r"\s*([0-9]{1,5})\s*,\s*([0-9]{1,5})\s*")
_OF_SEVERAL = re.compile(r"(?:[1-9][0-9]{0,2}:)?(?:whole:)?[0-9]{1,5},[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class SelectedQuery:
    """Some query rows of a map, over which weights are averaged.

    Attributes:
        rows: their numbers.
        name: what they are, ``from [CLS]``.
        place: of the patch, where it is one.
    """

    rows: tuple[int, ...]
    name: str
    place: Place = ()


def selected_query(tokens: Tokens, picture: Picture, query: str | None = None) -> SelectedQuery:
    """The query rows that somebody means.

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
        rows = tuple(n for n, place in enumerate(places) if place)
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
        place = (int(match[1]), int(match[2]))
        if place not in places:
            raise UsageError(
                f"no patch {place[0]},{place[1]}: rows go from 0 to {picture.rows - 1}, columns "
                f"from 0 to {picture.columns - 1}"
            )
        return SelectedQuery((places.index(place),), f"from patch {place[0]},{place[1]}", place)
    if not (query.isascii() and query.isdigit() and len(query) < 9):
        raise UsageError(f"no query {query[:20]!r}: write cls, mean, 3,4 for a patch, or a number")
    row = int(query)
    if row >= len(tokens):
        raise UsageError(f"no token {row}; they go from 0 to {len(tokens) - 1}")
    return SelectedQuery((row,), f"from token {row} {tokens.texts[row].strip()}", places[row])
