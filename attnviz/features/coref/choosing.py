"""From examples with an antecedent each to a report: which heads find it.

Heads and the best baseline are chosen on even documents and measured on odd ones, so that the best
of many does not flatter; or both on everything.

Notation in shapes: C examples, N heads, D documents, 2 directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.core.findings import Interval
from attnviz.core.heads import Layout
from attnviz.core.source import Source
from attnviz.core.split import EVERYTHING, Values, sides
from attnviz.corpus.gold import tally as gold
from attnviz.features.coref import result as records
from attnviz.statistics.clusters import FEW

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class AntecedentExamples:
    """What was asked of the heads, and what they answered."""

    data: records.Data  # what the examples are
    candidates: records.Candidates  # what heads choose from
    window: int | None  # tokens that are read at a time; None where texts are whole
    document: NDArray[np.int64]  # [C], of each example, from 1
    unit: str  # what a document is called
    kinds: Sequence[str]  # [C], the kind of each example
    order: Sequence[str]  # the kinds that there may be, in the order of tables
    right: Bools  # [C, N, 2], whether each head finds the antecedent in each direction
    baselines: Mapping[str, Bools]  # [C] whether each baseline does
    skipped: Mapping[str, int]  # what was left out, by reason
    corpus: str  # a hash of what was read and asked
    split: str  # which documents to choose on, as results name it
    values: Values  # of documents, what a field says that ``split`` names


def report(source: Source, examples: AntecedentExamples) -> records.Coref:
    """Figures of every head, baseline and kind."""
    causal = "decoder" in source.layout.kinds
    layout, document, split = source.layout, examples.document, examples.split
    chosen, measured = sides(split, document, examples.values)
    cases = CountedCases(
        examples, layout, chosen, measured, records.NAME_DIRECTIONS[: 1 if causal else 2]
    )
    of_kind = np.array(examples.kinds)
    present = [name for name in examples.order if (of_kind == name).any()]
    kinds = [cases.kind(gold.ALL, np.ones(len(document), np.bool_))]
    kinds += [cases.kind(name, of_kind == name) for name in present]
    return records.Coref(
        source=source.info,
        layout=layout,
        texts=len(set(document.tolist())),
        corpus=examples.corpus,
        unit=examples.unit,
        data=examples.data,
        examples=len(document),
        skipped=examples.skipped,
        split=split,
        candidates=examples.candidates,
        window=examples.window,
        kinds=tuple(kinds),
        roles=cases.roles(kinds[0].ranked),
        notes=tuple(_notes(examples, len(set(document[measured].tolist())), split, len(layout))),
    )


@dataclass(frozen=True, eq=False)
class CountedCases:
    """Counts examples by document, kind by kind."""

    examples: AntecedentExamples  # what to count
    layout: Layout  # the N heads
    chosen: Bools  # [C], examples to choose on; ``measured`` those to measure on
    measured: Bools  # the same ones where everything is asked for
    directions: Sequence[records.NameDirection]  # one for causal models, else both

    def kind(self, name: str, which: Bools) -> records.MentionKind:
        """The figures of some examples."""
        mean = self.examples.right[which].mean(0)
        both = len(self.directions) == 2
        return records.MentionKind(
            name=name,
            count=int(which.sum()),
            baselines=tuple(
                records.Baseline(
                    n, float(hits[which].mean()), self._share(hits.astype(np.int64), which)
                )
                for n, hits in self.examples.baselines.items()
            ),
            heads=tuple(
                records.NameAccuracy(head, there, back if both else None)
                for head, (there, back) in zip(self.layout, mean.tolist(), strict=True)
            ),
            ranked=tuple(self._ranked(which)) if (which & self.chosen).any() else (),
        )

    def _ranked(self, which: Bools) -> Iterator[records.AntecedentHead]:
        """Every head by its accuracy where heads are chosen; of equals in the layout's order."""
        first, heads = which & self.chosen, list(self.layout)
        accuracy = self.examples.right[first][:, :, : len(self.directions)].mean(0)
        rival = self._rival(first)
        count = int((which & self.measured).sum())
        base = self.examples.baselines[rival].astype(np.int64)
        base_share = self._share(base, which).value
        for place in np.argsort(-accuracy.max(1), kind="stable").tolist():
            direction = int(accuracy[place].argmax())
            hits = self.examples.right[:, place, direction].astype(np.int64)
            yield records.AntecedentHead(
                heads[place],
                self.directions[direction],
                self._share(hits, which),
                count,
                rival,
                base_share,
                self._share(hits - base, which, gold.DIFFERENCE),
            )

    def roles(self, ranked: Sequence[records.AntecedentHead]) -> tuple[records.AntecedentHead, ...]:
        """Those that beat the best baseline by ten points where chosen, and surely elsewhere."""
        documents = len(set(self.examples.document[self.measured].tolist()))
        if not gold.enough(int(self.measured.sum()), documents):
            return ()
        heads = list(self.layout)
        everything = np.ones(len(self.chosen), np.bool_)
        better, p = [], []
        for head in ranked:
            direction = self.directions.index(head.direction)
            hits = self.examples.right[:, heads.index(head.head), direction]
            base = self.examples.baselines[head.baseline]
            over = float(hits[self.chosen].mean()) - float(base[self.chosen].mean())
            if over >= gold.TEN_POINTS:
                better.append(head)
                more = hits.astype(np.int64) - base.astype(np.int64)
                p.append(gold.p_above_zero(*self._by_document(more, everything)))
        whole = np.array_equal(self.chosen, self.measured)
        certain = gold.sure(p, len(heads) * len(self.directions) if whole else len(p))
        named = [
            head
            for head, known in zip(better, certain, strict=True)
            if known and gold.large(head.accuracy, head.margin)
        ]
        return tuple(sorted(named, key=lambda head: head.head))

    def _rival(self, where: Bools) -> str:
        """The baseline that is right most often on some examples."""
        baselines = self.examples.baselines
        return max(baselines, key=lambda name: float(baselines[name][where].mean()))

    def _share(self, hits: NDArray[np.int64], which: Bools, least: float = 0.0) -> Interval:
        """The share of hits among the measured ones of some examples, with its interval."""
        return gold.share(*self._by_document(hits, which), least)

    def _by_document(
        self, hits: NDArray[np.int64], which: Bools
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Hits and examples of each document, [D], of the measured ones of some examples."""
        where = which & self.measured
        _, place = np.unique(self.examples.document[where], return_inverse=True)
        size = int(place.max(initial=-1)) + 1
        sums, count = np.zeros(size, np.int64), np.zeros(size, np.int64)
        np.add.at(sums, place, hits[where])
        np.add.at(count, place, 1)
        return sums, count


def _notes(examples: AntecedentExamples, measured: int, split: str, heads: int) -> Iterator[str]:
    for why, count in examples.skipped.items():
        if count:
            yield f"{count:,} left out: {why}."
    unit = examples.unit
    if split == EVERYTHING:
        yield (
            "The head was chosen on the data that its figures are from: picking the "
            f"best of {2 * heads} overestimates."
        )
    if unit == "windows":
        yield "All examples are from a single document, so every window counts as one of its own."
    if measured < 2:
        yield f"Figures are from a single one of the {unit} or none, so there are no intervals."
    elif measured < FEW:
        yield f"Intervals from {measured} {unit} cover less than 95 %; use {FEW} or more."
