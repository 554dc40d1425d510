"""Token sequences as a model saw them, and the two axes of a map."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from attnviz.core.media import Place, Space, space
from attnviz.core.spans import Span


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
        for name in ("special", "separators", "words", "segments"):
            if len(getattr(self, name)) != n:
                raise ValueError(f"Tokens.{name} has {len(getattr(self, name))} entries, not {n}")
        for name in ("ids", "places"):
            if getattr(self, name) and len(getattr(self, name)) != n:
                raise ValueError(f"Tokens.{name} has {len(getattr(self, name))} entries, not {n}")
        for span in self.spans:
            if not span.ranges or not all(0 <= a < b <= n for a, b in span.ranges):
                raise ValueError(f"Tokens.spans has {span.name!r} outside of {n} tokens")

    def running(self, places: Iterable[int]) -> str:
        """What some tokens say: ``keyboard on``, where they are ``key``, ``##board`` and ``on``.

        Tokens that have their spaces are joined as they are; between words of others is one.
        """
        chosen = [self.texts[place] for place in places]
        spaced = any(text.startswith((" ", "\n")) for text in self.texts)
        return "".join(chosen) if spaced else re.sub(r" ##|(?<=\w)@@ ", "", " ".join(chosen))

    def shown(self, name: str, places: Iterable[int]) -> str:
        """What a span of some name is, at these places: its words, or the box that was named."""
        box = next((span.box for span in self.spans if span.name == name), None)
        return self.running(places) if box is None else str(box)

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def identity(self) -> tuple[object, ...]:
        """What makes two tokens the same: their id, or their text where there are no ids.

        What has a place is like nothing else.
        """
        same = self.ids or self.texts
        return tuple(zip(same, self.places, strict=True)) if self.places else same

    @property
    def space(self) -> Space:
        """What they are laid out in; text as soon as one of them is text."""
        return space(self.places, self.special) if self.places else "text"


@dataclass(frozen=True, slots=True)
class Sides:
    """The two axes of a map: queries (rows) and keys (columns); the same tokens twice for self."""

    queries: Tokens
    keys: Tokens
