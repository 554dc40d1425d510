"""Named parts of a text, such as a document, a question or the messages of a chat.

How a part is found is written as one string, ``[WHICH:][KIND:]VALUE``: KIND is ``text`` (the
default: these very characters), ``regex``, ``tokens`` (``12-40``, from 0, both ends in it),
``chars`` (the same of characters) or ``box`` (``10,20,80,90``: left, top, right and bottom edge in
pixels of a picture; ``box2`` of the second); WHICH is ``first`` (the default), ``all`` or a number
such as ``#2`` of the places where a text or a pattern is found.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Literal

from attnviz.errors import InputError, Setting, UsageError, cut

SpanKind = Literal["text", "regex", "tokens", "chars", "box"]
Range = tuple[int, int]
"""First and end, which is not in it."""

ELSEWHERE = "elsewhere"
"""The tokens that are in no span."""
LAST, EVERY = "last", "all"
"""Rows that have these names: the last token, and every token."""
_TAKEN = (ELSEWHERE, LAST, EVERY)
_WHICH = re.compile(r"(first|all|#[1-9][0-9]{0,8}):(.*)", re.DOTALL)
_KIND = re.compile(r"(text|regex|tokens|chars):(.*)", re.DOTALL)
_BOX = re.compile(r"box([1-9][0-9]{0,2})?:(.*)", re.DOTALL)
_EDGES = re.compile(r"\s*([0-9]{1,6})\s*" + r",\s*([0-9]{1,6})\s*" * 3)
_RANGE = re.compile(r"\s*([0-9]{1,9})(?:-([0-9]{1,9}))?\s*")
_LONGEST = 60  # characters of a name
SECONDS = 1.0
"""For a pattern, in one text."""


@dataclass(frozen=True, slots=True)
class PictureBox:
    """A region of a picture.

    Attributes:
        picture: the number of the picture, from 1.
        edges: left, top, right and bottom, in pixels of the picture as it was given, upright.
    """

    picture: int
    edges: tuple[int, int, int, int]

    def __str__(self) -> str:
        which = "" if self.picture == 1 else str(self.picture)
        return f"box{which}:{','.join(map(str, self.edges))}"


@dataclass(frozen=True, slots=True)
class Span:
    """A named part of a token sequence.

    Attributes:
        name: what it is called, once in a text.
        ranges: its tokens, first and end of every run of them, in order and apart.
        characters: the same of characters in the text that was tokenized; empty where tokens were
            named.
        box: the pixels of a picture that were named, see :class:`PictureBox`; None of a text.
    """

    name: str
    ranges: tuple[Range, ...]
    characters: tuple[Range, ...] = ()
    box: PictureBox | None = None

    @property
    def positions(self) -> tuple[int, ...]:
        """The positions of its tokens, in order."""
        return tuple(position for start, end in self.ranges for position in range(start, end))

    def __len__(self) -> int:
        return sum(end - start for start, end in self.ranges)


@dataclass(frozen=True, slots=True)
class SpanQuery:
    """How a span is found."""

    name: str  # of the span
    kind: SpanKind  # what ``value`` is
    value: str  # a text, a pattern, ranges, or the edges of a box
    which: int | None = 1  # of the places where it is found, None for all of them; of pictures too


def span_query(name: str, text: str) -> SpanQuery:
    """Read how a span is to be found."""
    if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > _LONGEST:
        raise UsageError(f"{cut(name)!r} is no name for a span; take a word or two")
    if name in _TAKEN or name.startswith("all:"):
        raise UsageError(f"{name!r} has a meaning of its own; give the span another name")
    which: int | None = 1
    pattern, selector = text, _WHICH.fullmatch(text)
    if selector:
        number, pattern = selector.groups()
        which = None if number == "all" else 1 if number == "first" else int(number[1:])
    kind: SpanKind = "text"
    if match := _BOX.fullmatch(pattern):
        if selector:
            raise UsageError(
                f"span {name!r}: a box is in one place; write box2: for the second picture"
            )
        return SpanQuery(name, "box", match[2], int(match[1] or 1))
    if match := _KIND.fullmatch(pattern):
        kind, pattern = match[1], match[2]  # type: ignore[assignment]
    if not pattern:
        raise UsageError(f"span {name!r} is empty; write the text that it is, or tokens:12-40")
    if selector and kind in ("tokens", "chars"):
        raise UsageError(
            f"span {name!r}: {kind} are found at one place; leave {text.partition(':')[0]!r} out"
        )
    return SpanQuery(name, kind, pattern, which)


def ranges_of(query: SpanQuery) -> tuple[Range, ...]:
    """Return the ranges of a query for tokens or characters: ``12-40,50``, both ends in them."""
    ranges = []
    for part in query.value.split(","):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise UsageError(
                f"span {query.name!r}: {cut(part)!r} is no range; write {query.kind}:12-40, from 0 "
                "and with both ends in it"
            )
        ranges.append((first, last + 1))
    ranges.sort()
    if any(a[1] > b[0] for a, b in pairwise(ranges)):
        raise UsageError(f"span {query.name!r}: the ranges of {cut(query.value)!r} overlap")
    return tuple(ranges)


def box_of(query: SpanQuery) -> PictureBox:
    """Return the region of a query for a box."""
    match = _EDGES.fullmatch(query.value)
    if match is None:
        raise UsageError(
            f"span {query.name!r}: {cut(query.value)!r} is no box; write box:10,20,80,90, the "
            "left, top, right and bottom edge in whole pixels"
        )
    left, top, right, bottom = map(int, match.groups())
    if left >= right or top >= bottom:
        raise UsageError(
            f"span {query.name!r}: the box {cut(query.value)} has no area; write left, top, right "
            "and bottom edge"
        )
    return PictureBox(query.which or 1, (left, top, right, bottom))


def no_picture(name: str) -> UsageError:
    """Return what to raise where a span is a box and no picture was given."""
    return UsageError(
        "span {!r} is a box of a picture, and there is none; give one with {image}", name, image=...
    )


def found_in(
    query: SpanQuery, text: str, regions: Sequence[Range] | None = None
) -> tuple[list[Range], str]:
    """Where a text or a pattern stands."""
    places = _literal if query.kind == "text" else _matched
    searched = [(0, len(text))] if regions is None else regions
    matches = [match for match in places(query, text, searched) if match[0] < match[1]]
    selected = matches if query.which is None else matches[query.which - 1 : query.which]
    if not selected:
        description = "a match of " * (query.kind == "regex") + f"'{cut(query.value)}'"
        if matches:
            times = "once" if len(matches) == 1 else f"{len(matches)} times"
            raise InputError(f"span {query.name!r}: {description} is in the text only {times}")
        pattern = "" if query.kind == "regex" else ", or write regex: before a pattern"
        raise InputError(
            f"span {query.name!r}: {description} is not in the text; check its spelling{pattern}"
        )
    if len(selected) == len(matches):
        return selected, ""
    which = "first" if query.which == 1 else f"{query.which}."
    return selected, (
        f"Span '{query.name}': {cut(query.value)!r} is in the text {len(matches)} times; the "
        f"{which} is taken (all: takes all of them, #2: the second)."
    )


def _literal(query: SpanQuery, text: str, regions: Sequence[Range]) -> Iterator[Range]:
    """Where the characters of a query stand."""
    for start, end in regions:
        for match in re.finditer(re.escape(query.value), text[start:end]):
            yield start + match.start(), start + match.end()


def _matched(query: SpanQuery, text: str, regions: Sequence[Range]) -> Iterator[Range]:
    """Where the pattern of a query matches, as long as there is time.

    Python's own ``re`` cannot be stopped: ``(a+)+c`` looks at thirty letters for minutes.
    """
    import regex  # what transformers' tokenizers split texts with

    until = time.monotonic() + SECONDS
    try:
        pattern = regex.compile(query.value)
        for start, end in regions:
            timeout = max(until - time.monotonic(), 0.0)
            for match in pattern.finditer(text[start:end], timeout=timeout):
                yield start + match.start(), start + match.end()
                if time.monotonic() > until:
                    raise TimeoutError
    except (TimeoutError, MemoryError):  # a pattern that calls itself for ever fills memory
        raise UsageError(
            f"span {query.name!r}: {cut(query.value)!r} was not done with a text of "
            f"{len(text):,} characters after {SECONDS:g} s; write a pattern without repetitions "
            "of repetitions, such as (a+)+"
        ) from None
    except (regex.error, RecursionError, ValueError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise UsageError(
            f"span {query.name!r}: {cut(query.value)!r} is no pattern: {reason}"
        ) from None


def no_span(name: str, existing: Iterable[str]) -> UsageError:
    """Give what to raise where no text has a span of a name, only those of ``existing``."""
    if names := ", ".join(existing):
        return UsageError("no text has a span {!r}; choose from {}", name, names)
    return UsageError("no text has a span {!r}; name one with {span}", name, span=...)


def check_apart(spans: Sequence[Span]) -> None:
    """Refuse spans that overlap. One inside another is fine: a document inside a message.

    Of a span in several pieces every piece lies apart from another span or inside of it.
    """
    for first, second in combinations(spans, 2):
        crossing = any(
            a < d and c < b and not (a <= c and d <= b) and not (c <= a and b <= d)
            for a, b in first.ranges
            for c, d in second.ranges
        )
        if crossing or first.ranges == second.ranges:
            relation = "overlap" if crossing else "are the same tokens"
            raise InputError(
                f"spans {first.name!r} and {second.name!r} {relation}; a span may lie apart from "
                "another or inside of it"
            )


def places(text: str, spans: Iterable[Span], length: int, option: str) -> tuple[int, ...]:
    """Return the positions asked for: those of a span by its name, or ranges such as ``12-40``."""
    named = {span.name: span for span in spans}
    if text in named:
        return named[text].positions
    matches = [_RANGE.fullmatch(part) for part in text.split(",")]
    if not all(matches):
        alternatives = f", or a span: {', '.join(named)}" if named else ""
        raise UsageError("{} takes tokens such as 12-40{}", Setting(option, text), alternatives)
    positions: set[int] = set()
    for match in filter(None, matches):
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise UsageError(
                "{} is empty, since it ends before it begins", Setting(option, match.string)
            )
        if last >= length:
            raise UsageError(
                "{} ends at token {:,}; there are {:,}, from 0", Setting(option, text), last, length
            )
        positions.update(range(first, last + 1))
    return tuple(sorted(positions))


def said_places(text: str, places: Sequence[int]) -> str:
    """Positions as people read them, ``12–40, 50``, after the name by which they were asked for."""
    ranges = ", ".join(
        f"{a:,}" if b - a == 1 else f"{a:,}–{b - 1:,}" for a, b in runs(sorted(places))
    )
    named = not all(_RANGE.fullmatch(part) for part in text.split(","))
    return f"{text} ({ranges})" if named else ranges


def said_cut(texts: Sequence[str | None], places: Sequence[Sequence[int]]) -> str:
    """Which queries and keys a map is cut to, ``queries 12–40 and keys 0–8``; empty for all."""
    sides = zip(("queries", "keys"), texts, places, strict=True)
    return " and ".join(f"{axis} {said_places(text, p)}" for axis, text, p in sides if text)


def depth(span: Span, piece: Range, spans: Sequence[Span]) -> int:
    """How many of some spans a piece of one of them lies inside of; of equals inside the former."""
    levels, first = 0, True
    for outer in spans:
        if outer is span:
            first = False
            continue
        levels += any(
            a <= piece[0] and piece[1] <= b and (first or (a, b) != piece) for a, b in outer.ranges
        )
    return levels


def picked(spans: Iterable[Span], places: Sequence[int]) -> tuple[Span, ...]:
    """Return spans of a sequence of which some places are left, by their new positions."""
    remaining = []
    for span in spans:
        positions = set(span.positions)
        ranges = runs(new for new, old in enumerate(places) if old in positions)
        remaining += [Span(span.name, ranges, span.characters, span.box)] if ranges else []
    return tuple(remaining)


def runs(places: Iterable[int]) -> tuple[Range, ...]:
    """Positions in order, as runs of neighbours."""
    ranges: list[Range] = []
    for position in places:
        if ranges and ranges[-1][1] == position:
            ranges[-1] = (ranges[-1][0], position + 1)
        else:
            ranges.append((position, position + 1))
    return tuple(ranges)


def elsewhere(spans: Iterable[Span], length: int) -> Span:
    """Return the tokens that are in none of some spans."""
    inside = {position for span in spans for position in span.positions}
    return Span(ELSEWHERE, runs(position for position in range(length) if position not in inside))
