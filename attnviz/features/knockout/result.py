"""What knocking out attention changed. A figure that is not known is None and never 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from attnviz.core.heads import Head
from attnviz.core.lengths import OneOf
from attnviz.core.result import Result
from attnviz.drawing.renderable import Renderable
from attnviz.interventions.judge import Often
from attnviz.interventions.metrics import WORSE

EVERY_HEAD = "all heads"
MOST = 8  # cuts with which a text is written


@dataclass(frozen=True, slots=True)
class CutChange:
    """How much a metric changed.

    Attributes:
        value: in the typical text: the median over texts.
        low, high: of its 95 % interval over texts; None from fewer than 6 different texts.
        joint_low, joint_high: of the interval that holds together with all others of the result;
            None from fewer texts than so many cuts need.
        sure: whether it differs from 0, judged with all others; None where nothing can be said: too
            few texts, or a distance, which is never below 0.
        mean: over texts.
        mean_low, mean_high: of the 95 % interval of the mean by itself; None from fewer than 5
            texts.
        often_worse, often_better: in how many texts it is for the worse by 1 % of the metric or
            more; None for a distance, and where the metric is 0.
    """

    value: float
    low: float | None = None
    high: float | None = None
    joint_low: float | None = None
    joint_high: float | None = None
    sure: bool | None = None
    mean: float | None = None
    mean_low: float | None = None
    mean_high: float | None = None
    often_worse: Often | None = None
    often_better: Often | None = None


@dataclass(frozen=True, slots=True)
class CutEffect:
    """What cutting some edges did.

    Attributes:
        rows: the queries that were cut off: ``last``, ``all`` or a span.
        keys: what they lost: a span, ``before``, ``sink``, ``punctuation`` or ``all``.
        kind: ``all`` heads, some ``heads``, or a ``window`` of layers.
        name: ``all heads``, ``2.0``, ``3.0+3.1``, ``layers 1-3``.
        heads: in which the edges were cut.
        layer: around which a window lies; None for what is no window.
        lost: mean share of the rows' weight that was cut, over rows and heads, in the model as it
            is.
        base: the metric in the model as it is, where this cut is measured.
        change: of the metric, cut minus as it is.
        control: the same where the same rows lose as much weight from random other keys and these
            edges keep theirs; the mean of the draws. None without controls, and where none can be
            made: see ``matched``.
        matched: how much of the weight the control takes, from 0 to 1. Rows whose other keys have
            no more than the cut ones, or that have but one other, stay as they are; where that is
            more than half of the weight there is no control. None without controls.
        excess: change minus control, text by text; None where there is no control.
        texts: in how many texts there was such an edge.
        alone: share of the rows that the cut leaves with nothing but their own token.
    """

    rows: str
    keys: str
    kind: Literal["all", "heads", "window"]
    name: str
    heads: tuple[Head, ...]
    layer: int | None
    lost: float
    base: float
    change: CutChange
    control: float | None
    matched: float | None
    excess: CutChange | None
    texts: int
    alone: float = 0.0

    @property
    def isolates(self) -> bool:
        """Whether it leaves most rows with nothing but their own token."""
        return self.alone > 0.5

    @property
    def judged(self) -> CutChange:
        """What is to differ from 0: the excess over the control, where there is one."""
        return self.change if self.excess is None else self.excess

    @property
    def relative(self) -> float | None:
        """The change as a share of the metric (Geva et al. 2023); None where that is 0."""
        return self.change.value / self.base if self.base else None


@dataclass(frozen=True, slots=True)
class CutSpan:
    """A part of the texts that is cut off or lost.

    Attributes:
        name: how it was asked for.
        tokens: how many it has, a mean over the texts that have it.
        texts: how many do.
        shown: what it says, where one text says it.
    """

    name: str
    tokens: float
    texts: int
    shown: str


@dataclass(frozen=True, slots=True)
class Written:
    """What the model writes after the text while edges are cut.

    Attributes:
        rows, keys: see :class:`CutEffect`; empty for the model as it is, as for the others.
        name: of the heads.
        text: what it writes.
        control: what it writes where the rows lose as much weight from random other keys; empty for
            none.
    """

    rows: str
    keys: str
    name: str
    text: str
    control: str = ""


@dataclass(frozen=True, kw_only=True, repr=False)
class Knockout(Renderable, Result):
    """Effects of cutting attention from parts of texts to others, and how they were measured.

    Attributes:
        cut: ``mask``, ``rescale``, ``zero`` or ``redirect:NAME``.
        metric: ``loss``, ``kl``, ``logit-diff``, ``prob`` or ``log-prob``.
        unit: of the metric; empty for a probability.
        answer: the token that was asked for, where one was and it is the same in all texts.
        against: the one it is set against.
        draws: random controls of each cut.
        window: how many layers a window has; None without windows.
        clusters: how many texts are different.
        family: how many intervals hold together.
        spans: what is cut off or lost.
        effects: pair by pair; of each all heads, then heads, then windows.
        written: what the model writes, as it is and with each cut; empty unless asked for.
    """

    schema: ClassVar[str] = "attnviz.knockout/3"
    command: ClassVar[str] = "knockout"

    cut: str
    metric: Annotated[str, OneOf("loss", "kl", "logit-diff", "prob", "log-prob")]
    unit: str
    answer: str
    against: str
    draws: int
    window: int | None
    clusters: int
    family: int
    spans: tuple[CutSpan, ...]
    effects: tuple[CutEffect, ...]
    written: tuple[Written, ...] = ()

    @property
    def worse(self) -> int:
        """The sign of a change for the worse; 0 for a distance."""
        return WORSE.get(self.metric, 0)

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """Every pair of rows and keys that was cut."""
        return tuple(dict.fromkeys((effect.rows, effect.keys) for effect in self.effects))

    def of(self, rows: str, keys: str, kind: str | None = None) -> tuple[CutEffect, ...]:
        """Return the effects of a pair, of one kind or of all."""
        return tuple(
            effect
            for effect in self.effects
            if (effect.rows, effect.keys) == (rows, keys) and kind in (None, effect.kind)
        )

    def effect(self, rows: str, keys: str, name: str = EVERY_HEAD) -> CutEffect:
        """Return the effect of one cut; KeyError for none."""
        for effect in self.of(rows, keys):
            if effect.name == name:
                return effect
        raise KeyError(f"{rows} to {keys}, {name}")

    def ranked(self) -> tuple[CutEffect, ...]:
        """Return the effects, the largest first by size."""
        return tuple(sorted(self.effects, key=lambda effect: -abs(effect.judged.value)))

    def __repr__(self) -> str:
        most = ", ".join(
            f"{e.rows} to {e.keys} ({e.name}) {e.change.value:+.3g}" for e in self.ranked()[:3]
        )
        return f"<Knockout {self.source.model}, {self.metric}, {self.texts} texts: {most}>"
