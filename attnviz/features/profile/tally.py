"""What texts add up to, beside the sums of clusters: where weight goes, examples, likeness.

Everything here adds up to the same bits in any order: sums are whole numbers, and what is kept of
many is decided by hashes.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import Head, Layout, Site
from attnviz.core.prompt import Inputs
from attnviz.features.profile.examples import Examples
from attnviz.features.profile.likeness import Divergences, sample_size
from attnviz.features.profile.passing import DISTANCES, Passed
from attnviz.features.profile.sampled.sums import HeadSums
from attnviz.scoring.scores import SCORES
from attnviz.scoring.sums import Sums, comparable
from attnviz.scoring.token_kinds import KINDS, kinds
from attnviz.statistics.exact import Exact

TENTHS = 10
UNIT = 1 << 30
"""Weights are summed in units of 2⁻³⁰."""

Integers = NDArray[np.int64]


class WeightFlow:
    """Where the weight of H heads goes; and that of uniform attention, in each of L layers.

    Attributes:
        distances: int64 [H + L, DISTANCES], heads first.
        kinds: int64 [H + L, len(KINDS)].
        tenths: int64 [H + L, TENTHS], by the key's place in its text.
        strings: the tokens seen, by their readable texts, each with its row in ``weights``.
        weights: int64 [at least len(strings), H + L].
    """

    def __init__(self, layout: Layout) -> None:
        self._heads, self._sites = len(layout), layout.sites
        rows = len(layout) + len(layout.sites)
        self.distances = np.zeros((rows, DISTANCES), np.int64)
        self.kinds = np.zeros((rows, len(KINDS)), np.int64)
        self.tenths = np.zeros((rows, TENTHS), np.int64)
        self.strings: dict[str, int] = {}
        self.weights = np.zeros((0, rows), np.int64)

    def add(self, inputs: Inputs, passed: Mapping[Site, Passed]) -> None:
        """Add what passed for one text."""
        by_kind = {}
        first = 0
        for number, site in enumerate(self._sites):
            flow = passed.get(site)
            if flow is None:
                continue
            tokens = inputs.sides[site.kind].keys
            if site.kind not in by_kind:
                tenths = np.zeros((TENTHS, len(tokens)))
                tenths[np.arange(len(tokens)) * TENTHS // len(tokens), range(len(tokens))] = 1
                by_kind[site.kind] = kinds(tokens), tenths, self._rows(tokens.texts)
            features, tenths, strings = by_kind[site.kind]
            heads = len(flow.keys)
            for rows, keys, far in (
                (slice(first, first + heads), flow.keys, flow.distances),
                (
                    slice(self._heads + number, self._heads + number + 1),
                    flow.uniform_keys[None],
                    flow.uniform_distances[None],
                ),
            ):
                self.distances[rows] += _units(far)
                self.kinds[rows] += _units(keys @ features.T)
                self.tenths[rows] += _units(keys @ tenths.T)
                np.add.at(self.weights[:, rows], strings, _units(keys.T))
            first += heads

    def merge(self, other: WeightFlow) -> None:
        """Add what passed for other texts."""
        self.distances += other.distances
        self.kinds += other.kinds
        self.tenths += other.tenths
        rows = self._rows(tuple(other.strings))
        self.weights[rows] += other.weights[list(other.strings.values())]

    def _rows(self, texts: tuple[str, ...]) -> list[int]:
        """The rows of some strings; there is one for each afterwards."""
        rows = [self.strings.setdefault(text, len(self.strings)) for text in texts]
        missing = len(self.strings) - len(self.weights)
        if missing > 0:
            more = max(missing, len(self.weights) // 4)
            self.weights = np.pad(self.weights, ((0, more), (0, 0)))
        return rows


COUNTS = ("texts", "windows", "tokens", "empty", "sink_texts", "sink_squares")
"""Numbers of a :class:`Tally` that add up."""


class Tally:
    """What some texts add up to.

    Attributes:
        texts, windows, tokens: how many; a long text runs in several windows.
        counted: int64 [H], rows that could count for any score.
        empty: query rows without any weight, counted once per layer.
        chances, shares: exact sums [H, n] and [H, n, m], see :class:`~attnviz.scoring.sums.Sums`.
        flow: where the weight goes.
        examples: rows that show roles.
        alike: the sample of texts in which heads are compared.
        sinks: int64 [H], texts on which a head is an attention sink, of ``sink_texts`` that have
            enough tokens; ``sink_squares`` sums the squares of how many heads are, text by text.
        rows: of the selected heads; None where none are.
    """

    def __init__(self, layout: Layout, select: Sequence[Head] = ()) -> None:
        heads, n = len(layout), len(SCORES)
        self.texts = self.windows = self.tokens = self.empty = 0
        self.sink_texts = self.sink_squares = 0
        self.counted, self.sinks = np.zeros(heads, np.int64), np.zeros(heads, np.int64)
        self.chances = Exact((heads, n))
        self.shares = Exact((heads, n, len(comparable(SCORES))))
        self.flow = WeightFlow(layout)
        self.examples = Examples(heads)
        self.alike: list[Divergences] = []
        self.rows = HeadSums(select) if select else None
        self._sample = sample_size(layout)

    def add(self, inputs: Inputs, sums: Sums, passed: Mapping[Site, Passed]) -> None:
        """Add a window of a text."""
        self.windows += 1
        self.tokens += sum(len(tokens) for tokens in _sequences(inputs))
        self.empty += sums.empty
        self.counted += sums.counted
        self.chances.add(sums.chances[None])
        self.shares.add(sums.shares[None])
        self.flow.add(inputs, passed)

    def add_sinks(self, sinks: NDArray[np.bool_] | None) -> None:
        """Add the heads that are sinks on a text; None where it has too few tokens."""
        if sinks is not None:
            self.sink_texts += 1
            self.sink_squares += int(sinks.sum()) ** 2
            self.sinks += sinks

    def merge(self, other: Tally) -> None:
        """Add what other texts add up to."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.counted += other.counted
        self.sinks += other.sinks
        self.chances.merge(other.chances)
        self.shares.merge(other.shares)
        self.flow.merge(other.flow)
        self.examples.merge(other.examples)
        self.examples.prune()
        self.alike = heapq.nsmallest(self._sample, self.alike + other.alike, key=_key)
        if self.rows is not None and other.rows is not None:
            self.rows.merge(other.rows)


def _key(text: Divergences) -> int:
    return text.key


def _sequences(inputs: Inputs) -> list[Any]:
    """The different token sequences of an input, each once."""
    sequences = {id(t): t for sides in inputs.sides.values() for t in (sides.queries, sides.keys)}
    return list(sequences.values())


def _units(weights: NDArray[np.float64]) -> Integers:
    return np.rint(weights * UNIT).astype(np.int64)
