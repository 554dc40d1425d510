"""Cases and hits of every relation by document: whole numbers, so that parts give the same bits.

Notation in shapes: N heads, D documents with a case.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Bools
from attnviz.core.result import Interval
from attnviz.core.scores import Estimate, Role, Score
from attnviz.statistics.clusters import (
    LEAST,
    LEVEL,
    ClusterSums,
    agreed_ends,
    holm,
    merge_copies,
    one_sided,
    p_agreed,
)

Integers = NDArray[np.integer[Any]]
Sides = Callable[[Any], tuple[Bools, Bools]]
"""Which of some documents are chosen on, and which are measured."""
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
    """Cases of one kind, over the documents that have one: what heads find, and plain rules.

    A rule needs no attention: a fixed offset, the nearest name.
    """

    documents: Integers  # [D], their numbers from 1
    count: Integers  # [D], cases in each
    hits: NDArray[np.integer[Any]]  # [D, N, directions], how many of them each head finds
    ruled: Integers  # [D, K], how many each of the ``rules`` [K] finds
    rules: Sequence[Any]  # of offsets the shortest first
    chosen: Bools  # [D], documents to choose on; ``measured`` [D] those that figures are from
    measured: Bools

    @classmethod
    def of(
        cls, documents: Integers, right: Bools, rules: Mapping[str, Bools], sides: Sides
    ) -> HitTable:
        """Of single cases [C]: whether heads are ``right`` [C, N, directions], and rules [C]."""
        ruled = np.stack(list(rules.values()), 1).astype(np.int64)
        count, hits, ruled = merge_copies(
            documents.tolist(), np.ones(len(documents), np.int64), right.astype(np.int32), ruled
        )
        numbers = np.array(list(dict.fromkeys(documents.tolist())), np.int64)
        return cls(numbers, count, hits, ruled, list(rules), *sides(numbers))

    def accuracy(self, mask: Bools) -> NDArray[np.float64]:
        """[N, directions] on some documents; NaN where there is no case."""
        total = int(self.count[mask].sum())
        return self.hits[mask].sum(0) / (total or np.nan)

    def best_rule(self, mask: Bools) -> int:
        """Find the best place in ``rules`` on some documents; the first of several."""
        return int(self.ruled[mask].sum(0).argmax())

    def share(self, hits: Integers, least: float = 0.0) -> Interval:
        """Return the share of measured cases that ``hits`` [D] are, with its interval."""
        return share(hits[self.measured], self.count[self.measured], least)

    def lead(self, head: int, direction: int) -> tuple[Interval, int, Any, float | None, Interval]:
        """Give a head's accuracy and cases, the rule that was chosen, its accuracy, the lead."""
        rule = self.best_rule(self.chosen)
        hits, ruled = self.hits[:, head, direction], self.ruled[:, rule]
        return (
            self.share(hits),
            int(self.count[self.measured].sum()),
            self.rules[rule],
            self.share(ruled).value,
            self.share(hits - ruled, DIFFERENCE),
        )

    def enough(self) -> bool:
        """Whether there are so many cases that a role can be given at all."""
        measured = int(self.count[self.measured].sum())
        return bool(self.count[self.chosen].sum()) and enough(measured, int(self.measured.sum()))

    def candidates(self) -> Iterator[tuple[int, int, float]]:
        """Heads ten points above the best rule where chosen: number, direction, p elsewhere."""
        accuracy = self.accuracy(self.chosen)
        ruled = self.ruled[:, self.best_rule(self.chosen)]
        base = int(ruled[self.chosen].sum()) / int(self.count[self.chosen].sum())
        for number, direction in enumerate(accuracy.argmax(1).tolist()):
            if accuracy[number, direction] - base >= TEN_POINTS:
                lead = self.hits[:, number, direction] - ruled
                p = p_above_zero(lead[self.measured], self.count[self.measured])
                yield number, direction, p


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

    def tables(self, sides: Sides) -> dict[str, HitTable]:
        """Every relation, the most frequent first."""
        documents: dict[str, list[int]] = defaultdict(list)
        for document, name in sorted(self.cases):
            documents[name].append(document)
        tables = {name: self._table(name, of, sides) for name, of in documents.items()}
        return dict(sorted(tables.items(), key=lambda item: (-int(item[1].count.sum()), item[0])))

    def _table(self, name: str, documents: Sequence[int], sides: Sides) -> HitTable:
        cases = [self.cases[document, name] for document in documents]
        distances = sorted({distance for counts in cases for distance in counts},
                       key=lambda distance: (abs(distance), -distance))  # fmt: skip
        return HitTable(
            np.array(documents, np.int64),
            np.array([counts.total() for counts in cases], np.int64),
            np.stack([self.hits[document, name] for document in documents]),
            np.array([[counts[d] for d in distances] for counts in cases], np.int64),
            distances,
            *sides(documents),
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


def proven(candidates: Sequence[tuple[Any, float]], questions: int) -> list[Any]:
    """Heads whose lead, each with its p, is sure in a family of questions, and large."""
    certain = sure([p for _, p in candidates], questions)
    return [
        head
        for (head, _), is_certain in zip(candidates, certain, strict=True)
        if is_certain and large(head.accuracy, head.margin)
    ]


def evidence(
    name: str, accuracy: Interval, baseline: float | None, count: int, of: str = ""
) -> tuple[Role, Estimate]:
    """Get a role from annotation, as those of a text: chance is the best rule without attention."""
    mean, low, high = accuracy.value, accuracy.low, accuracy.high
    lift = mean / baseline if mean is not None and baseline else None
    role = Role(name, SCORE, Score(mean, baseline, lift, count), few_rows=False, of=of)
    return role, Estimate(mean, baseline, lift, count, 0, low, high)
