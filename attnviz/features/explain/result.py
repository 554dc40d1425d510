"""Why a model says a word and not another: heads for it and against it, and the lead without."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from attnviz.core.heads import Head
from attnviz.core.lengths import Axes, Place
from attnviz.core.result import Result
from attnviz.core.settings import Settings, setting
from attnviz.drawing.renderable import Renderable
from attnviz.features.ablation.result import Effect
from attnviz.features.logits.result import LogitPart, Prediction
from attnviz.features.sources.result import SideSum

UNSELECTED, BLOCKED = -1, -2  # in a small map: a key that an indexer left out, or that is masked


@dataclass(frozen=True, slots=True)
class ExplainedHead:
    """One of the heads that are told about one by one.

    Attributes:
        head: which.
        vote: what it adds to the answer's lead, in logits; None where logits are no sum.
        raises: the words whose logits it raises most; empty likewise.
        weights: of the query at the explained position on every key, from the first on; of heads of
            an encoder before the decoder that predicts, the mean over all queries.
        position: of the key with the largest weight.
        tokens: the keys: of the decoder's text, or of the encoder's.
        query: the explained position; None where an encoder's queries are averaged.
        keys: the sources of that key, the largest first, of its score less the mean of all other
            keys; empty where they cannot be told.
        map: weights [T, S] in thousandths, :data:`UNSELECTED` where the layer's indexer did not
            select the key and :data:`BLOCKED` where none may be; empty for longer texts.
        effect: what happens to the answer's lead without it.
        reason: why its keys are not split; empty where they are.
    """

    head: Head
    vote: float | None
    raises: tuple[str, ...]
    weights: Annotated[tuple[float, ...], Axes("keys")]
    position: Annotated[int, Place("keys")]
    tokens: Annotated[tuple[str, ...], Axes("keys")]
    query: int | None
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


@dataclass(frozen=True, slots=True)
class EdgeShare:
    """What goes of an MLP's share where the edge from one head is ablated alone, in logits."""

    head: Head
    value: float


