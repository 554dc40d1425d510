"""The clean and the corrupted run of a batch of pairs: what patches take from one to the other."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.trials import Activations
from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import Donors, ForwardRequest, Gates, Kept, Observer, Output, Source, Start
from attnviz.core.threads import one_thread_for
from attnviz.core.weights import Readout
from attnviz.features.patch.metrics import PairMetric
from attnviz.features.patch.pairs import PreparedPair
from attnviz.features.patch.result import Direction

Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class PatchRun:
    """One of the two runs of a batch.

    Attributes:
        batch: what runs.
        at: int64 [N], the position whose logits count.
        values: what its attention layers had inside, see
            :class:`~attnviz.captures.trials.Activations`.
        states: between the layers, [N, T, D] each; empty where a pass cannot begin at one.
        mlps: what the feed-forward parts add; empty unless asked for.
        logits: [N, V] at ``at``.
    """

    batch: tuple[Inputs, ...]
    at: Integers
    values: Mapping[Kept, Mapping[Site, Array]]
    states: tuple[Array, ...]
    mlps: tuple[Array, ...]
    logits: Array


class PatchBench:
    """A model, and the logits of its passes at single positions."""

    def __init__(self, source: Source, metric: PairMetric) -> None:
        self.source, self.metric = source, metric

    @cached_property
    def _readout(self) -> Readout | None:
        """How states become logits at one position, where that is known."""
        readout, able = self.source.readout(), not self.source.no_logits
        return readout if readout.table is not None and readout.head is None and able else None

    def forward(
        self,
        batch: Sequence[Inputs],
        at: Integers,
        *,
        observers: Sequence[Observer] = (),
        donors: Donors | None = None,
        gates: Gates | None = None,
        start: Start | None = None,
        states: bool = False,
        mlps: bool = False,
        grad: bool = False,
    ) -> tuple[Output, Array]:
        """A pass, and its logits [B, V] at one position of each item.

        Only there does the LM head run, where the model's readout is known.
        """
        readout = self._readout
        output = self.source.forward(
            batch,
            observers,
            ForwardRequest(
                gates=gates, donors=donors, hidden=True, logits=readout is None, states=states,
                mlps=mlps, grad=grad, start=start,
            ),
        )  # fmt: skip
        ends = output.logits if readout is None else output.hidden
        assert ends is not None
        on = arrays.of(ends)
        items, places = (on.asarray(n, on.int64, ends) for n in (np.arange(len(batch)), at))
        with contextlib.nullcontext() if grad else arrays.no_gradients(), one_thread_for(ends):
            last = ends[items, places]
            if readout is None:
                return output, last
            assert readout.table is not None
            last = last if readout.factor == 1 else last * readout.factor
            table = arrays.converted(readout.table, last)
            bias = None if readout.bias is None else arrays.converted(readout.bias, last)
            return output, on.linear(last, table, bias)

    def run(
        self,
        batch: Sequence[Inputs],
        at: Sequence[int],
        parts: Collection[Kept],
        *,
        mlps: bool = False,
    ) -> PatchRun:
        """One of the two runs, with what is to be taken from it."""
        source = self.source
        places = np.array(at, np.int64)
        activations = Activations(parts, source.layout.sites)
        output, logits = self.forward(
            batch, places, observers=[activations] if parts else [], mlps=mlps,
            states=source.start_kind is not None,
        )  # fmt: skip
        return PatchRun(
            tuple(batch), places, activations.values, output.states, output.mlps, logits
        )


@dataclass(frozen=True, eq=False, slots=True)
class RunPair:
    """Both runs of a batch of pairs, all of the same two lengths.

    Attributes:
        pairs: the batch.
        clean: the run on the clean prompts.
        corrupted: that on the corrupted ones.
    """

    pairs: tuple[PreparedPair, ...]
    clean: PatchRun
    corrupted: PatchRun

    def base(self, direction: Direction) -> PatchRun:
        """The run that is patched."""
        return self.corrupted if direction == "denoise" else self.clean

    def donor(self, direction: Direction) -> PatchRun:
        """The run that is patched from."""
        return self.clean if direction == "denoise" else self.corrupted

    def places(self, direction: Direction) -> Integers | None:
        """For every position of the base its place in the donor, [N, T], -1 for none.

        None where all are the same.
        """
        if all(pair.aligned for pair in self.pairs):
            return None
        rows = []
        for pair in self.pairs:
            partner = list(pair.partner)
            if direction == "denoise":
                length = pair.lengths[1]
                back = [-1] * length
                for mine, theirs in enumerate(partner):
                    if theirs >= 0:
                        back[theirs] = mine
                partner = back
            rows.append(partner)
        return np.array(rows, np.int64)


def both(
    bench: PatchBench, pairs: Sequence[PreparedPair], parts: Collection[Kept], *, mlps: bool = False
) -> RunPair:
    """Run a batch of pairs, clean and corrupted."""
    runs = [
        bench.run(
            [pair.corrupted if side else pair.clean for pair in pairs],
            [pair.at[side] for pair in pairs],
            parts,
            mlps=mlps,
        )
        for side in (0, 1)
    ]
    return RunPair(tuple(pairs), *runs)


def batches(pairs: Sequence[PreparedPair], tokens: int, most: int = 16) -> list[tuple[int, ...]]:
    """Numbers of pairs in batches of the same two lengths, by these alone."""
    by_length: dict[tuple[int, int], list[int]] = {}
    for number, pair in enumerate(pairs):
        by_length.setdefault(pair.lengths, []).append(number)
    chunks = []
    for lengths in sorted(by_length):
        numbers = by_length[lengths]
        size = max(1, min(most, tokens // max(lengths)))
        chunks += [tuple(numbers[n : n + size]) for n in range(0, len(numbers), size)]
    return chunks
