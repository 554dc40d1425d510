"""Why a model said a word: who voted for it, through what, and what happens without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from attnviz.core.heads import Head
from attnviz.core.result import Result
from attnviz.drawing.forms import Shown
from attnviz.features.ablation.result import Effect
from attnviz.features.logits.result import LogitPart, Prediction
from attnviz.features.sources.result import ReadToken, SideSum

MASKED = -1
"""In a map: a key that the query may not attend to."""
LEAST = 0.1
"""Of a contrast: an earlier head that adds less is not said to supply a key."""


@dataclass(frozen=True, slots=True)
class KeyFinding:
    """Where a head's key comes from: the contrast of its score, split by sources of the key.

    Attributes:
        contrast: the score of the key less the mean score of all other keys, before softmax.
        origins: what each source of the key adds to it, the largest first.
        reads: the token that the earlier head which adds most reads there; None without one.
    """

    contrast: float
    origins: tuple[SideSum, ...]
    reads: ReadToken | None = None

    @property
    def lead(self) -> Head | None:
        """The earlier head that adds most, where that is a tenth of the contrast or more."""
        heads = [one for one in self.origins if one.origin.head is not None]
        if not heads or heads[0].value < LEAST * abs(self.contrast):
            return None
        return heads[0].origin.head

    def share(self, one: SideSum) -> float:
        """What a source adds, as a share of the contrast."""
        return one.value / self.contrast if self.contrast else 0.0


@dataclass(frozen=True, slots=True)
class ExplainedHead:
    """One of the heads that count most.

    Attributes:
        head: which.
        value: what it adds to the difference of the two logits; None where logits are no sum.
        weights: of the position on every token, [T].
        map: its whole map in thousandths, row by row, -1 for keys that the query may not attend
            to; empty for texts that are too long for that.
        key: the position through which it adds most, else the one with the largest weight.
        through: what it adds through that token; None where logits are no sum.
        raises: words whose logits it raises most; empty where logits are no sum.
        found: where that key comes from; None where it cannot be told.
        reason: why it cannot; empty where it is told.
    """

    head: Head
    value: float | None
    weights: tuple[float, ...]
    map: tuple[tuple[int, ...], ...]
    key: int
    through: float | None
    raises: tuple[str, ...]
    found: KeyFinding | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True, repr=False)
class Explanation(Shown, Result):
    """A prediction, the heads that count most for it, and what happens without them.

    Attributes:
        tokens: of the text.
        masked: whether the word stands at the position, as in a masked model, or follows it.
        position: where.
        predictions: the most probable words there, and those that were asked for.
        answer: the word that is explained; ``against`` what it is compared with.
        against: see ``answer``.
        difference: of their logits, as the model gives them.
        sum: of the parts of that difference; None where logits are no sum.
        parts: of the same, see :class:`~attnviz.features.logits.result.LogitPart`.
        by_token: what all heads add through each token, [T]; empty where logits are no sum.
        heads: those that count most, by the size of what they add, or of what ablating them does.
        effects: what ablating does to the difference: each of them, all of them, and the earlier
            heads that their keys come from.
        methods: of the ablation, ``method`` in words, with ``reference``.
        method: see ``methods``.
        reference: where what takes a head's place comes from.
        reason: why there are no parts; empty where there are.
    """

    schema: ClassVar[str] = "attnviz.explain/1"
    command: ClassVar[str] = "explain"

    tokens: tuple[str, ...]
    masked: bool
    position: int
    predictions: tuple[Prediction, ...]
    answer: str
    against: str
    difference: float
    sum: float | None = None
    parts: tuple[LogitPart, ...] = ()
    by_token: tuple[float, ...] = ()
    heads: tuple[ExplainedHead, ...] = ()
    effects: tuple[Effect, ...] = ()
    methods: tuple[str, ...] = ()
    method: str = ""
    reference: str = ""
    reason: str = ""

    def votes(self) -> dict[Head, float]:
        """What every head adds to the difference; none where logits are no sum."""
        own = [part.value for part in self.parts if part.kind == "head"]
        return dict(zip(self.layout, own, strict=True)) if own else {}

    def total(self, kind: str) -> float:
        """What all parts of a kind add."""
        return sum(part.value for part in self.parts if part.kind == kind)

    def word(self, token: str) -> Prediction:
        """The prediction of a word."""
        return next(one for one in self.predictions if one.token == token)

    def effect(self, name: str) -> Effect:
        """What ablating a head, or several (``3.0+3.3``), does."""
        return next(one for one in self.effects if one.name == name)

    def __repr__(self) -> str:
        heads = ", ".join(self.layout.name(one.head) for one in self.heads)
        return f"<Explanation {self.source.model}: {self.answer!r} over {self.against!r}, {heads}>"
