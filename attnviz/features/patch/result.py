"""What patching found. A figure that is not known is None and never 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, get_args

from attnviz.core.heads import Head, Layout
from attnviz.core.lengths import OneOf
from attnviz.core.result import Result
from attnviz.core.scores import UserDefined
from attnviz.drawing.renderable import Renderable
from attnviz.interventions.judge import Often

Direction = Literal["denoise", "noise"]
Side = Literal["q", "k", "v", "logits"]
DIRECTIONS: tuple[Direction, ...] = ("denoise", "noise")
Component = Literal["z", "q", "k", "v", "pattern", "gate", "attention", "mlp", "residual"]


@dataclass(frozen=True, slots=True)
class PatchShare:
    """What a patch does, as a share of what there is to do.

    Attributes:
        raw: the metric's mean change over pairs: patched - corrupted for denoising, clean - patched
            for noising.
        share: Σ of that over pairs / Σ (clean - corrupted).
        low, high: of its 95 % interval over pairs; None from fewer than 5 independent pairs.
        typical: the share in the typical pair: the median over pairs of each one's own.
        joint_low, joint_high: of the interval of that which holds together with all others of the
            result; None from fewer pairs than so many need.
        detectable: the typical share that would have been told from 0 in 80 % of such samples, with
            all others.
        often_above, often_below: in how many pairs its own share is 1 % or more; None where that
            was not asked of single pairs. ``often_below`` where it is -1 % or less.
    """

    raw: float
    share: float
    low: float | None = None
    high: float | None = None
    typical: float | None = None
    joint_low: float | None = None
    joint_high: float | None = None
    detectable: float | None = None
    often_above: Often | None = None
    often_below: Often | None = None

    @property
    def sure(self) -> bool:
        """Whether it differs from 0 in the typical pair, judged together with all others."""
        low, high = self.joint_low, self.joint_high
        return low is not None and high is not None and (low > 0 or high < 0)


class _BothWays:
    """What was measured by denoising, by noising, or both."""

    __slots__ = ()
    denoise: PatchShare | None
    noise: PatchShare | None

    def of(self, direction: Direction) -> PatchShare | None:
        """By direction."""
        return self.denoise if direction == "denoise" else self.noise

    @property
    def shares(self) -> dict[Direction, PatchShare]:
        """By direction, of those that were asked for."""
        both = ((direction, self.of(direction)) for direction in DIRECTIONS)
        return {direction: share for direction, share in both if share is not None}

    @property
    def first(self) -> PatchShare:
        """Denoising, or noising where that alone was asked for."""
        share = self.denoise or self.noise
        assert share is not None
        return share


@dataclass(frozen=True, slots=True)
class PatchEffect(_BothWays):
    """What patching one thing does.

    Attributes:
        name: ``2.0``, ``2.0+2.4``, ``keys of 2.0+2.1``, ``attention 2``, ``MLP 2``, ``residual 2``.
        heads: those whose values are patched; none for MLPs and residual states.
        layer: its first layer; the number of layers for the last residual states.
        position: of the run that is patched, from 0; None for all that were asked for.
        denoise: clean values into the corrupted run; None where it was not asked for.
        noise: corrupted values into the clean run; None likewise.
        estimate: attribution patching's estimate of ``denoise``, None where it was not taken.
    """

    name: str
    heads: tuple[Head, ...]
    layer: int
    position: int | None = None
    denoise: PatchShare | None = None
    noise: PatchShare | None = None
    estimate: float | None = None


@dataclass(frozen=True, slots=True)
class PathEffect(_BothWays):
    """What one head's difference does through one input of another, or straight to the logits.

    Attributes:
        sender: whose difference goes in.
        receivers: the head that reads it, of shared keys and values all that do; none for logits.
        side: which input; ``logits`` for none.
        denoise: the clean difference in the corrupted run; None where it was not asked for.
        noise: the corrupted difference in the clean run; None likewise.
        estimate: EAP's estimate of ``denoise``, None where it was not taken.
    """

    sender: Head
    receivers: tuple[Head, ...]
    side: Side
    denoise: PatchShare | None = None
    noise: PatchShare | None = None
    estimate: float | None = None
    position: ClassVar[None] = None  # a path is of all positions

    @property
    def heads(self) -> tuple[Head, ...]:
        """The sender, and the receivers."""
        return (self.sender, *self.receivers)

    @property
    def layer(self) -> int:
        """The sender's."""
        return self.sender.layer

    def name(self, layout: Layout) -> str:
        """``1.4 -> 2.0.k``."""
        into = f"{'+'.join(map(layout.name, self.receivers))}.{self.side}"
        return f"{layout.name(self.sender)} -> {into if self.receivers else 'logits'}"