@dataclass(frozen=True, slots=True)
class MlpShare:
    """What an MLP adds to the lead, and how much of it hangs on what heads wrote.

    The edge from a head into an MLP is ablated by putting the head's mean output in place of its
    own in what that MLP alone reads.

    Attributes:
        layer: of the MLP.
        value: what it adds to the lead, in logits.
        by_head: of that, what goes where the edge from a head is ablated alone; of every candidate
            and voter that stands before it.
        together: the same of the edges from all of :attr:`Explain.voters` at once.
    """

    layer: int
    value: float
    by_head: tuple[EdgeShare, ...]
    together: float

    def feeders(self) -> tuple[EdgeShare, ...]:
        """Find at most three heads whose edges matter most, of a tenth of the share or more."""
        least = abs(self.value) / 10
        large = [edge for edge in self.by_head if abs(edge.value) >= least]
        return tuple(sorted(large, key=lambda edge: -abs(edge.value))[:3])


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
        candidates: the heads that were ablated by their means, each alone, to choose ``heads``: all
            of a small model, else those with the largest votes and the largest gradients.
        parts: that add up to the lead, before a cap on logits; empty where logits are no sum.
        mlps: the MLPs that add most to it or take most from it, with what of that comes through
            heads; empty where none adds a tenth of the lead, or it cannot be told.
        by_token: what each head adds to it through each token, [T] by head.
        heads: those that count most: the candidates whose ablation costs most of the lead, the
            first the most; one alone where none costs any.
        voters: the (at most) three heads with the largest votes: what a head adds to the lead
            itself; empty where none adds anything, or logits are no sum.
        beside: the voters that are not among ``heads``, likewise explained.
        negative: the head whose vote takes most from the lead (a negative head, Wang et al. 2022);
            None where none does, or logits are no sum.
        smallest: the smallest change of the lead that is of interest, in logits.
        together: what happens without all of ``heads`` at once.
        feeder: what happens without the earlier head through which most of their keys come; None
            where there is none.
        methods: what takes a head's place.
        reference: where means and other outputs come from.
        reason: why logits are no sum; empty where they are.
    """

    schema: ClassVar[str] = "attnviz.explain/3"
    command: ClassVar[str] = "explain"

    tokens: Annotated[tuple[str, ...], Axes("tokens")]
    masked: bool
    position: Annotated[int, Place("tokens")]
    predictions: tuple[Prediction, ...]
    answer: str
    against: str
    logit: float
    lead: float
    candidates: tuple[Head, ...]
    parts: tuple[LogitPart, ...]
    mlps: tuple[MlpShare, ...]
    by_token: Annotated[Mapping[Head, tuple[float, ...]] | None, Axes("", "tokens")]
    heads: Annotated[tuple[ExplainedHead, ...], Axes(least=1)]
    voters: tuple[Head, ...]
    beside: tuple[ExplainedHead, ...]
    negative: ExplainedHead | None
    together: Effect
    feeder: Effect | None
    smallest: float
    methods: Annotated[tuple[str, ...], Axes("methods", least=1)]
    reference: str
    reason: str = ""

    def __post_init__(self) -> None:
        if not {self.answer, self.against} <= {word.token for word in self.predictions}:
            raise ValueError("the answer or what it is held against is not among predictions")

    def account(self) -> tuple[tuple[str, float], ...]:
        """Name what adds up to the lead, in the model's order; empty where logits are no sum."""
        sums: dict[str, float] = {}
        for part in self.parts:
            layer = "" if part.layer is None else f" {part.layer}"
            names = {"head": "heads", "mlp": f"MLP{layer}", "mixer": f"{part.name}{layer}"}
            name = names.get(part.kind, part.kind)
            sums[name] = sums.get(name, 0.0) + part.value
        if "bias" in sums:
            sums["bias"] = sums.pop("bias")
        return tuple(sums.items())

    @property
    def by_heads(self) -> float | None:
        """What all heads together add to the lead; None where logits are no sum."""
        return dict(self.account()).get("heads")

    @property
    def moved(self) -> float:
        """The largest change of the lead without all of ``heads``, by size, over the methods."""
        return max(abs(change.change) for change in self.together.by)

    @property
    def idle(self) -> bool:
        """Whether without the heads that count most the lead hardly moves, or all add a tenth."""
        tenth = abs(self.lead) / 10
        little = self.by_heads is not None and abs(self.by_heads) < tenth
        return self.moved < max(self.smallest, tenth if little else 0.0)

    def votes(self) -> dict[Head, float]:
        """Return what every head adds to the lead; empty where logits are no sum."""
        return {head: sum(row) for head, row in (self.by_token or {}).items()}

    def find(self, name: str) -> ExplainedHead:
        """Return a head that is shown, by its name; KeyError for none."""
        for head in self.shown_heads:
            if self.layout.name(head.head) == name:
                return head
        raise KeyError(name)

    @property
    def shown_heads(self) -> tuple[ExplainedHead, ...]:
        """Those that count most, the other voters, and the one that votes most against."""
        return (*self.heads, *self.beside, *([self.negative] if self.negative else []))

    @property
    def groups(self) -> tuple[Effect, ...]:
        """What was ablated beside single heads that are shown: several at once, the feeder."""
        names = {head.effect.name for head in self.shown_heads}
        groups = (self.together, self.feeder)
        return tuple(e for e in groups if e is not None and e.name not in names)

    def through_tokens(self) -> tuple[tuple[int, float], ...]:
        """Return what all heads add to the lead through each token, the largest first."""
        sums = [sum(column) for column in zip(*(self.by_token or {}).values(), strict=True)]
        return tuple(sorted(enumerate(sums), key=lambda item: -abs(item[1])))

    def prediction(self, token: str) -> Prediction:
        """Return the answer or the word that it is compared with, as it was predicted."""
        return next(word for word in self.predictions if word.token == token)

    def __repr__(self) -> str:
        heads = ", ".join(self.layout.name(head.head) for head in self.heads)
        return f"<Explain {self.source.model}, {self.answer!r} not {self.against!r}: {heads}>"


@dataclass(frozen=True)
class ExplainSettings(Settings):
    """Which word, and over which other one."""

    answer: str | None = setting(
        None, "The word to explain.", metavar="WORD", shown="the most probable", common=True
    )
    against: str | None = setting(
        None,
        "The word to compare it with.",
        metavar="WORD",
        shown="the most probable other word",
        common=True,
    )
    seed: int = setting(0, "Seed of resample ablation and of sampling.", least=0)
