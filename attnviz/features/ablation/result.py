"""What ablating heads changed. A figure that is not known is None and never 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from attnviz.core.heads import Head
from attnviz.core.lengths import Axes, OneOf
from attnviz.core.result import Result
from attnviz.core.scores import UserDefined
from attnviz.drawing.renderable import Renderable
from attnviz.interventions.judge import Often

DISTANCES = ("kl", "hidden")
"""Metrics of how far the ablated model is from the full one: 0 for that, and never below."""


LARGEST_SHARE = 0.2
"""One text that makes up more of an effect is worth a warning."""


@dataclass(frozen=True, slots=True)
class OneLess:
    """A change without one of its texts, that which moves it most.

    Attributes:
        text: its number, from 1; of a group of texts the first.
        change: without it.
    """

    text: int
    change: float


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to a metric without some heads, by one method.

    Attributes:
        method: ``zero``, ``mean`` or ``resample``.
        change: of the metric, ablated minus full: in the typical text (the median of the texts' own
            means), or their trimmed mean, or the mean over all positions.
        low, high: of its 95 % interval over texts, None for a single one.
        joint_low, joint_high: of the interval that holds together with those of all groups and
            methods of the report, 95 % of the time. None but of medians, and from fewer texts than
            such a family needs.
        worse: share of the texts that got worse; None for a distance, which is never below 0.
        sure: whether it differs from zero, judged together with all groups and methods of the
            report; None where that cannot be said: a single text, or a distance.
        largest: the share of the sum over all texts that its largest text makes; above 1 where
            others take away from it, None where there is no sum.
        detectable: the smallest effect that would have been told from 0 in 80 % of such samples;
            None where nothing can be told.
        apart: mean distance of what took the heads' place from what they hand on themselves,
            relative to its mean norm; a mean over the heads of a group.
        off: share of rows at which it is off the manifold of the head's outputs on other texts:
            farther from all of them than 95 % of real outputs are, or of a norm outside of the
            middle 95 % of theirs; None of a single text.
        one_less: what it is without a text; None unless asked for.
        mean: over all positions.
        mean_low, mean_high: of the 95 % interval of that mean by itself.
        often_worse, often_better: in how many texts it is worse, or better, by the smallest effect
            of interest or more; None without such an effect.
    """

    method: str
    change: float
    low: float | None
    high: float | None
    joint_low: float | None
    joint_high: float | None
    worse: float | None
    sure: bool | None
    largest: float | None
    detectable: float | None = None
    apart: float | None = None
    off: float | None = None
    one_less: OneLess | None = None
    mean: float | None = None
    mean_low: float | None = None
    mean_high: float | None = None
    often_worse: Often | None = None
    often_better: Often | None = None


@dataclass(frozen=True, slots=True)
class Kept:
    """What is left of an effect where heads keep their values and attend as a rule says.

    Attributes:
        method: ``rule``, ``soft-rule``, or either with ``:NAME``.
        rule: the rules of its heads, by their names.
        change: of the metric over all positions, with the rule's weights in their place.
        share: 1 - Σ change with the rule / Σ change by the first method, 1 where the rule does all
            that the heads do and 0 where it does nothing; None where the effect is not told from 0
            or is below the smallest of interest.
        low, high: of its 95 % interval over texts (Fieller 1954). None from few.
        null, null_low, null_high: what the same rows keep with their weights at positions drawn
            anew; ``null_low`` and ``null_high`` of its interval.
        explains: whether it surely keeps something, and more than its null; None where that is not
            known.
    """

    method: str
    rule: str
    change: float
    share: float | None = None
    low: float | None = None
    high: float | None = None
    null: float | None = None
    null_low: float | None = None
    null_high: float | None = None
    explains: bool | None = None


@dataclass(frozen=True, slots=True)
class Effect:
    """What happened to a metric without some heads.

    Attributes:
        name: of the group, ``5.1`` or ``3.0+3.1``.
        heads: the heads that were ablated.
        by: the change by each method, in the order that was asked for.
        verdict: by the ends of the intervals that hold together. ``needed`` where by at least two
            methods the metric is worse without the heads by no less than the smallest effect of
            interest, and by none better; ``better without`` the other way round; ``depends`` where
            that holds of one method alone, or methods contradict each other; ``worse`` or
            ``better`` where the direction is sure and the size is not; ``small`` where by all
            methods the change is below the smallest effect of interest; empty where nothing is told
            apart, neither from 0 nor from that effect. None where nothing can be said: a single
            text, a single method, a distance.
        rank: by the first method, 1 for the most harmful; None for what is no more than rounding.
        mean_share: ‖mean output‖ / mean ‖output‖ of a single head on the reference; None for
            groups, or without a reference.
        gradient: mean over texts of |∂L/∂ξ|; None for groups, or where not asked for.
        signed: mean over texts of ∂L/∂ξ.
        does: what a single head does on these texts, in words; empty for nothing in particular.
        rests: where it rests.
        members: for a group, the sum of the effects of its heads alone by the first method, where
            those were measured.
        kept: what rules keep of it, of heads that have some; empty unless asked for.
    """

    name: str
    heads: Annotated[tuple[Head, ...], Axes(least=1)]
    by: Annotated[tuple[Change, ...], Axes("methods", least=1)]
    verdict: str | None = None
    rank: int | None = None
    mean_share: float | None = None
    gradient: float | None = None
    signed: float | None = None
    does: str = ""
    rests: str = ""
    members: float | None = None
    kept: tuple[Kept, ...] = ()

    @property
    def first(self) -> Change:
        """The change by the first method."""
        return self.by[0]

    @property
    def change(self) -> float:
        """The change of the metric by the first method."""
        return self.first.change

    @property
    def low(self) -> float | None:
        """The low end of its interval by the first method."""
        return self.first.low

    @property
    def high(self) -> float | None:
        """The high end of its interval by the first method."""
        return self.first.high

    @property
    def sure(self) -> bool:
        """Whether the change by the first method surely differs from zero."""
        return bool(self.first.sure)


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The metric with so many heads ablated.

    Attributes:
        order: ``effect``, ``gradient``, ``role`` or ``random 1``, ...
        removed: how many heads.
        head: the one that went last; empty at the start.
        change: mean change of the metric.
        low, high: of its interval over texts, None for a single text.
    """

    order: str
    removed: int
    head: str
    change: float
    low: float | None
    high: float | None


def affordable_share(points: Sequence[CurvePoint], tolerance: float, worse: int) -> float | None:
    """Tell what share of heads can go, in a curve's order, before it costs more than that."""
    order = points[0].order if points else ""
    mine = [point for point in points if point.order == order]
    affordable = 0
    for point in mine:
        if point.change * worse > tolerance:
            break
        affordable = point.removed
    return affordable / mine[-1].removed if mine and mine[-1].removed else None


