"""What flow needs of attention weights: their mean over heads, of all layers or layer by layer."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import to_numpy
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows
from attnviz.features.flow.stack import Nodes, corner


class MeanWeights:
    """An observer of one item that keeps the mean of its heads' weights, never the heads' own.

    Attributes:
        weights: [T, S] by layer, float32: the mean over heads, where layers are kept.
        allowed: bool [T, S] by layer: the keys that any head may attend to.
    """

    def __init__(self, inputs: Inputs, all_: Nodes, *, layers: bool) -> None:
        self._inputs, self._all, self._layers = inputs, all_, layers
        self._sum = np.zeros((len(all_), len(all_)))
        self._heads = np.zeros((len(all_), 1))
        self.weights: dict[Site, NDArray[np.float32]] = {}
        self.allowed: dict[Site, NDArray[np.bool_]] = {}

    def observe(self, rows: Rows) -> None:
        """Take in one block of rows."""
        site = rows.site
        sides = self._inputs.sides[site.kind]
        _, heads, count, width = rows.weights.shape
        shape = (len(sides.queries), len(sides.keys))
        places = corner(site.kind, shape, self._all)
        if site not in self.allowed:
            self.allowed[site] = np.zeros(shape, np.bool_)
            if self._layers:
                self.weights[site] = np.zeros(shape, np.float32)
            self._heads[places[0]] += heads
        queries = slice(rows.start, rows.start + count)
        keys = slice(rows.key_start, rows.key_start + width)
        mean = np.asarray(to_numpy(rows.weights[0].mean(0)), np.float32)
        whole = self._sum[places]  # a view
        whole[queries, keys] += heads * mean.astype(np.float64)
        if self._layers:
            self.weights[site][queries, keys] = mean
        seen: Any = True if rows.allowed is None else to_numpy(rows.allowed[0].any(0))
        self.allowed[site][queries, keys] = seen

    def mean(self) -> NDArray[np.float64]:
        """The mean over all heads and layers of a query, [n, n]; to be taken once."""
        self._sum /= np.maximum(self._heads, 1)
        return self._sum