@dataclass(frozen=True, slots=True)
class Member:
    """A head of a circuit.

    Attributes:
        head: which.
        denoise: what it restores alone, on the pairs that the circuit was found on.
        noise: what it removes alone, on the same.
        minimal: how much less faithful the circuit is without it, on the other pairs.
        often: share of the resamples in which it is a member.
        role: what it does on the clean prompts, a name of :mod:`attnviz.scoring.roles`; may be
            empty.
        pattern: its weights on the first clean prompt, row by row, to three decimals; empty for
            long prompts.
    """

    head: Head
    denoise: float
    noise: float
    minimal: PatchShare
    often: float
    role: str = ""
    pattern: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Link:
    """An edge of a circuit: measured on the pairs that it was not found on.

    Attributes:
        edge: the path, MLPs between free.
        often: share of the resamples in which it is an edge of the circuit.
    """

    edge: PathEffect
    often: float


@dataclass(frozen=True, slots=True)
class Size:
    """A step of the curve of faithfulness by size.

    Attributes:
        heads: how many, the most important first.
        head: the one that came last; None for no head at all.
        faithful: with all others corrupted, on the pairs that the order was not found on.
        found: the same on those that it was found on.
    """

    heads: int
    head: Head | None
    faithful: PatchShare
    found: float


@dataclass(frozen=True, slots=True)
class Greedy:
    """A second circuit, chosen by what heads do together and not by what each does alone.

    From the first of the ranking, twice as many as the circuit has, the head is left out without
    which faithfulness comes nearest to 1, again and again, on the pairs that circuits are found on.

    Attributes:
        heads: that are left, in the order of the ranking.
        faithful: of them, on the other pairs.
    """

    heads: tuple[Head, ...]
    faithful: PatchShare


@dataclass(frozen=True, slots=True)
class Circuit:
    """Heads that do the task, found on one half of the pairs and judged on the other.

    With m(C) the metric of the clean run with every head outside of C as in the corrupted run:

    Attributes:
        members: in the order of their importance.
        links: edges between members and to the logits, the strongest first.
        split: which pairs it was found on, see :mod:`attnviz.core.split`.
        found_on: pairs that it was found on.
        judged_on: pairs that it was judged on.
        chosen: how its size was chosen, ``size`` or ``faithful``.
        enough: whether a circuit of this size is as near to faithfulness 1 as was asked for, where
            it was found; True where a number of heads was asked for.
        full: m(full), the metric itself over the judged pairs.
        empty: m(∅); m(C) is this and ``faithful.raw``.
        faithful: (m(C) - m(∅)) / (m(full) - m(∅)).
        faithful_mean: the same with the others' outputs replaced by their mean; None where means
            of all heads change nothing for sure.
        complete: the same of all heads but C: near 0 where nothing else does the task.
        curve: faithfulness by size.
        greedy: the circuit that another way of choosing gives.
        random: faithfulness of random circuits of the same size, drawn alike from all heads.
        random_outside: the same, drawn from heads that are no members; empty where there are fewer
            of these than members.
        least: share that an edge restores or removes at least, where it was found.
        resamples: of the pairs that it was found on.
        overlap: mean Jaccard index of the members with those of each resample.
        means: what means are over: ``positions`` or ``tokens``.
    """

    members: tuple[Member, ...]
    links: tuple[Link, ...]
    split: str
    found_on: int
    judged_on: int
    chosen: str
    enough: bool
    full: float
    empty: float
    faithful: PatchShare
    faithful_mean: PatchShare | None
    complete: PatchShare
    curve: tuple[Size, ...]
    greedy: Greedy
    random: tuple[float, ...]
    random_outside: tuple[float, ...]
    least: float
    resamples: int
    overlap: float
    means: str

    @property
    def kept(self) -> float:
        """m(C), the metric itself with all other heads corrupted."""
        return self.empty + self.faithful.raw


