"""What flow needs of attention weights: their mean over heads, layer by layer."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import to_numpy
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows


class MeanWeights:
    """An observer of one item that keeps the mean of its heads' weights, never the heads' own.

    Attributes:
        weights: [T, S] by layer, float32: the mean over heads.
        allowed: bool [T, S] by layer: the keys that any head may attend to.
        heads: how many heads a layer has.
    """

    def __init__(self, inputs: Inputs) -> None:
        self._inputs = inputs
        self.weights: dict[Site, NDArray[np.float32]] = {}
        self.allowed: dict[Site, NDArray[np.bool_]] = {}
        self.heads: dict[Site, int] = defaultdict(int)

    def observe(self, rows: Rows) -> None:
        """Take in one block of rows."""
        site = rows.site
        sides = self._inputs.sides[site.kind]
        _, heads, count, width = rows.weights.shape
        if site not in self.weights:
            shape = (len(sides.queries), len(sides.keys))
            self.weights[site] = np.zeros(shape, np.float32)
            self.allowed[site] = np.zeros(shape, np.bool_)
            self.heads[site] = heads
        queries = slice(rows.start, rows.start + count)
        keys = slice(rows.key_start, rows.key_start + width)
        self.weights[site][queries, keys] = to_numpy(rows.weights[0].mean(0))
        seen: Any = True if rows.allowed is None else to_numpy(rows.allowed[0].any(0))
        self.allowed[site][queries, keys] = seen
