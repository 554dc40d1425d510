"""Sums by text of what was measured, and by cluster where texts belong together."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.features.ablation.measure import Floats, Measured
from attnviz.statistics.clusters import ClusterSums, merge_copies
from attnviz.statistics.order import (
    Between,
    Occurrences,
    largest_share,
    medians,
    per_text,
    shares,
    trimmed_means,
)
from attnviz.statistics.ratios import ratios


@dataclass(frozen=True, slots=True)
class Summed:
    """Sums by text, in the order of the texts.

    Attributes:
        texts: their numbers.
        clusters: for each, what it belongs to; texts of one cluster are not independent.
        rows: int [texts], positions.
        base: [texts], sums of the metric.
        changes: [texts, methods, groups].
        gradients: [texts, heads], of each text's mean; no columns unless asked for.
    """

    texts: tuple[int, ...]
    clusters: tuple[int, ...]
    rows: NDArray[np.int64]
    base: Floats
    changes: Floats
    gradients: Floats

    @classmethod
    def of(cls, measured: Sequence[Measured], clusters: Sequence[int]) -> Summed:
        """Put the trials of each text together."""
        ordered = sorted(range(len(measured)), key=lambda n: (measured[n].text, n))
        texts = tuple(dict.fromkeys(measured[n].text for n in ordered))
        place = {text: i for i, text in enumerate(texts)}
        rows, base = np.zeros(len(texts), np.int64), np.zeros(len(texts))
        changes = np.zeros((len(texts), *measured[0].changes.shape))
        slopes = np.zeros((len(texts), len(measured[0].gradients)))
        for n in ordered:
            trial, i = measured[n], place[measured[n].text]
            rows[i] += trial.positions
            base[i] += trial.base
            changes[i] += trial.changes
            slopes[i] += trial.gradients
        belong = tuple(clusters[text] for text in texts)
        return cls(texts, belong, rows, base, changes, slopes / np.maximum(rows, 1)[:, None])

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return len(set(self.clusters))

    def only(self, texts: Collection[int]) -> Summed:
        """The sums of some texts."""
        places = [place for place, text in enumerate(self.texts) if text in texts]
        return Summed(
            tuple(self.texts[place] for place in places),
            tuple(self.clusters[place] for place in places),
            self.rows[places],
            self.base[places],
            self.changes[places],
            self.gradients[places],
        )

    @property
    def names(self) -> list[str]:
        """What each text belongs to, as a name."""
        return [str(cluster) for cluster in self.clusters]

    def mean_base(self) -> tuple[float, float | None, float | None]:
        """The metric on the full model, and its interval where there is one."""
        clusters = ClusterSums.of(*merge_copies(self.names, self.base[:, None], self.rows[:, None]))
        mean, half = float(clusters.mean()[0]), float(clusters.half()[0])
        return (mean, mean - half, mean + half) if math.isfinite(half) else (mean, None, None)


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Changes with their intervals, [methods * groups] each; NaN for ends that are not known.

    Attributes:
        center: the mean, trimmed mean or median.
        low: of each one's own interval; ``high`` likewise.
        high: the other end.
        joint: both ends of the intervals that hold together; medians alone have such.
        detectable: what would have been told from 0 in 80 % of such samples.
        mean: of all positions, with an interval of its own.
        largest: the share of the sum that the largest text makes.
        often: in how many texts there is the smallest effect of interest; None without such.
    """

    center: Floats
    low: Floats
    high: Floats
    joint: tuple[Floats, Floats]
    detectable: Floats
    mean: Between
    largest: Floats
    often: Occurrences | None


def centers(summed: Summed, average: str) -> Floats:
    """The changes [methods * groups] without their intervals; see :func:`estimates`."""
    return estimates(summed, average).center


def estimates(
    summed: Summed, average: str, rounding: float = 0.0, smallest: float | None = None
) -> Estimates:
    """Judge all changes as one family."""
    changes = summed.changes.reshape(len(summed.texts), -1)
    pooled = ratios(
        changes,
        summed.rows,
        summed.names,
        size=np.zeros(len(changes)),
        rounding=rounding,
        joint=False,
    )
    mean = Between(pooled.value, pooled.low, pooled.high)
    sums, rows = merge_copies(summed.names, changes, summed.rows)
    values = per_text(sums, rows)
    often = shares(values, smallest) if smallest else None
    none = np.full(values.shape[1], np.nan)
    largest = largest_share(sums)
    if average == "median":
        of_text = rounding * math.sqrt(len(values))
        found = medians(values, rounding=of_text)
        ends = found.joint_low, found.joint_high
        return Estimates(
            found.center, found.low, found.high, ends, found.detectable, mean, largest, often
        )
    center = trimmed_means(values) if average == "trimmed" else mean
    return Estimates(*center, (none, none), none, mean, largest, often)
