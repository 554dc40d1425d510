"""Circuits read off a model's weights: frozen values that know their own JSON.

The schema is docs/circuits.schema.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from attnviz.records import Head, Layout, SourceInfo

SCHEMA = "attnviz.circuits/1"

Side = Literal["Q", "K", "V"]
"""What of a later head an earlier one feeds: its queries, its keys or its values."""

SIDES: tuple[Side, ...] = ("Q", "K", "V")


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
    """

    side: Side
    writer: Head
    reader: Head
    ratio: float
    excess: float


@dataclass(frozen=True, slots=True)
class Spread:
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
        score: Σλ / Σ|λ| over the eigenvalues of W_E W_OV W_U, from -1 to 1.
        own: by how much the token's own logit is raised against the mean of all, in standard
            deviations over the vocabulary; the mean over tokens.
    """

    score: float
    own: float


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
        """The place with the largest weight."""
        places = {name: value for name, value in asdict(self).items() if value is not None}
        name = max(places, key=lambda name: places[name])
        return name, places[name]


@dataclass(frozen=True)
class CircuitsReport:
    """What the weights of a model alone say about its heads.

    Attributes:
        source: the model.
        layout: its heads.
        edges: the strongest of each side, Q then K then V, by excess.
        chance: of the ratio, by side.
        spread: over all edges that were looked at, kept or not, by side.
        plain: copying with the token embeddings as they are, by head.
        first: the same with the embeddings as they leave the first layer; not for its own heads.
        copying_chance: of the copying score with each of the two (``plain``, ``first``).
        tokens: how many tokens of the vocabulary that rests on.
        positions: how many positions :attr:`by_position` rests on.
        by_position: by head; empty where positions are not added to the stream.
        uniform: the weights of :attr:`by_position` under uniform attention.
        turned: queries and keys are rotated by position: Q and K edges hold at distance 0.
        seed: of the random matrices and of the choice of tokens.
        reasons: why something is missing, as the end of a sentence: ``edges``, ``Q and K``,
            ``copying``, ``positions``.
        notes: full sentences that the reader must not miss.
    """

    source: SourceInfo
    layout: Layout
    edges: tuple[Edge, ...] = ()
    chance: Mapping[Side, Chance] = field(default_factory=dict)
    spread: Mapping[Side, Spread] = field(default_factory=dict)
    plain: Mapping[Head, Copying] = field(default_factory=dict)
    first: Mapping[Head, Copying] = field(default_factory=dict)
    copying_chance: Mapping[str, Chance] = field(default_factory=dict)
    tokens: int = 0
    positions: int = 0
    by_position: Mapping[Head, ByPosition] = field(default_factory=dict)
    uniform: ByPosition | None = None
    turned: bool = False
    seed: int = 0
    reasons: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def of(self, side: Side) -> tuple[Edge, ...]:
        """The edges of one side, the strongest first."""
        return tuple(edge for edge in self.edges if edge.side == side)

    def copying(self) -> Mapping[Head, Copying]:
        """Copying by what each head reads: beyond the first layer what leaves it, where known."""
        return {**self.plain, **self.first}

    def to_json(self) -> dict[str, Any]:
        """As docs/circuits.schema.json says."""
        facts, name = asdict(self.source), self.layout.name
        shared = ("model", "backend", "exactness", "device", "dtype")
        return {
            "schema": SCHEMA,
            **{key: facts[key] for key in shared},
            "versions": dict(self.source.versions),
            "layout": {kind: list(heads) for kind, heads in self.layout.heads.items()},
            "seed": self.seed,
            "edges": [
                {**asdict(edge), "writer": name(edge.writer), "reader": name(edge.reader)}
                for edge in self.edges
            ],
            "chance": {side: asdict(chance) for side, chance in self.chance.items()},
            "spread": {side: asdict(spread) for side, spread in self.spread.items()},
            "tokens": self.tokens,
            "copying_chance": {key: asdict(one) for key, one in self.copying_chance.items()},
            "positions": self.positions,
            "uniform": None if self.uniform is None else asdict(self.uniform),
            "turned": self.turned,
            "heads": [
                {
                    "head": name(head),
                    "plain": _or_none(self.plain.get(head)),
                    "first": _or_none(self.first.get(head)),
                    "by_position": _or_none(self.by_position.get(head)),
                }
                for head in self.layout
            ],
            "reasons": dict(self.reasons),
            "notes": [str(note) for note in self.notes],
        }


def _or_none(value: Copying | ByPosition | None) -> dict[str, Any] | None:
    return None if value is None else asdict(value)
