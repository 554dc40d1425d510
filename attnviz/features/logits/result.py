"""The next token and what adds up to its logit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from attnviz.core.heads import Head
from attnviz.core.lengths import Axes, OneOf, Place
from attnviz.core.result import Interval, Result
from attnviz.core.settings import POSITIONS, Settings, number_or_text, setting
from attnviz.drawing.renderable import Renderable

PartKind = Literal["embedding", "head", "mixer", "mlp", "bias"]


@dataclass(frozen=True, slots=True)
class Prediction:
    """A word at a position.

    Attributes:
        position: of the token that it follows (or, in a masked model, stands at), from 0.
        token: its text.
        id: its number in the vocabulary.
        logit: as the model gives it.
        probability: after softmax over the whole vocabulary.
        rank: from 1 for the most probable.
        mark: ``next`` for the token that does follow in the text, ``asked`` for one that was asked
            for, else empty.
    """

    position: Annotated[int, Place("tokens")]
    token: str
    id: int
    logit: float
    probability: float
    rank: int
    mark: Annotated[str, OneOf("", "next", "asked")] = ""


@dataclass(frozen=True, slots=True)
class LogitPart:
    """What one part of the model adds to the logit.

    Attributes:
        kind: ``embedding``, ``head``, ``mixer`` (what mixes tokens without attention: a layer with
            a state, a convolution), ``mlp`` or ``bias`` (b_O of a layer, and another of what its
            normalizations over the stream add; without a layer, what the last normalization and
            the LM head add by themselves).
        layer: from 0; None for what belongs to no layer.
        head: its number in the layer, for heads.
        value: in logits.
        name: of a mixer, what it is, as the model calls it; else empty.
    """

    kind: PartKind
    layer: int | None
    head: int | None
    value: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a head got from one token: its share of the attention, and of the head's vote."""

    position: int
    token: str
    weight: float
    value: float


@dataclass(frozen=True, slots=True)
class HeadAttribution:
    """One of the strongest heads.

    Attributes:
        head: which.
        value: what it adds to the logit.
        seen: the tokens through which it does so, the strongest first.
        raises: the words whose logits it raises most, against the mean of the vocabulary.
        lowers: those it lowers most.
    """

    head: Head
    value: float
    seen: Annotated[tuple[Seen, ...], Axes(least=1)]
    raises: tuple[str, ...]
    lowers: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, repr=False)
class Logits(Renderable, Result):
    """Predictions, and one logit (or a difference of two) split into what adds up to it.

    Attributes:
        tokens: of the text.
        position: whose logit is split; the last of those that were asked for.
        predictions: by position, the most probable first, then what was asked for and what follows.
        token: whose logit is split.
        against: the token whose logit is taken off; empty for none.
        logit: as the model gives it.
        uncapped: the same before the cap, of a model that caps its logits, which is what the parts
            add up to; None where there is no cap.
        cap: c, where logits are c tanh(x / c) of the uncapped x; None where there is no cap.
        sum: of the parts; None where there are none.
        parts: embeddings, then layer by layer heads, bias, mixer and MLP, then the last bias.
        votes: the strongest heads, by size.
        by_token: what each head adds through each token of the text, [T] by head.
        reason: why there are no parts; empty where there are.
    """

    schema: ClassVar[str] = "attnviz.logits/1"
    command: ClassVar[str] = "logits"

    tokens: Annotated[tuple[str, ...], Axes("tokens")]
    position: Annotated[int, Place("tokens")]
    predictions: tuple[Prediction, ...]
    token: str
    against: str
    logit: float
    uncapped: float | None = None
    cap: float | None = None
    sum: float | None = None
    parts: tuple[LogitPart, ...] = ()
    votes: tuple[HeadAttribution, ...] = ()
    by_token: Annotated[Mapping[Head, tuple[float, ...]] | None, Axes("", "tokens")] = None
    reason: str = ""

    def __post_init__(self) -> None:
        count = sum(part.kind == "head" for part in self.parts)
        if count not in (0, len(self.layout)):
            raise ValueError(f"parts of {count} heads, and the layout has {len(self.layout)}")

    @property
    def whole(self) -> float:
        """What the parts are to add up to: the logit, before its cap where there is one."""
        return self.logit if self.uncapped is None else self.uncapped

    def heads(self) -> dict[Head, float]:
        """Return what every head adds."""
        values = [part.value for part in self.parts if part.kind == "head"]
        return dict(zip(self.layout, values, strict=True)) if values else {}

    def __repr__(self) -> str:
        votes = ", ".join(f"{self.layout.name(v.head)} {v.value:+.2g}" for v in self.votes[:3])
        minus = f" against {self.against!r}" if self.against else ""
        return f"<Logits {self.source.model}, {self.token!r}{minus} {self.logit:.2f}: {votes}>"

    def _picture_png(self) -> bytes | None:
        return self.to_bytes("png") if self.parts else None


JUDGED = ("head", "mixer", "mlp")
"""Parts that may push an answer up or down; embeddings and biases only close the sum."""


