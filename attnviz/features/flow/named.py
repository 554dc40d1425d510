"""The token that is meant: by its position, or by its text."""

from __future__ import annotations

from attnviz.core.heads import SITE_PREFIX
from attnviz.drawing.labels import visible
from attnviz.errors import UsageError
from attnviz.features.flow.result import Direction, Followed
from attnviz.features.flow.stack import Nodes

_SOURCE, _TARGET = SITE_PREFIX["encoder"] + ":", SITE_PREFIX["decoder"] + ":"


def named(direction: Direction, asked: str, all_: Nodes) -> Followed:
    """Find a token."""
    source, target = range(all_.targets), range(all_.targets, len(all_))
    sides = [target, source] if direction == "to" else [source, target]
    if all_.targets:
        for prefix, side in ((_SOURCE, source), (_TARGET, target)):
            if asked.startswith(prefix):
                sides, asked = [side], asked.removeprefix(prefix)
    sides = [side for side in sides if side]
    number = _whole(asked)
    if number is not None:
        side = sides[0]
        if not -len(side) <= number < len(side):
            raise UsageError(
                f"there is no position {number}: the text has {len(side)} tokens, counted from 0"
            )
        place = side[number]
        return Followed(direction, (place,), all_.tokens.texts[place])
    for side in sides:
        matches = _matches(asked, all_, side)
        if len(matches) > 1:
            places = ", ".join(str(match[0] - side.start) for match in matches)
            raise UsageError(f"{asked!r} occurs at positions {places}; give one of them")
        if matches:
            return Followed(direction, matches[0], asked.strip())
    texts = " ".join(
        visible(text) for side in sides for text in all_.tokens.texts[side.start :][: len(side)]
    )
    raise UsageError(f"no token {asked!r}; there are {texts[:_LISTED]}")


_LISTED = 300


def _whole(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def _matches(asked: str, all_: Nodes, side: range) -> list[tuple[int, ...]]:
    """Tokens with that text; where there is none, words that consist of several."""
    texts, wanted = all_.tokens.texts, asked.strip()
    tokens: list[tuple[int, ...]] = [(n,) for n in side if wanted in (texts[n], texts[n].strip())]
    if tokens:
        return tokens
    words: dict[int, list[int]] = {}
    for place in side:
        if all_.tokens.words[place] >= 0:
            words.setdefault(all_.tokens.words[place], []).append(place)
    return [
        tuple(places)
        for places in words.values()
        if "".join(texts[n].strip().removeprefix("##") for n in places) == wanted
    ]
