"""The strongest of very many edges, kept while all of them go by."""

from __future__ import annotations

import heapq
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from attnviz.core.heads import Head
from attnviz.features.circuits.compose import LayerPair
from attnviz.features.circuits.result import SIDES, Edge, ExcessSpread, Side

_SHARES = (0.5, 0.9, 0.99)


@dataclass
class Strongest:
    """What is kept of the edges.

    Attributes:
        keep: how many of each side.
        wanted: heads of which an edge must have one; None for any.
    """

    keep: int
    wanted: Container[Head] | None = None
    _edges: dict[Side, list[Edge]] = field(default_factory=dict)
    _excess: dict[Side, list[Tensor]] = field(default_factory=dict)

    def add(
        self,
        side: Side,
        writers: Sequence[Head],
        readers: Sequence[Head],
        pair: LayerPair,
        mean: float,
    ) -> None:
        """Take in the edges between two layers.

        Args:
            side: what of the readers is fed.
            writers: of the earlier layer.
            readers: of the later one.
            pair: the two layers.
            mean: of the ratio of random matrices.
        """
        ratio = pair.ratio.double().cpu()
        over = ratio - mean
        asked = self._among(writers)[:, None] | self._among(readers)
        if not bool(asked.any()):
            return
        self._excess.setdefault(side, []).append(over[asked])
        most = min(self.keep, int(asked.sum()))
        best = over.masked_fill(~asked, -torch.inf).flatten().topk(most)
        strongest = self._edges.get(side, [])
        # edges that are no better than all that are kept cannot come among them
        least = strongest[-1].excess if len(strongest) >= self.keep else -torch.inf
        places = best.indices[best.values > least]
        figures = zip(*(of.flatten()[places].tolist() for of in (ratio, over, pair.p)), strict=True)
        edges = [
            Edge(side, writers[place // len(readers)], readers[place % len(readers)], *three)
            for place, three in zip(places.tolist(), figures, strict=True)
        ]
        best_first = heapq.nlargest(self.keep, [*strongest, *edges], key=lambda edge: edge.excess)
        self._edges[side] = best_first

    def edges(self) -> tuple[Edge, ...]:
        """Of each side the strongest first."""
        return tuple(edge for side in SIDES for edge in self._edges.get(side, ()))

    def spread(self) -> dict[Side, ExcessSpread]:
        """How the excess of all edges is distributed."""
        excess = self._excess
        return {side: _spread(torch.cat(excess[side])) for side in SIDES if side in excess}

    def _among(self, heads: Sequence[Head]) -> Tensor:
        """Which of the heads are wanted, bool [n]."""
        return torch.tensor([self.wanted is None or head in self.wanted for head in heads])


def _spread(values: Tensor) -> ExcessSpread:
    """Quantiles, each one of the values."""
    ordered = values.sort().values
    places = [round(share * (len(ordered) - 1)) for share in _SHARES]
    return ExcessSpread(len(ordered), *(float(ordered[place]) for place in places))
