"""Weights of heads on named parts of texts. A figure that is not known is None and never 0."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from attnviz.captures.settings import MapSettings
from attnviz.core.heads import Head
from attnviz.core.lengths import Axes, OneOf
from attnviz.core.quantities import QUANTITIES
from attnviz.core.result import Interval, Result
from attnviz.core.settings import Settings, like, named_fields, setting
from attnviz.core.spans import ELSEWHERE
from attnviz.core.split import Judged
from attnviz.corpus.gold.settings import GoldSettings
from attnviz.drawing.renderable import Renderable
from attnviz.errors import UsageError

RIGHT, DISTRACTORS, QUESTION, ANSWER = "right", "distractors", "question", "answer"
"""The spans of an example with documents."""


@dataclass(frozen=True, slots=True)
class NamedSpan:
    """A span over all texts.

    Attributes:
        name: of it.
        texts: how many texts have it.
        tokens: of it in a text, the mean.
        shown: what it is in the first of these.
    """

    name: str
    texts: int
    tokens: float
    shown: str


LEAST_LIFT = 2.0
"""Twice chance: a convention, that of most roles, for texts too few to say what noise is."""


@dataclass(frozen=True, slots=True)
class SpanShare:
    """The share of a head's weight on a span, over the rows that may attend to any of it.

    Attributes:
        mean: of the rows; None where there is none.
        chance: the same of uniform attention: the span's share of the keys that a row may attend
            to.
        lift: mean / chance.
        per_token: the mean weight of one of its tokens.
        rows: how many rows.
        low, high: of the mean's 95 % interval over texts, this head's and span's alone; None from
            fewer than five texts or where none differ.
        joint_low, joint_high: of the interval that holds together with those of all heads and
            spans, 95 % of the time.
        sure: whether it differs from chance in the family of all heads and spans; None where
            nothing can be said.
    """

    mean: float | None
    chance: float | None
    lift: float | None
    per_token: float | None
    rows: int
    low: float | None = None
    high: float | None = None
    joint_low: float | None = None
    joint_high: float | None = None
    sure: bool | None = None

    @property
    def stands_out(self) -> bool:
        """Say whether it is surely more than chance, or without an interval by LEAST_LIFT."""
        if self.lift is None or self.lift <= 1:
            return False
        return self.lift >= LEAST_LIFT if self.sure is None else self.sure


@dataclass(frozen=True, slots=True)
class SpanWeights:
    """One head.

    Attributes:
        head: which.
        shares: of each span, and of the tokens in none.
        matrix: mean weight from the rows of each span (and of the tokens in none) to each; None
            where no row may attend to any of it.
    """

    head: Head
    shares: Annotated[tuple[SpanShare, ...], Axes("spans")]
    matrix: Annotated[tuple[tuple[float | None, ...], ...], Axes("spans", "spans")]


WORDS = "all words"  # rows: every token of a text that is neither special nor of a picture


@dataclass(frozen=True, slots=True)
class HeadGaze:
    """How a head looks at a box.

    Attributes:
        share: of its weight on the picture, what is on the box; None where none reaches it.
        chance: the box's share of the picture's tokens that the rows may attend to.
        lift: share / chance.
        on_picture: the mean weight of a row on the whole picture.
        low, high: of the share's 95 % interval over pictures (texts about one belong together);
            None from fewer than five, or where none differ.
    """

    share: float | None
    chance: float | None
    lift: float | None
    on_picture: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class Gaze:
    """The weight that some text gives to a box, see :mod:`~attnviz.features.spans.measure`.

    Attributes:
        box: the name of the span.
        rows: the name of the span that looks, or :data:`WORDS`.
        count: how many rows these are, in all texts.
        heads: in the order of those of the result.
    """

    box: str
    rows: str
    count: int
    heads: Annotated[tuple[HeadGaze, ...], Axes("heads")]


@dataclass(frozen=True, slots=True)
class DocumentChoice:
    """How often a head's weight is on the right document.

    Attributes:
        head: which.
        accuracy: on the examples that it was not chosen on, or on all where that was asked for.
        where_chosen: on those by which heads are ranked.
        margin: accuracy minus that of the baseline, on the same examples.
    """

    head: Head
    accuracy: Interval
    where_chosen: float
    margin: Interval


@dataclass(frozen=True, slots=True)
class DocumentRule:
    """How often a rule without attention takes the right document.

    Attributes:
        name: ``first``, ``last``, ``longest``, ``question`` or ``answer``: the document with most
            words of it.
        accuracy, where_chosen: where heads are measured; ``where_chosen`` where they are ranked.
    """

    name: str
    accuracy: Interval
    where_chosen: float


@dataclass(frozen=True, slots=True)
class DocumentSheet(Judged):
    """Which heads attend to the right one of several documents.

    A head takes the document whose tokens have the most weight on average.

    Attributes:
        examples, skipped: how many; ``skipped`` those that could not be used, by reason.
        documents: in an example, the mean.
        chance: how often a document that is drawn is the right one.
        split: ``halves`` where heads and the baseline are chosen on one half of the examples and
            measured on the other, ``all`` where both is done on everything.
        rules: without attention, see :class:`DocumentRule`.
        baseline: the best of them where heads are chosen.
        ranked: all heads, those that are right most often where heads are chosen first.
        sure: the heads that beat chance and the baseline on held-out examples, by Holm's correction
            over all heads.
    """

    examples: int
    skipped: Mapping[str, int]
    documents: float
    chance: float
    split: str
    rules: tuple[DocumentRule, ...]
    baseline: str
    ranked: Annotated[tuple[DocumentChoice, ...], Axes(least=1)]
    sure: tuple[Head, ...] = ()
    unit = "examples"

    @property
    def best(self) -> DocumentChoice:
        """The chosen head."""
        return self.ranked[0]

    @property
    def rival(self) -> DocumentRule:
        """The chosen baseline."""
        return next(rule for rule in self.rules if rule.name == self.baseline)


@dataclass(frozen=True, kw_only=True, repr=False)
class Spans(Renderable, Result):
    """How much of their weight heads give to named parts of texts.

    Attributes:
        rows: whose weight: ``last`` for the last token's, ``all``, or the name of a span.
        quantity: what was measured, a name of :data:`attnviz.core.quantities.QUANTITIES`; all but
            weights with rows divided by their sums.
        spans: in the order in which they were named, and the tokens in none of them.
        heads: what each does.
        gazes: how they look at spans that are boxes of a picture.
        documents: which of them find the right document, where there are several.
    """

    schema: ClassVar[str] = "attnviz.spans/1"
    command: ClassVar[str] = "spans"

    @property
    def divided(self) -> str:
        """Which examples heads were chosen on."""
        return "" if self.documents is None else self.documents.split

    rows: str
    quantity: Annotated[str, OneOf(*QUANTITIES)]
    spans: Annotated[tuple[NamedSpan, ...], Axes("spans", least=1)]
    heads: Annotated[tuple[SpanWeights, ...], Axes("heads")]
    documents: DocumentSheet | None = None
    gazes: tuple[Gaze, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Of the spans, in the order of shares and matrices."""
        return tuple(span.name for span in self.spans)

    @property
    def family(self) -> int:
        """How many intervals hold together: heads times spans; 0 without any."""
        return sum(share.joint_low is not None for head in self.heads for share in head.shares)

    def ranked(self, keys: str | None = None) -> list[tuple[SpanWeights, str, SpanShare]]:
        """Heads and spans, the largest lift first."""
        triples = [
            (head, name, share)
            for head in self.heads
            for name, share in zip(self.names, head.shares, strict=True)
            if name == keys or (keys is None and name != ELSEWHERE)
        ]
        return sorted(triples, key=lambda triple: -(triple[2].lift or 0.0))

    def looks(self, keys: str | None = None) -> list[tuple[Head, Gaze, HeadGaze]]:
        """Heads and how they look at boxes, the largest lift first."""
        looks = [
            (weights.head, gaze, look)
            for gaze in self.gazes
            if keys in (None, gaze.box)
            for weights, look in zip(self.heads, gaze.heads, strict=True)
        ]
        return sorted(looks, key=lambda look: -(look[2].lift or 0.0))

    def __repr__(self) -> str:
        best = self.ranked()[:1]
        strongest = "".join(
            f", most above chance {self.layout.name(head.head)} on {name!r}"
            for head, name, _ in best
        )
        return f"<Spans {self.source.model}, {len(self.spans) - 1} spans{strongest}>"


