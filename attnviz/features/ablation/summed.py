"""Sums by text of what was measured, and by cluster where texts belong together."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.features.ablation.measure import Floats, Measured
from attnviz.statistics import copies
from attnviz.statistics.clusters import LEVEL, ClusterSums
from attnviz.statistics.families import POWER, Method, judge
from attnviz.statistics.robust import largest_share, median, per_text
from attnviz.statistics.simultaneous import ENOUGH
from attnviz.statistics.trimmed import trimmed_means


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
        """Put the trials of each text together.

        Args:
            measured: at least one trial.
            clusters: by the number of a text, what it belongs to.
        """
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
        clusters = ClusterSums.of(
            *copies.together(self.names, self.base[:, None], self.rows[:, None])
        )
        mean, half = float(clusters.mean()[0]), float(clusters.half()[0])
        return (mean, mean - half, mean + half) if math.isfinite(half) else (mean, None, None)


@dataclass(frozen=True, slots=True, eq=False)
class Estimates:
    """Changes with their intervals, [methods * groups] each; NaN for ends that are not known.

    Attributes:
        center: the mean, trimmed mean or median.
        low: of each one's own interval; ``high`` likewise.
        high: the other end.
        joint: both ends of the intervals that hold together.
        sure: whether it differs from zero, judged together.
        largest: the share of the sum that the largest text makes.
        detectable: what would have been told from 0 in 80 % of such samples.
    """

    center: Floats
    low: Floats
    high: Floats
    joint: tuple[Floats, Floats]
    sure: NDArray[np.bool_]
    largest: Floats
    detectable: Floats


def centers(summed: Summed, average: str) -> Floats:
    """The changes [methods * groups] without their intervals; see :func:`together`."""
    changes = summed.changes.reshape(len(summed.texts), -1)
    if average == "mean":
        mean: Floats = changes.sum(0) / summed.rows.sum()
        return mean
    rows = np.broadcast_to(summed.rows[:, None], changes.shape)
    values = per_text(*copies.together(summed.names, changes, rows))
    return trimmed_means(values, joint=False).center if average == "trimmed" else (
        median(values).value
    )  # fmt: skip


def together(summed: Summed, average: str, seed: int, rounding: float = 0.0) -> Estimates:
    """All changes, judged as one family.

    Args:
        summed: what was measured.
        average: ``trimmed`` mean of the texts' own means, by the bootstrap-t (Bonferroni below
            :data:`ENOUGH` texts); their ``median``, by Bonferroni; or the ``mean`` of all
            positions, by max-T (Holm below :data:`ENOUGH` texts).
        seed: of the bootstrap.
        rounding: the size of a change that rounding alone makes; what varies no more has no
            interval of a mean.
    """
    changes = summed.changes.reshape(len(summed.texts), -1)
    rows = np.broadcast_to(summed.rows[:, None], changes.shape)
    if average == "mean":
        method: Method = "max-t" if summed.count >= ENOUGH else "holm"
        means = judge(changes, rows, summed.names, method=method, seed=seed, rounding=rounding)
        return Estimates(
            means.mean, means.low, means.high, (means.joint_low, means.joint_high),
            means.significant, means.largest, means.detectable,
        )  # fmt: skip
    sums, counts = copies.together(summed.names, changes, rows)
    values = per_text(sums, counts)
    if average == "trimmed":
        trimmed = trimmed_means(values, seed=seed, rounding=rounding)
        ends = trimmed.joint_low, trimmed.joint_high
        return Estimates(
            trimmed.center, trimmed.low, trimmed.high, ends, (ends[0] > 0) | (ends[1] < 0),
            trimmed.largest, trimmed.detectable,
        )  # fmt: skip
    center, low, high = median(values)
    joint = median(values, 1 - (1 - LEVEL) / changes.shape[1])
    sure = (joint.low > 0) | (joint.high < 0)
    detectable = (joint.high - joint.low) / 2 + POWER * (high - low) / 4
    return Estimates(
        center, low, high, (joint.low, joint.high), sure, largest_share(values), detectable
    )
