"""Circuits read off a model's weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from statistics import NormalDist
from typing import ClassVar, Literal

from attnviz.captures.settings import MapSettings
from attnviz.core.heads import Head
from attnviz.core.result import Result, Value
from attnviz.core.settings import Settings, like, setting
from attnviz.drawing.renderable import Renderable

Side = Literal["Q", "K", "V"]
"""What of a later head an earlier one feeds: its queries, its keys or its values."""

SIDES: tuple[Side, ...] = ("Q", "K", "V")

RISK = 0.05
"""That anything is named of a model whose heads are random."""
COPIES = 0.5
"""Least copying score of a head that is said to copy."""


@dataclass(frozen=True, slots=True)
class Chance:
    """What random matrices of the same shapes score: mean and standard deviation over draws."""

    mean: float
    sd: float
    draws: int


@dataclass(frozen=True, slots=True)
class Edge:
    """How much of what one head writes another one reads.

    Attributes:
        side: what of the reader is fed.
        writer: the earlier head.
        reader: the later one.
        ratio: from 0 (reads nothing of it) to 1.
        excess: the ratio less the mean of random matrices of the same shapes.
        p: how likely random heads with the same singular values have such a ratio.
    """

    side: Side
    writer: Head
    reader: Head
    ratio: float
    excess: float
    p: float


@dataclass(frozen=True, slots=True)
class ExcessSpread:
    """How the excess is distributed over all edges of one side.

    Attributes:
        edges: how many there are.
        median: of their excess, and the two shares that only a tenth and a hundredth exceed.
    """

    edges: int
    median: float
    top10: float
    top1: float


@dataclass(frozen=True, slots=True)
class Copying:
    """Whether a head raises the token that it reads.

    Attributes:
        score: Σλ / Σ|λ| over the eigenvalues of W_E W_OV W_U, from -1 to 1 (Elhage et al. 2021).
        centred: the same with W_U less its mean over the vocabulary, so that raising all words
            alike counts for nothing.
        own: by how much the token's own logit is raised against the mean of all, in standard
            deviations over the vocabulary; the mean over tokens.
        lowered: the share of tokens whose own logit is lowered against the mean of all (the
            negative diagonal of McDougall et al. 2023, arXiv:2310.04625); about half by chance.
    """

    score: float
    centred: float
    own: float
    lowered: float | None = None


@dataclass(frozen=True, slots=True)
class ByPosition:
    """Where a head looks if position embeddings are all there is: mean weights.

    Attributes:
        previous: on the position before; ``first`` on position 0, ``same`` on the query's own.
        next: on the position after; None in causal attention.
    """

    previous: float
    first: float
    same: float
    next: float | None

    def strongest(self) -> tuple[str, float]:
        """Return the place with the largest weight."""
        places = {name: value for name, value in asdict(self).items() if value is not None}
        name = max(places, key=lambda name: places[name])
        return name, places[name]


@dataclass(frozen=True, kw_only=True, repr=False)
class Circuits(Renderable, Result):
    """What the weights of a model alone say about its heads; ``seed`` is of random matrices too.

    Attributes:
        edges: the strongest of each side, Q then K then V, by excess.
        chance: of the ratio, by side.
        spread: over all edges that were looked at, kept or not, by side.
        plain: copying with the token embeddings as they are, by head.
        first: the same with the embeddings as they leave the first layer; not for its own heads.
        copying_chance: of the copying score with each of the two (``plain``, ``first``), of heads
            with normally distributed matrices.
        copying_matched: the same of random heads with the singular values of the model's.
        tokens: how many tokens of the vocabulary copying was measured on.
        positions: how many positions :attr:`by_position` is from.
        by_position: by head; empty where positions are not added to the stream.
        uniform: the weights of :attr:`by_position` under uniform attention.
        turned: queries and keys are rotated by position: Q and K edges hold at distance 0.
        reasons: why something is missing, as the end of a sentence: ``edges``, ``Q and K``,
            ``copying``, ``positions``.
        measured: what the reader of an edge was measured to have from its writer on texts, by
            side, writer and reader: shares with their intervals, of results laid beside.
    """

    schema: ClassVar[str] = "attnviz.circuits/1"
    command: ClassVar[str] = "circuits"

    edges: tuple[Edge, ...] = ()
    chance: Mapping[Side, Chance] = field(default_factory=dict)
    spread: Mapping[Side, ExcessSpread] = field(default_factory=dict)
    plain: Mapping[Head, Copying] = field(default_factory=dict)
    first: Mapping[Head, Copying] = field(default_factory=dict)
    copying_chance: Mapping[str, Chance] = field(default_factory=dict)
    copying_matched: Mapping[str, Chance] = field(default_factory=dict)
    tokens: int = 0
    positions: int = 0
    by_position: Mapping[Head, ByPosition] = field(default_factory=dict)
    uniform: ByPosition | None = None
    turned: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)
    measured: Mapping[tuple[str, Head, Head], Value] = field(default_factory=dict, compare=False)

    def of(self, side: Side) -> tuple[Edge, ...]:
        """Return the edges of one side, the strongest first."""
        return tuple(edge for edge in self.edges if edge.side == side)

    def copying(self) -> Mapping[Head, Copying]:
        """Give copying by what each head reads: beyond the first layer what leaves it."""
        return {**self.plain, **self.first}

    def clear(self, side: Side) -> tuple[Edge, ...]:
        """Give the edges of one side that random heads of these singular values would hardly have.

        One of all edges that were looked at would be among them in 1 of 20 models (Bonferroni).
        """
        questions = sum(spread.edges for spread in self.spread.values())
        return tuple(edge for edge in self.of(side) if edge.p * questions <= RISK)

    def copies(self) -> Mapping[Head, bool]:
        """Whether a head copies: :data:`COPIES` or more, and more than random heads would have.

        Of as many random heads with the singular values of the model's, one scores as much in 1 of
        20 models.
        """
        times = NormalDist().inv_cdf(1 - RISK / len(self.layout))
        copying = {}
        for kind, scores in (("plain", self.plain), ("first", self.first)):
            for head, figure in scores.items():
                chance = self.copying_matched[kind]
                copying[head] = figure.score >= max(COPIES, chance.mean + times * chance.sd)
        return copying

    def __repr__(self) -> str:
        name = self.layout.name
        best = (edge for side in self.spread for edge in self.of(side)[:1])
        edges = ", ".join(
            f"{e.side} {name(e.writer)} → {name(e.reader)} {e.excess:+.3f}" for e in best
        )
        return f"<Circuits {self.source.model}: {edges or 'no edges'}>"

    def _picture_png(self) -> bytes | None:
        return self.to_bytes("png") if self.edges else None


@dataclass(frozen=True)
class CircuitsSettings(Settings):
    """Which edges, and on how many tokens copying is measured."""

    select: str | None = like(
        MapSettings,
        "select",
        help="Only edges from or into these heads: 4.11, L4H11, 5.*, *.3, 0-3.*, or a "
        "comma-separated list. All by default.",
    )
    edges: int = setting(1000, "Number of edges in JSON and CSV, for each of Q, K and V.", least=1)
    sample: int = setting(
        4096, "Number of vocabulary tokens, drawn at random, to measure copying on.", least=1
    )
    seed: int = setting(
        0, "Seed of random matrices and of the sample of tokens.", least=0, most=(1 << 63) - 1
    )
