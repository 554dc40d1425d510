"""Token sequences as a model saw them, and the two axes of a map."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from attnviz.core.media import Place, Space, space
from attnviz.core.spans import EVERY, Span, no_span, picked
from attnviz.errors import UsageError, cut

_NUMBER = re.compile(r"(-?[0-9]{1,9})(?:-([0-9]{1,9}))?")
_LISTED = 300  # characters of the tokens that a message lists
_COLUMNS = ("texts", "ids", "special", "separators", "words", "segments", "places")
"""What has an entry for each token."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """One token sequence, as the model saw it.

    Attributes:
        texts: what each token stands for, as readable text (``" keys"``, ``"##ing"``, ``"[SEP]"``).
        ids: vocabulary ids; empty where there is no vocabulary (fresh and recorded models).
        special: True for tokens that the tokenizer added (``[CLS]``, ``<s>``, ...).
        separators: True for tokens that end a segment (``[SEP]``, ``</s>``).
        words: the number of the word each token belongs to, from 0; -1 for special tokens.
        segments: BERT's segment number of each token (0 or 1).
        places: where patches of a picture and frames of a sound stand, see
            :data:`~attnviz.core.media.Place`; empty where there are none.
        written: how many of the last ones the model wrote itself.
        spans: its named parts, see :class:`~attnviz.core.spans.Span`.
    """

    texts: tuple[str, ...]
    ids: tuple[int, ...] = ()
    special: tuple[bool, ...] = ()
    separators: tuple[bool, ...] = ()
    words: tuple[int, ...] = ()
    segments: tuple[int, ...] = ()
    places: tuple[Place, ...] = ()
    written: int = 0
    spans: tuple[Span, ...] = ()

    def __post_init__(self) -> None:
        n = len(self.texts)
        defaults: dict[str, tuple[Any, ...]] = {
            "special": (False,) * n,
            "separators": (False,) * n,
            "words": tuple(range(n)),
            "segments": (0,) * n,
        }
        for name, value in defaults.items():
            if not getattr(self, name):
                object.__setattr__(self, name, value)
        for name in _COLUMNS:
            entries = len(getattr(self, name))
            if entries != n and (entries or name in defaults):
                raise ValueError(f"Tokens.{name} has {entries} entries, not {n}")
        for span in self.spans:
            if not span.ranges or not all(0 <= a < b <= n for a, b in span.ranges):
                raise ValueError(f"Tokens.spans has {span.name!r} outside of {n} tokens")

    def running(self, places: Iterable[int]) -> str:
        """Join what tokens say: ``keyboard on``, where they are ``key``, ``##board`` and ``on``.

        Tokens that have their spaces are joined as they are; between words of others is one.
        """
        chosen = [self.texts[position] for position in places]
        spaced = any(text.startswith((" ", "\n")) for text in self.texts)
        return "".join(chosen) if spaced else re.sub(r" ##|(?<=\w)@@ ", "", " ".join(chosen))

    def shown(self, name: str, places: Iterable[int]) -> str:
        """Say what a span of some name is at these places: its words, or the box named."""
        box = next((span.box for span in self.spans if span.name == name), None)
        return self.running(places) if box is None else str(box)

    def picked(self, places: Sequence[int]) -> Tokens:
        """Return some of the tokens in their order, with what is left of their spans."""
        columns: dict[str, Any] = {
            name: tuple(column[n] for n in places) if (column := getattr(self, name)) else ()
            for name in _COLUMNS
        }
        written = sum(n >= len(self) - self.written for n in places)
        return Tokens(**columns, written=written, spans=picked(self.spans, places))

    def __len__(self) -> int:
        return len(self.texts)

    def locate(
        self, asked: str | int, part: range | None = None, *, some: bool = False
    ) -> tuple[int, ...]:
        """Give positions that are meant by tokens, ranges of them and spans, with commas between.

        Args:
            asked: numbers (-1 is the last), ranges such as ``3-8``, the texts of tokens or words,
                ``span:NAME``, or ``all``.
            part: of the tokens that are looked at; numbers count from its start.
            some: whether what is not there is passed over, ranges end with the text, and of a text
                that stands there more than once each is meant: what is asked of several texts.

        Raises:
            UsageError: something is not there, or a text more than once.
        """
        part, text = range(len(self)) if part is None else part, str(asked)
        items = named_items(text, [(self, part)])
        if not all(item.strip() for item in items):
            raise UsageError("tokens are named with commas between them, not {!r}", cut(text))
        return tuple(
            sorted({at for item in items for at in self._locate(item.strip(), part, some)})
        )

    def _locate(self, item: str, part: range, some: bool) -> Sequence[int]:
        if item == EVERY:
            return part
        if number := _NUMBER.fullmatch(item):
            ends = [int(end) for end in number.groups() if end]
            ends = [end + len(part) if end < 0 else end for end in ends]
            if ends[0] > ends[-1]:
                raise UsageError("a range such as 3-8 ends behind its start, unlike {}", item)
            if some:
                return part[max(ends[0], 0) : max(ends[-1] + 1, 0)]
            if not all(0 <= end < len(part) for end in ends):
                raise UsageError(
                    f"there is no position {item}: the text has {len(part)} tokens, counted from 0"
                )
            return part[ends[0] : ends[-1] + 1]
        if item.startswith("span:"):
            spans = {span.name: span.positions for span in self.spans}
            name = item.removeprefix("span:")
            inside = [position for position in spans.get(name, ()) if position in part]
            if inside:
                return inside
            if not some:
                raise no_span(name, spans)
        elif matches := self.match(item, part):
            if len(matches) > 1 and not some:
                places = ", ".join(str(match[0] - part.start) for match in matches)
                raise UsageError("{!r} occurs at positions {}; give one of them", cut(item), places)
            return [position for match in matches for position in match]
        elif not some:
            texts = " ".join(self.texts[position].strip() for position in part)[:_LISTED]
            raise UsageError("no token {!r}; there are {}", cut(item), texts)
        return ()

    def match(self, text: str, part: range) -> list[tuple[int, ...]]:
        """Give tokens with that text; where there are none, the words that consist of several."""
        stripped = text.strip()
        if _NUMBER.fullmatch(stripped):
            return []
        tokens: list[tuple[int, ...]] = [
            (n,) for n in part if stripped in (self.texts[n], self.texts[n].strip())
        ]
        words: dict[int, list[int]] = {}
        for position in () if tokens else part:
            if self.words[position] >= 0:
                words.setdefault(self.words[position], []).append(position)
        return tokens or [
            tuple(places)
            for places in words.values()
            if "".join(self.texts[n].strip().removeprefix("##") for n in places) == stripped
        ]

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes two tokens the same: their id, or their text where there are no ids.

        What has a place is like nothing else.
        """
        identities = self.ids or self.texts
        return tuple(zip(identities, self.places, strict=True)) if self.places else identities

    @property
    def space(self) -> Space:
        """What they are laid out in; text as soon as one of them is text."""
        return space(self.places, self.special) if self.places else "text"


def named_items(text: str, sequences: Iterable[tuple[Tokens, range]]) -> list[str]:
    """Cut what names tokens at its commas, unless all of it is in some part of a sequence."""
    literal = any(tokens.match(text, part) for tokens, part in sequences)
    return [text] if literal else text.split(",")


@dataclass(frozen=True, slots=True)
class Sides:
    """The two axes of a map: queries (rows) and keys (columns); the same tokens twice for self."""

    queries: Tokens
    keys: Tokens
