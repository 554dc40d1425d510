"""Labels that a fine-tuned classifier gives a text or each of its tokens, in place of words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, UsageError, cut

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Place = Literal["first", "last", "each"]
"""The token whose final state is read: [CLS] and its like, the last one, or each its own."""
CLASSIFIERS = ("ForSequenceClassification", "ForTokenClassification")
"""How transformers calls classes that give labels, after the family's name."""
_NUMBERED = re.compile(r"#([0-9]{1,6})")
_LISTED = 20


@dataclass(frozen=True, slots=True)
class Labels:
    """What a label head tells apart, and where it reads it."""

    names: tuple[str, ...]  # of the labels, in the order of the logits
    place: Place  # of the token whose final state it reads
    # how logits become shares: one label of several (``softmax``), each on its own (``sigmoid``,
    # several labels at once), or not at all (``none``, regression)
    shares: Literal["softmax", "sigmoid", "none"] = "softmax"
    pad: int | None = None  # the id that is no last token; None where there is none

    def number(self, name: str) -> int:
        """Find a label by its name, or ``#2`` by its number."""
        for fold in (str, str.casefold):
            hits = [n for n, label in enumerate(self.names) if fold(label) == fold(name.strip())]
            if len(hits) == 1:
                return hits[0]
            if hits:
                numbers = ", ".join(f"#{n}" for n in hits)
                raise InputError(f"{len(hits)} labels are called {name!r}; name one of {numbers}")
        numbered = _NUMBERED.fullmatch(name.strip())
        if numbered and int(numbered[1]) < len(self.names):
            return int(numbered[1])
        listing = ", ".join(map(repr, self.names[:_LISTED]))
        ellipsis = ", …" * (len(self.names) > _LISTED)
        raise InputError(f"{cut(name)!r} is no label of this model; it has {listing}{ellipsis}")

    def position(self, tokens: Tokens, requested: int | None = None) -> int:
        """Where the logits of a text are read."""
        length = len(tokens)
        if requested is not None and not -length <= requested < length:
            raise UsageError(f"there is no position {requested}: the text has {length} tokens")
        if self.place == "each":
            if requested is None:
                raise UsageError(
                    "this model labels each token; choose one with {position}, from 0 to {}",
                    length - 1,
                    position=...,
                )
            return requested % length
        position = 0
        if self.place == "last":
            real = [n for n, token in enumerate(tokens.ids) if token != self.pad]
            position = real[-1] if real else length - 1
        if requested is not None and requested % length != position:
            raise UsageError(
                "this model labels the whole text, at token {}; leave {position} out",
                position,
                position=requested,
            )
        return position

    def share(self, logits: NDArray[np.float64]) -> NDArray[np.float64]:
        """Share by label, [K]: of one among several, of each alone, or 1 in regression."""
        import numpy as np

        if self.shares == "none":
            return np.ones_like(logits)
        if self.shares == "sigmoid":
            return 1 / (1 + np.exp(-logits))
        odds = np.exp(logits - logits.max())
        return odds / odds.sum()

    def texts(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """Return the names of some labels."""
        return tuple(self.names[number] for number in numbers)
