"""The heads that are attention sinks on a text, as weights go by (Gu et al. 2024)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import to_numpy
from attnviz.core.heads import Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows
from attnviz.scoring.published import SINK_LENGTH, SINK_THRESHOLD


class FirstTokenSinks:
    """Watches the first token of a batch; see :func:`attnviz.scoring.published.sink_rate`."""

    def __init__(self, batch: Sequence[Inputs], layout: Layout) -> None:
        causal = layout.kinds == ("decoder",)
        self._enough = [causal and item.length >= SINK_LENGTH for item in batch]
        self._layout = layout
        self._sums: dict[Site, NDArray[np.float64]] = {}

    def observe(self, rows: Rows) -> None:
        """Add one block of rows; changes nothing in it."""
        if not any(self._enough) or rows.key_start or rows.start >= SINK_LENGTH:
            return
        first = to_numpy(rows.weights[:, :, : SINK_LENGTH - rows.start, 0])
        weights = first.sum(-1, dtype=np.float64)
        sums = self._sums.get(rows.site)
        self._sums[rows.site] = weights if sums is None else sums + weights

    def positions(self, item: int) -> NDArray[np.bool_] | None:
        """Bool [H] in the order of the layout; None for an item with too few tokens."""
        if not self._enough[item]:
            return None
        sums = [self._sums[site][item] for site in self._layout.sites]
        sinks: NDArray[np.bool_] = np.concatenate(sums) / SINK_LENGTH > SINK_THRESHOLD
        return sinks