@dataclass(frozen=True, kw_only=True, repr=False)
class Ablation(Renderable, Result):
    """Effects of taking heads away, and how they were measured.

    Attributes:
        metric: ``loss``, ``kl``, ``logit-diff``, ``hidden`` or a user's, ``custom`` without a name.
        unit: of the metric.
        methods: what took a head's place: ``zero``, ``mean``, ``resample`` or a user's.
        method: the same in words.
        reference: where means and other outputs come from, in words; empty for zero alone.
        average: how texts were averaged: ``mean``, ``trimmed`` or ``median``.
        smallest: the smallest effect of interest, in the metric's unit; None for a distance.
        stake: what a probe's repetition is worth, of which ``smallest`` is a share: the metric
            where the same tokens repeat nothing, less the metric; None of texts, where it is a
            share of the metric.
        matched: whether what takes a head's place comes from texts in the same state alone.
        worse: +1 if more of the metric is worse, -1 if less is.
        base: the metric on the full model; 0 for a distance from it.
        low, high: of its interval.
        clusters: how many of them are independent: texts of one group count once, and so do texts
            that are the same.
        family: how many intervals hold together: groups of heads times methods.
        positions: how many positions in them counted.
        position: the tokens that alone counted, as they were asked for; empty for all of a text.
        effects: in the order that was asked for.
        correlation: Spearman's between gradient and |effect| of single heads, None where not known.
        curve: see :class:`CurvePoint`; empty unless asked for.
        tolerance: how much a curve may cost, None without a curve.
        split: which texts a curve's order is chosen on, see :mod:`attnviz.core.split`; empty
            without a curve.
        tokens: of a single text; empty for several.
        by_position: change at every token of a single text by name of the group, [T] with None
            where nothing is measured; empty unless asked for.
        user_defined: the scores, roles, metric and fills that are no part of attnviz.
    """

    schema: ClassVar[str] = "attnviz.ablate/1"
    command: ClassVar[str] = "ablate"

    metric: str
    unit: str
    methods: Annotated[tuple[str, ...], Axes("methods", least=1)]
    method: str
    reference: str
    average: Annotated[str, OneOf("mean", "trimmed", "median")]
    smallest: float | None
    worse: int
    base: float
    low: float | None
    high: float | None
    clusters: int
    family: int
    positions: int
    effects: tuple[Effect, ...]
    correlation: float | None = None
    curve: tuple[CurvePoint, ...] = ()
    split: str = ""
    tolerance: float | None = None
    tokens: tuple[str, ...] = ()
    by_position: Mapping[str, tuple[float | None, ...]] | None = None
    user_defined: tuple[UserDefined, ...] = ()
    position: str = ""
    stake: float | None = None
    matched: bool = False

    def __post_init__(self) -> None:
        for effect in self.effects:
            if tuple(change.method for change in effect.by) != self.methods:
                raise ValueError("effects.by has other methods than methods")

    @property
    def distance(self) -> bool:
        """Whether the metric is how far the ablated model is from the full one."""
        return self.metric in DISTANCES or self.smallest is None

    @property
    def single(self) -> dict[Head, Effect]:
        """The effects of heads that were ablated alone."""
        return {effect.heads[0]: effect for effect in self.effects if len(effect.heads) == 1}

    def ranked(self) -> tuple[Effect, ...]:
        """Return the effects, the most harmful first; those that are no more than rounding last."""

        def place(effect: Effect) -> tuple[bool, float]:
            return effect.rank is None, -effect.change * self.worse

        return tuple(sorted(self.effects, key=place))

    def __repr__(self) -> str:
        worst = ", ".join(f"{e.name} {e.change:+.2g}" for e in self.ranked()[:3])
        return f"<Ablation {self.source.model}, {self.metric}, {self.texts} texts: {worst}>"