DOCUMENTS = "Documents (TEXT is a .jsonl file)"
FIELDS = ("question", "context", "gold", "answer")


@dataclass(frozen=True)
class SpansSettings(Settings):
    """Whose weight is measured, and of what."""

    rows: str | None = setting(
        None,
        "Query tokens to measure from: last, all, or a span. That is, the last token's, every "
        "token's, or that of a named part.",
        metavar="ROWS",
        shown="last; of documents, answer",
        common=True,
    )
    quantity: str = like(MapSettings, "quantity")


@dataclass(frozen=True)
class DocumentSettings(GoldSettings):
    """Which fields of a file of questions are what, and how heads are chosen."""

    fields: Mapping[str, str] | None = setting(
        None,
        "The fields of a file of questions. As question=FIELD, context=FIELD (the right document, "
        "or a list of them), answer=FIELD, and gold=FIELD, the number of the right one, from 0 "
        "(by default the first is right).",
        panel=DOCUMENTS,
        metavar="NAME=FIELD,...",
        parser=named_fields(*FIELDS),
        typed=str,
        shown="",
        common=True,
    )
    distractors: int = setting(
        3,
        "Number of documents from other lines to put beside a single one.",
        panel=DOCUMENTS,
        least=1,
        most=1000,
    )
    split: str = like(GoldSettings, "split", panel=DOCUMENTS, common=False)
    strict: bool = like(GoldSettings, "strict", panel=DOCUMENTS)
    seed: int = setting(0, "Seed of the documents that are drawn.", least=0, most=(1 << 63) - 1)

    def check(self) -> None:
        """Raise UsageError for no such split, or a field that means nothing here."""
        super().check()
        for name in self.fields or {}:
            if name not in FIELDS:
                raise UsageError("{fields} takes {}, not {!r}", ", ".join(FIELDS), name, fields=...)

    def _field(self, name: str) -> str:
        return (self.fields or {}).get(name, name)

    @property
    def question(self) -> str:
        """The field with the question."""
        return self._field("question")

    @property
    def context(self) -> str:
        """The field with the right document, or a list of documents."""
        return self._field("context")

    @property
    def answer(self) -> str:
        """The field with the answer."""
        return self._field("answer")

    @property
    def gold(self) -> str | None:
        """The field with the number of the right document in the list."""
        return (self.fields or {}).get("gold")
