"""The strongest of very many edges, kept while all of them go by."""

from __future__ import annotations

import heapq
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import to_numpy, top
from attnviz.core.heads import Head
from attnviz.features.circuits.compose import LayerPair
from attnviz.features.circuits.result import SIDES, Edge, ExcessSpread, Side

Floats = NDArray[np.float64]
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
    _excess: dict[Side, list[Floats]] = field(default_factory=dict)

    def add(
        self,
        side: Side,
        writers: Sequence[Head],
        readers: Sequence[Head],
        pair: LayerPair,
        mean: float,
    ) -> None:
        """Take in the edges between two layers."""
        ratio = to_numpy(pair.ratio).astype(np.float64)
        over = ratio - mean
        asked = self._among(writers)[:, None] | self._among(readers)
        if not asked.any():
            return
        self._excess.setdefault(side, []).append(over[asked])
        most = min(self.keep, int(asked.sum()))
        flat = np.where(asked, over, -np.inf).ravel()
        best = np.array(top(flat, most), np.int64)
        strongest = self._edges.get(side, [])
        # edges that are no better than all that are kept cannot come among them
        least = strongest[-1].excess if len(strongest) >= self.keep else -np.inf
        places = best[flat[best] > least]
        figures = zip(*(of.ravel()[places].tolist() for of in (ratio, over, pair.p)), strict=True)
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
        return {side: _spread(np.concatenate(excess[side])) for side in SIDES if side in excess}

    def _among(self, heads: Sequence[Head]) -> NDArray[np.bool_]:
        """Which of the heads are wanted, bool [n]."""
        return np.array([self.wanted is None or head in self.wanted for head in heads])


def _spread(values: Floats) -> ExcessSpread:
    """Quantiles, each one of the values."""
    ordered = np.sort(values)
    places = [round(share * (len(ordered) - 1)) for share in _SHARES]
    return ExcessSpread(len(ordered), *(float(ordered[place]) for place in places))
