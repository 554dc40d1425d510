"""Quartiles of many numbers, counted in bins of a fixed width."""

from __future__ import annotations

import numpy as np

from attnviz.statistics.exact import Floats

BINS = 512


class Spread:
    """How the values of clusters spread, for each of many means.

    Args:
        tops: [K], the largest value that each can have; larger ones count as that.

    Attributes:
        counts: int32 [K, BINS], how many clusters have a value in each bin.
    """

    def __init__(self, tops: Floats) -> None:
        self.tops = tops
        self.counts = np.zeros((len(tops), BINS), np.int32)

    def add(self, values: Floats) -> None:
        """Add clusters: ``values[n]`` [K] those of cluster n, NaN where it has none."""
        cluster, place = np.nonzero(~np.isnan(values))
        share = values[cluster, place] / self.tops[place]
        bins = np.clip((share * BINS).astype(np.int64), 0, BINS - 1)
        np.add.at(self.counts, (place, bins), 1)

    def merge(self, other: Spread) -> None:
        """Add the counts of other clusters."""
        self.counts += other.counts

    def quantiles(self, at: tuple[float, ...] = (0.25, 0.5, 0.75)) -> Floats:
        """[len(at), K], the middle of the bin that each quantile lies in; NaN without any value."""
        total = self.counts.cumsum(1, dtype=np.int64)
        many = total[:, -1]
        quantiles = np.full((len(at), len(many)), np.nan)
        for row, share in enumerate(at):
            rank = np.maximum(np.ceil(share * many), 1)
            bins = (total < rank[:, None]).sum(1)
            quantiles[row] = np.where(many > 0, (bins + 0.5) / BINS * self.tops, np.nan)
        return quantiles
