"""Cases and hits of every relation by document: whole numbers, so that parts give the same bits.

Notation in shapes: N heads, D documents with a relation, 2 directions.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.result import Interval
from attnviz.core.scores import Estimate, Role, Score
from attnviz.statistics.clusters import (
    LEAST,
    LEVEL,
    ClusterSums,
    agreed_ends,
    holm,
    one_sided,
    p_agreed,
)

Integers = NDArray[np.integer[Any]]
Key = tuple[int, str]
"""A document and a relation."""

ALL = "all"
"""The relation that every case has, whatever its own."""

DIFFERENCE = -1.0
"""The least difference of two shares."""

Hits = Mapping[Key, NDArray[np.int32]]
"""[N, 2] hits of every head and direction."""


@dataclass
class HitTable:
    """One relation, all documents that have it."""

    documents: Integers  # [D], their numbers from 1
    count: Integers  # [D], cases in each
    hits: NDArray[np.int32]  # [D, N, 2], how many of them each head finds, in each direction
    offsets: Integers  # [D, K], how many each of ``distances`` [K] finds
    # every distance from a dependent to its head that there is, the shortest first
    distances: Integers

    def accuracy(self, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        """[N, 2] on some documents; NaN where there is no case."""
        total = int(self.count[mask].sum())
        return self.hits[mask].sum(0) / (total or np.nan)

    def best_offset(self, mask: NDArray[np.bool_]) -> int:
        """Find the best place in ``distances`` on some documents; the shortest of several."""
        return int(self.offsets[mask].sum(0).argmax())

    def share(self, hits: Integers, mask: NDArray[np.bool_], least: float = 0.0) -> Interval:
        """Return the share of cases that ``hits`` [D] are, on some documents, with its interval."""
        return share(hits[mask], self.count[mask], least)


@dataclass
class HitTally:
    """Collects cases and hits, batch by batch."""

    cases: dict[Key, Counter[int]] = field(default_factory=lambda: defaultdict(Counter))
    hits: dict[Key, NDArray[np.int32]] = field(default_factory=dict)

    def add(self, document: int, name: str, distance: int) -> None:
        """Add a case of a relation, by the distance from dependent to head."""
        for relation in (name, ALL):
            self.cases[document, relation][distance] += 1

    def add_hits(self, hits: Hits) -> None:
        """Add hits."""
        for key, counts in hits.items():
            self.hits[key] = self.hits[key] + counts if key in self.hits else counts

    def tables(self) -> dict[str, HitTable]:
        """Every relation, the most frequent first."""
        documents: dict[str, list[int]] = defaultdict(list)
        for document, name in sorted(self.cases):
            documents[name].append(document)
        tables = {name: self._table(name, hits) for name, hits in documents.items()}
        return dict(sorted(tables.items(), key=lambda item: (-int(item[1].count.sum()), item[0])))

    def _table(self, name: str, documents: Sequence[int]) -> HitTable:
        cases = [self.cases[document, name] for document in documents]
        distances = sorted({distance for counts in cases for distance in counts},
                       key=lambda distance: (abs(distance), -distance))  # fmt: skip
        return HitTable(
            np.array(documents, np.int64),
            np.array([counts.total() for counts in cases], np.int64),
            np.stack([self.hits[document, name] for document in documents]),
            np.array([[counts[d] for d in distances] for counts in cases], np.int64),
            np.array(distances, np.int64),
        )


def share(hits: Integers, count: Integers, least: float = 0.0) -> Interval:
    """Return a share of cases by document, with its 95 % interval from documents as clusters.

    Where all documents have the same share, the interval is that of
    :mod:`attnviz.statistics.clusters`.

    ``hits`` [D], of each document; ``count`` [D] its cases.
    """
    sums = ClusterSums(())
    sums.add(np.asarray(hits, np.float64), np.asarray(count))
    if not int(sums.b):
        return Interval(None)
    value, half, clusters = float(sums.mean()), float(sums.half()), int(sums.count)
    if not np.isnan(half):
        return Interval(value, max(value - half, least), min(value + half, 1.0))
    if clusters < LEAST:
        return Interval(value)
    return Interval(value, *agreed_ends(value, clusters, least, 1.0))


def p_above_zero(hits: Integers, count: Integers) -> float:
    """How likely so large a difference is by chance, one-sided; 1 where that cannot be said.

    ``hits`` [D], what one finds of each document's cases less what another finds; ``count`` [D],
    cases.
    """
    sums = ClusterSums(())
    sums.add(np.asarray(hits, np.float64), np.asarray(count))
    clusters = int(sums.count)
    if clusters < LEAST:
        return 1.0
    if not bool(sums.known()):
        return p_agreed(float(sums.mean()), clusters, DIFFERENCE)
    return float(one_sided(sums.mean(), sums.error(), sums.freedom()))


TEN_POINTS = 0.1
LEAST_SHARE = 0.25
"""Of the cases, that a head with a role is right in."""
LEAST_CASES, LEAST_DOCUMENTS = 30, 10
"""Held-out cases, and documents that they are from."""
SCORE = "accuracy"


def enough(cases: int, documents: int) -> bool:
    """Whether there are so many that a role can be given at all."""
    return cases >= LEAST_CASES and documents >= LEAST_DOCUMENTS


def large(accuracy: Interval, margin: Interval) -> bool:
    """Whether held-out figures are as large as a role takes."""
    return (accuracy.value or 0.0) >= LEAST_SHARE and (margin.value or 0.0) >= TEN_POINTS


def sure(p: Sequence[float], questions: int) -> list[bool]:
    """Which margins are surely above 0, of a family of questions (Holm 1979)."""
    unasked = np.ones(questions - len(p))
    adjusted = holm(np.concatenate([np.asarray(p, np.float64), unasked]))[: len(p)]
    return [bool(p <= 1 - LEVEL) for p in adjusted]


def evidence(
    name: str, accuracy: Interval, baseline: float | None, count: int, of: str = ""
) -> tuple[Role, Estimate]:
    """Get a role from annotation, as those of a text: chance is the best rule without attention."""
    mean, low, high = accuracy.value, accuracy.low, accuracy.high
    lift = mean / baseline if mean is not None and baseline else None
    role = Role(name, SCORE, Score(mean, baseline, lift, count), few_rows=False, of=of)
    return role, Estimate(mean, baseline, lift, count, 0, low, high)
