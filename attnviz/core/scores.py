"""What the heads of a model did on one input: scores with chance and lift, and roles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from attnviz.core.heads import Head, Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo

SINK = "sink"
"""The name of the score that is of a whole text, see :mod:`attnviz.scoring.scores`."""
SINK_SHARE = 0.3
"""A key with more of the mean weight of a row is a sink (Gu et al. 2024, arXiv:2410.10781)."""


@dataclass(frozen=True, slots=True)
class Score:
    """One score of one head, averaged over the rows on which it is defined.

    ``chance`` is its mean under uniform attention over the allowed keys, ``lift`` mean / chance;
    both are None where they mean nothing; ``mean`` is None when no row counts.
    """

    mean: float | None
    chance: float | None
    lift: float | None
    rows: int


@dataclass(frozen=True, slots=True)
class UserDefined:
    """What was measured by a function that is not attnviz's own.

    Attributes:
        what: which kind of function it is.
        name: as results call what it gives.
        function: its qualified name, ``my_scores.numbers``.
        formula: what its author says it is; empty where nothing is said.
    """

    what: Literal["score", "role", "metric", "fill", "rule"]
    name: str
    function: str
    formula: str = ""


@dataclass(frozen=True, slots=True)
class Estimate:
    """One score of one head over many texts.

    Attributes:
        mean: over all rows on which the score is defined; None where there is none.
        chance: the same of uniform attention; ``lift`` is mean / chance.
        rows: how many rows; ``texts`` of how many texts, or groups of texts.
        low, high: the 95 % interval of the mean, with texts (or groups) as clusters; None where
            too few of them, or none that differ, say how sure it is.
        quartiles: of the means of single texts (or groups), to a 500th of the scale.
        macro: the mean of the means of single texts (or groups), each counting once whatever its
            rows; ``mean`` counts every row once. ``macro_low``, ``macro_high`` are the ends of its
            95 % interval, each by itself.
        detectable: of a score that a role rests on, the mean from which the role would have been
            given in 80 % of such samples; None for others, or where too few texts say.
    """

    mean: float | None
    chance: float | None
    lift: float | None
    rows: int
    texts: int
    low: float | None = None
    high: float | None = None
    quartiles: tuple[float, float, float] | None = None
    macro: float | None = None
    macro_low: float | None = None
    macro_high: float | None = None
    detectable: float | None = None


@dataclass(frozen=True, slots=True)
class Rival:
    """The role whose targets got the most weight on the rows of another, and how much."""

    name: str
    mean: float


@dataclass(frozen=True, slots=True)
class Role:
    """A role a head plays on this input, with its evidence.

    Attributes:
        name: as in :data:`attnviz.scoring.roles.SHOWN`.
        score: the score that is the evidence; ``evidence`` what was measured.
        few_rows: whether that is little to go by.
        rests: whether it is a place where attention rests, not a thing that the head does.
        possible: the share of the head's rows on which it could show; None where not known.
        rival: the role that came next on the same rows; None where none compares.
        of: what it is about where a role has several, such as the relation of a syntactic head.
    """

    name: str
    score: str
    evidence: Score
    few_rows: bool
    rests: bool = False
    possible: float | None = None
    rival: Rival | None = None
    of: str = ""

    @property
    def title(self) -> str:
        """Its name with what it is about: ``syntactic: obj``."""
        return f"{self.name}: {self.of}" if self.of else self.name


@dataclass(frozen=True, slots=True)
class HeadScores:
    """All scores of one head, and the roles they support: what it does, then where it rests.

    Attributes:
        head: which.
        scores: by name.
        roles: see above.
        sink: position of the key with the most weight in all, from 0; None over several texts.
    """

    head: Head
    scores: Mapping[str, Score]
    roles: tuple[Role, ...]
    sink: int | None = None

    @property
    def does(self) -> Role | None:
        """What the head does where that is possible."""
        return next((role for role in self.roles if not role.rests), None)

    @property
    def rests(self) -> Role | None:
        """Where its attention rests."""
        return next((role for role in self.roles if role.rests), None)


@dataclass(frozen=True, slots=True)
class Mixing:
    """How much of what a layer's positions get comes from other positions, a mean over rows.

    The mixing ratio of Kobayashi et al. 2021 (arXiv:2109.07152), without rows that have one key to
    attend to; None where no row is left.

    Attributes:
        site: the layer.
        rows: how many rows count.
        weights: of every head by its weights, 1 - α_ii; ``norms`` by what it writes.
        norms: see ``weights``.
        layer_weights: of the layer by its weights, the mean over heads; ``layer`` by the quantity
            that the report is of, of all heads together.
        layer: see ``layer_weights``.
    """

    site: Site
    rows: int
    weights: tuple[float | None, ...]
    norms: tuple[float | None, ...]
    layer_weights: float | None
    layer: float | None


class ScoredHeads(Protocol):
    """Scores of heads and where they come from: what grids and tables of heads are drawn from."""

    @property
    def source(self) -> SourceInfo:
        """The model."""

    @property
    def layout(self) -> Layout:
        """Its heads."""

    @property
    def inputs(self) -> Inputs:
        """The text."""

    @property
    def heads(self) -> tuple[HeadScores, ...]:
        """Each with its scores and roles."""

    @property
    def quantity(self) -> str:
        """What was scored."""

    @property
    def mixing(self) -> tuple[Mixing, ...]:
        """How much the positions of layers mix, where that was measured."""


@dataclass(frozen=True)
class HeadsOf:
    """The least that is a :class:`ScoredHeads`."""

    source: SourceInfo
    layout: Layout
    inputs: Inputs
    heads: tuple[HeadScores, ...]
    quantity: str = "weights"
    mixing: tuple[Mixing, ...] = ()


@dataclass(frozen=True, slots=True)
class PrefixMatching:
    """Prefix matching (Olsson et al. 2022, arXiv:2209.11895) on repeated random tokens.

    Attributes:
        means: for each head of the layout, over the probes; a perfect head has 0.5 with 4 copies.
        halves: half the width of the 95 % interval of each mean, probes being independent.
        chance: what uniform attention gets.
        probes: how many; each has ``copies`` times the same ``length`` random tokens.
        length: see ``probes``, as for ``copies``.
        copies: how often.
    """

    means: tuple[float, ...]
    halves: tuple[float, ...]
    chance: float
    probes: int
    length: int
    copies: int


@dataclass(frozen=True, slots=True)
class SinkRate:
    """Attention sinks as Gu et al. 2024 (arXiv:2410.10781) count them.

    A head is a sink on a text where the first token's mean weight over the first ``length`` rows
    exceeds ``threshold``.

    Attributes:
        rate: the share of heads that are sinks, the mean over texts.
        half: half the width of its 95 % interval over texts; None from a single one.
        heads: for each head of the layout the share of texts on which it is a sink.
        texts: how many had so many tokens.
        length: tokens from the beginning of a text.
        threshold: the paper's ε.
    """

    rate: float
    half: float | None
    heads: tuple[float, ...]
    texts: int
    length: int
    threshold: float
