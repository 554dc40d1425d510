"""Captures of the same texts in two runs, one pair after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout
from attnviz.core.provenance import SourceInfo
from attnviz.core.scores import HeadScores
from attnviz.core.tokens import Sides
from attnviz.errors import InputError
from attnviz.features.diff.result import Diff, Distance, FigureChange, HeadChange
from attnviz.features.diff.rows import Maps, aligned, alignment, distances, masked
from attnviz.scoring.observe import score_capture
from attnviz.statistics.clusters import FEW
from attnviz.statistics.paired import difference

Rows = dict[Head, dict[str, list[tuple[float, int]]]]
"""Of every head and score, text by text: the sum over rows, and how many."""


@dataclass
class _Far:
    """The distances of one head so far."""

    total: float = 0.0
    rows: int = 0
    largest: float = -1.0
    text: int = 0
    row: int = 0
    token: str = ""

    def add(self, found: Maps, number: int, sides: Sides) -> None:
        """Take in the distances [T] of a text."""
        counted = ~np.isnan(found)
        if not counted.any():
            return
        self.total += float(found[counted].sum())
        self.rows += int(counted.sum())
        row = int(np.nanargmax(found))
        if found[row] > self.largest:
            self.largest, self.text, self.row = float(found[row]), number, row
            self.token = sides.queries.texts[row]

    def distance(self) -> Distance | None:
        """None where no row was compared."""
        if not self.rows:
            return None
        mean = self.total / self.rows
        return Distance(mean, self.largest, self.text, self.row, self.token, self.rows)


@dataclass
class _ScoredRun:
    """Scores and roles of one of the two runs."""

    scores: Rows = field(default_factory=dict)
    roles: dict[Head, dict[str, int]] = field(default_factory=dict)

    def add(self, heads: Iterable[HeadScores]) -> None:
        """Take in a text."""
        for one in heads:
            of_head = self.scores.setdefault(one.head, {})
            for name, score in one.scores.items():
                of_head.setdefault(name, []).append(((score.mean or 0.0) * score.rows, score.rows))
            counts = self.roles.setdefault(one.head, {})
            for role in one.roles:
                counts[role.name] = counts.get(role.name, 0) + 1

    def has(self, head: Head, texts: int) -> set[str]:
        """The roles of a head in most texts."""
        return {name for name, count in self.roles.get(head, {}).items() if 2 * count > texts}


def compare(
    pairs: Iterable[tuple[Capture, Capture]], align: str, names: tuple[str, str] | None = None
) -> Diff:
    """What differs between two runs over the same texts.

    Args:
        pairs: of every text both captures; read once.
        align: see :data:`~attnviz.features.diff.rows.ALIGNMENTS`.
        names: of the two runs; those of the models by default.

    Raises:
        UsageError: no such alignment.
        InputError: heads, layers, tokens or quantities that are not the same; nothing at all.
    """
    matched = alignment(align)
    far: dict[Head, _Far] = {}
    before, after = _ScoredRun(), _ScoredRun()
    layout: Layout | None = None
    sources: tuple[SourceInfo, ...] = ()
    texts, sides, others = 0, dict[str, Sides](), dict[str, Sides]()
    first, maps = dict[Head, Maps](), dict[Head, Maps]()
    blocked = dict[Head, NDArray[np.bool_]]()
    found_names = names
    for one, other in pairs:
        _check(one, other)
        layout, sources = one.layout, (one.source, other.source)
        if found_names is None:
            found_names = one.source.model, other.source.model
        for site in one.maps:
            p, q, both = aligned(one, other, site, matched)
            sides[site.kind], others[site.kind] = both
            mask = None if texts else masked(one, other, site, matched)
            for place, (index, row) in enumerate(
                zip(one.indices(site), distances(p, q), strict=True)
            ):
                head = Head(site, index)
                far.setdefault(head, _Far()).add(row, texts, both[0])
                if not texts:
                    first[head], maps[head] = p[place], q[place] - p[place]
                    if mask is not None:
                        blocked[head] = mask[place % len(mask)]
        before.add(score_capture(one).result())
        after.add(score_capture(other).result())
        texts += 1
    if layout is None or found_names is None:
        raise InputError("no text to compare; give at least one")
    questions = sum(
        len(_both(before.scores.get(head, {}), after.scores.get(head, {}))) for head in far
    )
    heads = [
        HeadChange(
            layout.name(head),
            found.distance(),
            tuple(_changes(before.scores.get(head, {}), after.scores.get(head, {}), questions)),
            tuple(sorted(after.has(head, texts) - before.has(head, texts))),
            tuple(sorted(before.has(head, texts) - after.has(head, texts))),
        )
        for head, found in far.items()
    ]
    heads.sort(key=lambda head: -head.largest())
    report = Diff(
        source=sources[0],
        layout=layout,
        other=sources[1],
        before=found_names[0],
        after=found_names[1],
        kind="maps",
        heads=tuple(heads),
        align=matched,
        texts=texts,
        notes=tuple(_notes(texts, questions)),
    )
    if texts > 1:
        return report
    return replace(report, sides=sides, others=others, first=first, maps=maps, masked=blocked)


ByText = Mapping[str, list[tuple[float, int]]]
"""Of every score, text by text: the sum over rows, and how many."""


def _both(before: ByText, after: ByText) -> list[str]:
    """The scores that have rows in both runs."""
    return [
        name
        for name in before.keys() & after.keys()
        if all(sum(rows for _, rows in run[name]) for run in (before, after))
    ]


def _changes(before: ByText, after: ByText, questions: int) -> Iterable[FigureChange]:
    """Of every score that has rows in both runs."""
    for name in _both(before, after):
        runs = before[name], after[name]
        means = [sum(a for a, _ in run) / sum(b for _, b in run) for run in runs]
        change, low, high = difference(*runs, questions)
        yield FigureChange(name, means[0], means[1], change, low, high)


def _check(one: Capture, other: Capture) -> None:
    """InputError where two captures have nothing to compare."""
    if one.layout != other.layout:
        raise InputError(
            f"{one.source.model} has {len(one.layout)} heads and {other.source.model} "
            f"{len(other.layout)}, or other layers; only the same heads can be compared"
        )
    if one.quantity != other.quantity:
        raise InputError(f"one capture holds {one.quantity}, the other {other.quantity}")
    if one.maps.keys() != other.maps.keys() or one.kept != other.kept:
        raise InputError("the two captures keep other heads; capture the same ones")


def _notes(texts: int, questions: int) -> Iterable[str]:
    if texts == 1:
        yield "One text: a difference of scores has no interval."
        return
    yield (
        f"Intervals of changes are 95 % for all {questions:,} heads and scores together "
        "(Bonferroni), as far as Student's t holds: texts that weigh much make them too short."
    )
    if texts < FEW:
        yield f"Intervals from {texts} texts cover less than 95 %; use {FEW} or more."
