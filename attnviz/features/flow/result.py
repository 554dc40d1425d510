"""From layer to layer: what reaches every position from every token.

Notation in shapes: n tokens, the source's first and then the
target's where a model has two texts; L layers, the encoder's first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import SiteKind
from attnviz.core.lengths import Axes
from attnviz.core.result import Result
from attnviz.core.settings import POSITIONS, Settings, number_or_text, setting
from attnviz.core.tokens import Tokens
from attnviz.drawing.labels import percent, visible
from attnviz.drawing.renderable import Renderable
from attnviz.errors import UsageError

Method = Literal["alti", "rollout", "max-flow"]
Order = Literal["pre", "post", "mixed"]

Direction = Literal["to", "from"]


@dataclass(frozen=True, slots=True, eq=False)
class LayerFlow:
    """One layer of a model.

    Attributes:
        kind: the stack it belongs to, ``encoder`` or ``decoder`` (also for cross-attention alone).
        layer: its number there, from 0.
        shares: [n, n], float32: of what stands at i after the layer, the share that came from what
            stood at j before it. Rows sum to 1.
    """

    kind: SiteKind
    layer: int
    shares: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Followed:
    """A token that is followed through the layers.

    Attributes:
        direction: ``to`` it, where did it come from; ``from`` it, where does it go.
        positions: of its pieces among the n tokens.
        name: its text, for people.
    """

    direction: Direction
    positions: tuple[int, ...]
    name: str


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Flow(Renderable, Result):
    """What reaches every position from every token, and beside it the mean of the weights.

    Attributes:
        method: how it was computed, see :data:`Method`.
        order: for ALTI, whether the layers normalize after attention (``post``), before it
            (``pre``), or some each way (``mixed``); None for methods that do not ask.
        tokens: all n; ``segments`` tells source (0) and target (1) apart where there are both.
        targets: the number of the first token of the target; 0 where there is one text only.
        layers: L of them.
        total: [n, n], float64: the share of what stands at i after the last layer that came from
            token j. Rows sum to 1.
        weights: [n, n], float64: the mean of the attention weights over all heads and layers of a
            query. Rows sum to 1 (to less with learned sinks, or where a query has no key).
        reach: bool [n, n], which tokens can reach i at all.
        followed: the token that was asked for, or None.
    """

    schema: ClassVar[str] = "attnviz.flow/1"
    command: ClassVar[str] = "flow"
    indent: ClassVar[int | None] = None

    method: Method
    order: Order | None
    tokens: Tokens
    targets: int
    layers: Annotated[tuple[LayerFlow, ...], Axes(least=1)]
    total: NDArray[np.float64]
    weights: NDArray[np.float64]
    reach: NDArray[np.bool_]
    followed: Followed | None = None

    def __post_init__(self) -> None:
        n = len(self.tokens)
        for matrix in (
            self.total,
            self.weights,
            self.reach,
            *(step.shares for step in self.layers),
        ):
            if matrix.shape != (n, n):
                raise ValueError(f"a matrix of {matrix.shape} for {n} tokens")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Flow) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.method, self.tokens))

    def __repr__(self) -> str:
        named = (
            f", {self.followed.direction} {visible(self.followed.name)}" if self.followed else ""
        )
        return (
            f"<Flow {self.source.model}, {self.method}, {len(self.tokens)} tokens, "
            f"{len(self.layers)} layers{named}: own token {percent(float(self.kept.mean()))}>"
        )

    @property
    def kept(self) -> NDArray[np.float64]:
        """The share of every position that is its own token's, [n]."""
        return self.total.diagonal()

    def shares(self, traced: Followed) -> NDArray[np.float64]:
        """Give the followed token's share [n] of (``to``) or at (``from``) every position."""
        return _taken(self.total, traced)

    def looked(self, traced: Followed) -> NDArray[np.float64]:
        """Return the same of the mean weights."""
        return _taken(self.weights, traced)

    def edges(self, traced: Followed | None) -> Iterator[NDArray[np.float64]]:
        """Layer by layer, [n, n]: what goes from j before the layer to i after it.

        For ``to`` a share of the followed position, 1 in every layer; for ``from`` the share of
        position i that is the followed token's; without one the layer's own shares.
        """
        steps = [layer.shares for layer in self.layers]
        if traced is None:
            for step in steps:
                yield step.astype(np.float64)
            return
        strength = np.zeros(len(self.tokens))
        strength[list(traced.positions)] = 1.0
        if traced.direction == "from":
            for step in steps:
                yield step * strength
                strength = step.astype(np.float64) @ strength
            return
        arriving = [strength / strength.sum()]
        for step in reversed(steps[1:]):
            arriving.append(arriving[-1] @ step.astype(np.float64))
        for step, later in zip(steps, reversed(arriving), strict=True):
            yield step * later[:, None]


def _taken(table: NDArray[np.float64], traced: Followed) -> NDArray[np.float64]:
    places = list(traced.positions)
    shares: NDArray[np.float64]
    shares = (
        table[places].mean(axis=0) if traced.direction == "to" else table[:, places].sum(axis=1)
    )
    return shares


@dataclass(frozen=True)
class FlowSettings(Settings):
    """How tokens are followed, and which."""

    method: Method | None = setting(
        None,
        "How shares pass through a layer; max-flow is for up to 128 tokens.",
        shown="alti where the vectors that attention moves are at hand, else rollout",
        common=True,
    )
    position: str | int | None = setting(
        None,
        "Trace what reaches these tokens. " + POSITIONS,
        metavar="TOKENS",
        parser=number_or_text,
        common=True,
    )
    key: str | int | None = setting(
        None,
        "Trace where these tokens go, given as for {position}.",
        metavar="TOKENS",
        parser=number_or_text,
        common=True,
    )

    def check(self) -> None:
        """Raise UsageError for both directions at once."""
        if self.position is not None and self.key is not None:
            raise UsageError(
                "{position} and {key} exclude each other; give one of them", position=..., key=...
            )