@dataclass(frozen=True, slots=True)
class TaskScore:
    """How a model does on the clean or on the corrupted prompts, unpatched.

    Attributes:
        mean: of the metric over pairs.
        low, high: of its interval, None from fewer than 5 independent pairs.
        wins: share of the pairs in which the answer beats what it is held against; None where it is
            held against nothing.
        top: share of the pairs in which the answer is the likeliest token.
    """

    mean: float
    low: float | None
    high: float | None
    wins: float | None
    top: float

    @property
    def accuracy(self) -> float:
        """Share of the pairs that are answered: by winning, or by the likeliest token."""
        return self.top if self.wins is None else self.wins


@dataclass(frozen=True, slots=True)
class PairExample:
    """The first pair.

    Attributes:
        clean: its tokens.
        corrupted: its tokens.
        answer: the token that should win.
        against: the one it is held against; empty for none.
        position: of the clean prompt, where it is predicted.
    """

    clean: tuple[str, ...]
    corrupted: tuple[str, ...]
    answer: str
    against: str
    position: int


@dataclass(frozen=True, kw_only=True, repr=False)
class Patch(Renderable, Result):
    """Effects of patching, and how they were measured.

    Attributes:
        task: ``induction``, ``ioi``, ... or ``pairs`` for pairs that were given.
        metric: ``logit-diff``, ``prob``, ``log-prob``, ``kl``, ``loss`` or ``custom``.
        unit: of the metric.
        component: ``z``, ``q``, ``k``, ``v``, ``pattern``, ``attention``, ``mlp``, ``residual``.
        by: ``head`` for all positions at once, ``position`` for each by itself.
        position: at which tokens, as asked for; empty for all.
        directions: ``denoise``, ``noise`` or both.
        pairs: how many.
        clusters: how many of them are independent: pairs of one group, and equal ones, count once.
        family: how many intervals hold together.
        clean: the model on the clean prompts.
        corrupted: and on the corrupted ones.
        effects: in the order of the layers.
        example: the first pair.
        correlation: Spearman's between estimates and exact effects, or exact edges; None where
            they were not both taken.
        edges: paths in place of effects; the strongest of those that were estimated.
        estimated: how many paths were estimated.
        steps: of the estimates' integrated gradients; None where none were taken.
        mlps: between the ends of a path; empty without paths.
        circuit: None unless asked for.
        user_defined: the metric and the fill, where they are no part of attnviz.
    """

    schema: ClassVar[str] = "attnviz.patch/1"
    command: ClassVar[str] = "patch"

    task: str
    metric: str
    unit: str
    component: Annotated[str, OneOf(*get_args(Component))]
    by: str
    position: str
    directions: tuple[Direction, ...]
    pairs: int
    clusters: int
    family: int
    clean: TaskScore
    corrupted: TaskScore
    effects: tuple[PatchEffect, ...]
    example: PairExample
    correlation: float | None = None
    edges: tuple[PathEffect, ...] = ()
    estimated: int = 0
    steps: int | None = None
    mlps: str = ""
    circuit: Circuit | None = None
    user_defined: tuple[UserDefined, ...] = ()

    @property
    def divided(self) -> str:
        """Which pairs a circuit was found on."""
        return "" if self.circuit is None else self.circuit.split

    def single(self, direction: Direction) -> dict[Head, PatchShare]:
        """Return the share of every head that was patched alone, at all positions at once."""
        return {
            effect.heads[0]: share
            for effect in self.effects
            if len(effect.heads) == 1
            and effect.position is None
            and (share := effect.of(direction)) is not None
        }

    def strongest(self) -> tuple[PathEffect, ...]:
        """Return the edges, the largest first by size."""
        return tuple(sorted(self.edges, key=lambda edge: -abs(edge.first.share)))

    def ranked(self) -> tuple[PatchEffect, ...]:
        """Return the effects, the largest first by size."""
        return tuple(sorted(self.effects, key=lambda effect: -abs(effect.first.share)))

    def __repr__(self) -> str:
        named = [(effect.name, effect.first) for effect in self.ranked()]
        named += [(edge.name(self.layout), edge.first) for edge in self.strongest()]
        leading = ", ".join(f"{name} {share.share:+.3f}" for name, share in named[:3])
        return f"<Patch {self.source.model}, {self.task}, {self.pairs} pairs: {leading}>"