@dataclass(frozen=True, slots=True)
class Suppression:
    """Whether a canceller is copy suppression: it lowers a token that earlier layers predict.

    Attributes:
        texts: those in which it pushes down, which the first four shares are of.
        predicted: in which the token that it reads most (weight times the norm of what it moves)
            is among the first words of the stream that enters its layer, read as if it were the
            last; ``predicted_others`` the same of the text's other tokens.
        predicted_others: see ``predicted``.
        lowered: in which what it moves from there lowers that token among the first; likewise.
        lowered_others: see ``lowered``.
        gone: the share of its push, over all texts, that goes when what ``writers`` hand on at the
            query is replaced by its mean over the other texts; None where nothing can be compared.
        gone_others: the same of ``others`` heads below it, drawn at random.
        writers: the heads below it that push up.
        others: see ``gone_others``.
        fails: what does not hold of ``reading``, ``lowering`` and ``path``: that the share is at
            least one half, and surely above that beside it. It is copy suppression where nothing
            fails.
    """

    texts: int
    predicted: Interval
    predicted_others: Interval
    lowered: Interval
    lowered_others: Interval
    gone: Interval
    gone_others: Interval
    writers: tuple[str, ...]
    others: int
    fails: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Repair:
    """What changes without a writer, its mean over the other texts in its place: a sum.

    Attributes:
        total: of the model's own logit, the sum of the others and ``rest``; means over texts.
        direct: of what the head itself adds.
        heads: of what all other heads add, by the scales of the unchanged run.
        mlps: the same of MLPs and mixers.
        scales: what the change of normalizations' scales adds.
        rest: rounding.
        by_part: each other head, mixer and MLP that changes.
    """

    total: Interval
    direct: Interval
    heads: Interval
    mlps: Interval
    scales: Interval
    rest: float
    by_part: Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class Push:
    """What one head, MLP or mixer adds to the logits of answers over many texts.

    Attributes:
        part: what it is called: ``3.0``, ``MLP 2``.
        kind: as of a :class:`LogitPart`, as the next ones.
        layer: from 0.
        head: its number in the layer, for heads.
        mean: over texts, in logits, with its own 95 % interval.
        share: in how many of the texts it has the sign of its mean; None where it adds nothing.
        adjusted: how likely so uneven a share is where both signs are as likely (two-sided sign
            test, Holm over all parts); None where it adds nothing.
        verdict: ``writer`` or ``canceller`` where ``adjusted`` is below 0.05, most texts have the
            mean's sign, and the mean's interval, if there is one, leaves out 0; else empty.
        why: of the largest cancellers among heads, whether they are copy suppression.
        repair: of the largest writers among heads, what others make up for.
    """

    part: str
    kind: PartKind
    layer: int | None
    head: int | None
    mean: Interval
    share: float | None
    adjusted: float | None
    verdict: Annotated[str, OneOf("", "writer", "canceller")] = ""
    why: Suppression | None = None
    repair: Repair | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Writers(Renderable, Result):
    """What pushes the logits of answers up over many texts, and what pushes them down.

    Attributes:
        of: what is split, in words.
        logit: the mean of what all parts add up to.
        rest: the mean of what embeddings and biases add, which are not judged.
        pushes: heads, mixers and MLPs, layer by layer.
    """

    schema: ClassVar[str] = "attnviz.writers/1"
    command: ClassVar[str] = "logits of texts"

    of: str
    logit: float
    rest: float
    pushes: tuple[Push, ...]

    def listed(self, verdict: str) -> list[Push]:
        """Return the parts of a verdict, the largest first."""
        pushes = [push for push in self.pushes if push.verdict == verdict]
        return sorted(pushes, key=lambda push: -abs(push.mean.value or 0.0))

    def heads(self) -> dict[str, Push]:
        """Every head, by its name."""
        return {push.part: push for push in self.pushes if push.kind == "head"}

    def __repr__(self) -> str:
        names = [[push.part for push in self.listed(v)[:3]] for v in ("writer", "canceller")]
        return f"<Writers {self.source.model}, {self.of}: up {names[0]}, down {names[1]}>"


@dataclass(frozen=True)
class LogitsSettings(Settings):
    """Which word's logit is split, and where."""

    answer: str | None = setting(
        None,
        "The word whose logit is split. Or field:NAME, a field of {texts} with one for each.",
        metavar="WORD",
        shown="the most probable",
        common=True,
    )
    against: str | None = setting(
        None,
        "The competing word, whose logit is subtracted. Or field:NAME, as for {answer}.",
        metavar="WORD",
        common=True,
    )
    position: str | int | None = setting(
        None,
        f"Predict after these tokens, or all. {POSITIONS} In masked models the word stands at "
        "them. The last of several is the one whose logit is split.",
        metavar="TOKENS|all",
        shown="the last, or every mask",
        parser=number_or_text,
        common=True,
    )
    predictions: int = setting(
        5, "Number of predictions to list at a position.", least=1, most=1000
    )
