"""What was found about the sentences of reasoning traces. What is not known is None, never 0."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from attnviz.core.heads import Head
from attnviz.core.lengths import Axes
from attnviz.core.result import Result
from attnviz.core.settings import Settings, setting
from attnviz.drawing.renderable import Renderable

Matrix = tuple[tuple[float | None, ...], ...]  # from the sentence of the line to that of the column
Part = Literal["text", "thought", "answer"]
RECEIVERS = 5
"""Of so many heads matrices are kept: receiver heads, or those of the largest kurtosis."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a trace.

    Attributes:
        name: of the span that it is, where the trace was split by spans; else empty.
        text: what it says.
        start: its first token.
        stop: the token after its last.
        part: ``thought`` between think tags, ``answer`` after them, ``text`` where there are none.
    """

    name: str
    text: str
    start: int
    stop: int
    part: Part


@dataclass(frozen=True, slots=True)
class SentenceMatrix:
    """What a head does from sentence to sentence.

    Attributes:
        head: which.
        matrix: mean weight from the tokens of a later sentence to those of an earlier one.
    """

    head: Head
    matrix: Annotated[Matrix, Axes("sentences", "sentences")]


@dataclass(frozen=True, slots=True)
class TraceHead:
    """A head on one trace.

    Attributes:
        head: which.
        kurtosis: of its vertical scores; None where these are too few or all the same.
        control: the same of the sentences in random order, a mean of the draws.
        vertical: by sentence, the mean weight on it from sentences at least ``apart`` later; None
            where there are none.
    """

    head: Head
    kurtosis: float | None
    control: float | None
    vertical: Annotated[tuple[float | None, ...], Axes("sentences")]


@dataclass(frozen=True, slots=True)
class Continuation:
    """What the model wrote in place of a sentence and of all that follow up to the answer.

    Attributes:
        log_p: of the trace's answer behind it, natural logarithm of its probability.
        same: whether it begins with the very sentence.
    """

    log_p: float
    same: bool


@dataclass(frozen=True, slots=True)
class Resampled:
    """A sentence that was written anew.

    Attributes:
        continuations: from before it; none where nothing stands before it.
        effect: mean log_p of the continuations from behind it (of the last sentence before the
            answer: log_p of the trace itself), minus that of these.
        joint_low, joint_high: of the 95 % interval that holds for all sentences of the trace
            together; None from fewer than 5 continuations, or where all are the same.
    """

    continuations: tuple[Continuation, ...]
    effect: float | None
    joint_low: float | None = None
    joint_high: float | None = None

    @property
    def sure(self) -> bool | None:
        """Whether the interval leaves out 0; None where there is none."""
        if self.joint_low is None or self.joint_high is None:
            return None
        return self.joint_low > 0 or self.joint_high < 0


@dataclass(frozen=True, slots=True)
class Trace:
    """A reasoning trace of n sentences.

    Attributes:
        tokens: how many it has, with what stands before its sentences.
        written: how many of them the model wrote itself.
        sentences: in their order.
        attention: [n, n], mean weight from the tokens of the sentence of the line to those of the
            column, a mean over all heads; None where that is not earlier.
        receivers: the same of single heads: those of :attr:`Thoughts.receivers` with the largest
            kurtosis, or where there are none those with the largest of all.
        heads: all of them, in the order of the layout.
        log_kl: [n, n], where attention to the sentence of the column is suppressed in all heads:
            mean over the tokens of that of the line of log KL(as it is ‖ suppressed), natural
            logarithms; None where that is not later. Empty where it was not measured.
        resampled: the sentences before the answer, written anew. Empty where they were not.
    """

    tokens: int
    written: int
    sentences: Annotated[tuple[Sentence, ...], Axes("sentences", least=2)]
    attention: Annotated[Matrix, Axes("sentences", "sentences")]
    receivers: tuple[SentenceMatrix, ...]
    heads: Annotated[tuple[TraceHead, ...], Axes("heads")]
    log_kl: Annotated[Matrix, Axes("sentences", "sentences", absent=True)] = ()
    resampled: tuple[Resampled, ...] = ()

    @property
    def effects(self) -> Matrix:
        """[n, n], log KL minus its mean over all sentences before that of the line."""
        return tuple(map(_centred, self.log_kl))

    def importance(self, apart: int) -> tuple[float | None, ...]:
        """[n], the mean effect of each sentence on those at least ``apart`` later."""
        columns = _columns(self.effects, len(self.sentences))
        return tuple(_mean(column[n + apart :]) for n, column in enumerate(columns))

    @property
    def anew(self) -> tuple[Resampled | None, ...]:
        """[n], every sentence as it was written anew; None for those of the answer."""
        of_answer = len(self.sentences) - len(self.resampled)
        return (*self.resampled, *(None,) * of_answer)

    @property
    def answer(self) -> str:
        """What is asked of every continuation: the sentences of the answer."""
        return " ".join(sentence.text for sentence in self.sentences[len(self.resampled) :])

    @property
    def read(self) -> tuple[float | None, ...]:
        """[n], the mean vertical score of each sentence over :attr:`receivers`."""
        chosen = {receiver.head for receiver in self.receivers}
        rows = [head.vertical for head in self.heads if head.head in chosen]
        return tuple(map(_mean, _columns(rows, len(self.sentences))))

    def feeds(self, sentence: int, most: int = 2) -> tuple[tuple[int, float], ...]:
        """Give sentences whose suppression moves one most, beyond the mean of those before it."""
        row = self.effects[sentence] if self.log_kl else ()
        positive = [(n, value) for n, value in enumerate(row) if value is not None and value > 0]
        return tuple(sorted(positive, key=lambda pair: -pair[1])[:most])


@dataclass(frozen=True, slots=True)
class ReceiverHead:
    """A head over all traces.

    Attributes:
        head: which.
        kurtosis: the mean over traces of the excess kurtosis of its vertical scores; None where
            none is known.
        control: the same of the sentences in random order; None without controls.
        excess: kurtosis minus control in the typical trace, the median over traces.
        joint_low, joint_high: of the 95 % interval of the excess that holds for all heads together;
            None from fewer traces than so many heads need.
        sure: whether the excess is above 0, judged with all heads; None where nothing can be said.
    """

    head: Head
    kurtosis: float | None
    control: float | None = None
    excess: float | None = None
    joint_low: float | None = None
    joint_high: float | None = None
    sure: bool | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class Thoughts(Renderable, Result):
    """What later sentences of reasoning traces read, and what they need.

    Attributes:
        apart: from how many sentences on a later one counts for vertical scores.
        draws: random orders of each trace that controls are from.
        clusters: how many traces are different.
        reliability: the correlation over heads of kurtoses of one half of the traces with those of
            the other, a mean over random halves; None from fewer than 2 different traces.
        heads: all of them, in the order of the layout.
        traces: in their order.
    """

    schema: ClassVar[str] = "attnviz.thoughts/1"
    command: ClassVar[str] = "thoughts"
    indent: ClassVar[int | None] = None

    apart: int
    draws: int
    clusters: int
    reliability: float | None
    heads: Annotated[tuple[ReceiverHead, ...], Axes("heads", least=1)]
    traces: Annotated[tuple[Trace, ...], Axes(least=1)]

    @property
    def causal(self) -> bool:
        """Whether attention was suppressed."""
        return bool(self.traces[0].log_kl)

    @property
    def resampled(self) -> int:
        """How many continuations each sentence has; 0 where none was written anew."""
        return max(
            (len(row.continuations) for trace in self.traces for row in trace.resampled), default=0
        )

    @property
    def receivers(self) -> tuple[ReceiverHead, ...]:
        """The heads that may be called so: kurtosis surely above control, the largest first."""
        return tuple(head for head in self.ranked() if head.sure)

    def ranked(self) -> tuple[ReceiverHead, ...]:
        """Return the heads whose kurtosis is known, the largest first."""
        measured = [head for head in self.heads if head.kurtosis is not None]
        return tuple(sorted(measured, key=lambda head: -(head.kurtosis or 0.0)))

    def head(self, name: str) -> ReceiverHead:
        """Return a head by its name, such as ``2.0``; KeyError for none."""
        for head in self.heads:
            if self.layout.name(head.head) == name:
                return head
        raise KeyError(name)

    def __repr__(self) -> str:
        largest = ", ".join(
            f"{self.layout.name(head.head)} {head.kurtosis:.3g}" for head in self.ranked()[:3]
        )
        return f"<Thoughts {self.source.model}, {self.texts} traces, kurtosis: {largest or 'none'}>"


def _centred(row: Sequence[float | None]) -> tuple[float | None, ...]:
    mean = _mean(row)
    return tuple(None if value is None or mean is None else value - mean for value in row)


def _mean(values: Iterable[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) / len(present) if present else None


def _columns(rows: Sequence[Sequence[float | None]], width: int) -> list[tuple[float | None, ...]]:
    """Return the columns of a matrix that may have no lines."""
    return [tuple(row[n] for row in rows) for n in range(width)]


APART = 4
"""Sentences from one to the first that counts as later (Bogdan et al. 2025)."""


@dataclass(frozen=True)
class ThoughtsSettings(Settings, panel="Sentences"):
    """Which sentences count as later, and what is measured beside attention."""

    apart: int = setting(
        APART,
        "Vertical scores are from sentences at least N later.",
        least=1,
        most=10_000,
        command=False,
    )
    suppress: bool = setting(
        True,
        "Measure attention alone, and not also what the model says with attention to each sentence "
        "suppressed for all that follows.",
        shown="",
        common=True,
    )
    draws: int = setting(
        3,
        "Controls of receiver heads: the same sentences in random order; 0 for none.",
        least=0,
        most=1000,
    )
    resample: int = setting(
        0,
        "Regenerate each sentence N times: how much less likely is the answer?",
        least=0,
        most=1000,
        metavar="N",
        common=True,
    )
    seed: int = setting(0, "Seed of random orders, halves and continuations.", least=0)
    batch_tokens: int | None = setting(
        None, "Largest number of tokens run at once.", least=1, shown="by memory"
    )
