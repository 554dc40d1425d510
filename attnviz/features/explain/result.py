"""Why a model says a word and not another: heads for it and against it, and the lead without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from attnviz.core.heads import Head
from attnviz.core.lengths import Axes, Place
from attnviz.core.result import Result
from attnviz.drawing.forms import Renderable
from attnviz.features.ablation.result import Effect
from attnviz.features.logits.result import LogitPart, Prediction
from attnviz.features.sources.result import SideSum

ChosenBy = Literal["votes", "ablation"]


UNSELECTED = -1
"""What stands in a small map for a key that an indexer left out."""


@dataclass(frozen=True, slots=True)
class ExplainedHead:
    """One of the heads that count most.

    Attributes:
        head: which.
        vote: what it adds to the answer's lead, in logits; None where logits are no sum.
        raises: the words whose logits it raises most; empty likewise.
        weights: of the query at the explained position on every token that it may attend to, from
            the first on.
        position: of the token with the largest weight.
        keys: the sources of that key, the largest first, of its score less the mean of all other
            keys; empty where they cannot be told.
        map: weights [T, S] in thousandths, :data:`UNSELECTED` where the layer's indexer did not
            select the key; empty for longer texts.
        effect: what happens to the answer's lead without it.
        reason: why its keys are not split; empty where they are.
    """

    head: Head
    vote: float | None
    raises: tuple[str, ...]
    weights: Annotated[tuple[float, ...], Axes("keys")]
    position: Annotated[int, Place("keys")]
    keys: tuple[SideSum, ...]
    map: tuple[tuple[int, ...], ...]
    effect: Effect
    reason: str = ""

    @property
    def through(self) -> SideSum | None:
        """The earlier head that adds most to its key; None where none adds a tenth."""
        heads = [
            part for part in self.keys if part.origin.head is not None and (part.share or 0) > 0.1
        ]
        return heads[0] if heads else None


@dataclass(frozen=True, kw_only=True, repr=False)
class Explain(Renderable, Result):
    """One prediction, explained as far as it can be measured on one text.

    Attributes:
        tokens: of the text.
        masked: whether the word stands at ``position``, or follows it.
        position: of the prediction.
        predictions: the most probable words there, then what was asked for.
        answer: the word that is explained.
        against: the word that it is compared with: the most probable other one, if none was given.
        logit: of the answer.
        lead: the answer's logit less that of ``against``, which ablations change.
        chosen_by: how the heads were chosen: by what they add to the lead, or by ablating each.
        parts: that add up to the lead, before a cap on logits; empty where logits are no sum.
        by_token: what each head adds to it through each token, [T] by head.
        heads: those that count most, the first the most.
        negative: the head that takes most from the lead (a negative head, Wang et al. 2022); None
            where none does, or logits are no sum.
        together: what happens without all of ``heads`` at once.
        feeder: what happens without the earlier head through which most of their keys come; None
            where there is none.
        methods: what takes a head's place.
        reference: where means and other outputs come from.
        reason: why logits are no sum; empty where they are.
    """

    schema: ClassVar[str] = "attnviz.explain/1"
    command: ClassVar[str] = "explain"

    tokens: Annotated[tuple[str, ...], Axes("tokens")]
    masked: bool
    position: Annotated[int, Place("tokens")]
    predictions: tuple[Prediction, ...]
    answer: str
    against: str
    logit: float
    lead: float
    chosen_by: ChosenBy
    parts: tuple[LogitPart, ...]
    by_token: Annotated[Mapping[Head, tuple[float, ...]] | None, Axes("", "tokens")]
    heads: Annotated[tuple[ExplainedHead, ...], Axes(least=1)]
    negative: ExplainedHead | None
    together: Effect
    feeder: Effect | None
    methods: Annotated[tuple[str, ...], Axes("methods", least=1)]
    reference: str
    reason: str = ""

    def __post_init__(self) -> None:
        if not {self.answer, self.against} <= {word.token for word in self.predictions}:
            raise ValueError("the answer or what it is held against is not among predictions")

    def votes(self) -> dict[Head, float]:
        """What every head adds to the lead; empty where logits are no sum."""
        return {head: sum(row) for head, row in (self.by_token or {}).items()}

    @property
    def shown_heads(self) -> tuple[ExplainedHead, ...]:
        """Those that count most, and the one against the answer behind them."""
        return (*self.heads, *([self.negative] if self.negative else []))

    def through_tokens(self) -> tuple[tuple[int, float], ...]:
        """What all heads add to the lead through each token, the largest first."""
        sums = [sum(column) for column in zip(*(self.by_token or {}).values(), strict=True)]
        return tuple(sorted(enumerate(sums), key=lambda item: -abs(item[1])))

    def prediction(self, token: str) -> Prediction:
        """The answer or the word that it is compared with, as it was predicted."""
        return next(word for word in self.predictions if word.token == token)

    def __repr__(self) -> str:
        heads = ", ".join(self.layout.name(head.head) for head in self.heads)
        return f"<Explain {self.source.model}, {self.answer!r} not {self.against!r}: {heads}>"
