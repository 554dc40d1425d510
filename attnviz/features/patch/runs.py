"""The two runs of a batch of pairs, what patches take from one to the other, and what they change.

| metric | value | unit |
|---|---|---|
| ``logit-diff`` | logit of the answer minus that of what it is held against | logits |
| ``prob`` | probability of the answer | |
| ``log-prob`` | its logarithm | nats |
| ``loss`` | -log p(answer) | nats |
| ``kl`` | KL(clean ‖ this run) | nats |
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from attnviz.captures.trials import Activations
from attnviz.core import arrays
from attnviz.core.arrays import Array, Integers
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs
from attnviz.core.source import PLAIN, ForwardRequest, Kept, Observer, Output, Source
from attnviz.core.threads import one_thread_for
from attnviz.core.weights import Readout
from attnviz.errors import InputError, UsageError
from attnviz.features.patch.pairs import Pair, PreparedPair
from attnviz.features.patch.result import Direction
from attnviz.interventions.metrics import OF_PAIRS, UNITS, values_of
from attnviz.scoring import plugins
from attnviz.scoring.user_measures import METRICS as USERS
from attnviz.scoring.user_measures import given_metric

if TYPE_CHECKING:
    from torch import Tensor


Function = Callable[["Tensor", Pair], Any]  # logits [V] of one run and its pair, to one number


@dataclass(frozen=True, slots=True)
class PairMetric:
    """A metric."""

    name: str  # as options and results call it; ``custom`` for a function without one
    unit: str  # for reports
    function: Function | None = None  # of a custom metric

    def of(self, logits: Array, clean: Array, pairs: Sequence[PreparedPair]) -> Array:
        """Return a value for each run, float64 [n · N]; of a function of a user's, a tensor.

        ``logits`` [n · N, V], n runs of the same N pairs; ``clean`` [N, V], of the clean runs;
        ``pairs`` [N].
        """
        runs = len(logits) // len(pairs)
        if self.function is not None:
            import torch

            items = zip(arrays.to_torch(logits), list(pairs) * runs, strict=True)
            return torch.stack([self._one(row, ready) for row, ready in items])
        picked = [(pair.answer, pair.against or 0) for pair in pairs] * runs
        answers, competitors = zip(*picked, strict=True)
        full = clean if runs == 1 else arrays.of(clean).xp.tile(clean, (runs, 1))
        return values_of(self.name, logits, answers, competitors, full)

    def _one(self, logits: Tensor, ready: PreparedPair) -> Tensor:
        from torch import Tensor

        with plugins.running(f"metric {self.name!r}, given pair {ready.number + 1},"):
            assert self.function is not None
            value = self.function(logits, ready.pair)
            number = value if isinstance(value, Tensor) else _number(value)
            single = number is not None and number.numel() == 1
            finite = single and math.isfinite(float(number.detach()))  # type: ignore[union-attr]
        if number is None or not finite:
            raise InputError(
                f"the metric gave {str(value)[:40]!r} for pair {ready.number + 1}; it must give "
                "one finite number"
            )
        return arrays.exact(number.reshape(()))


def _number(value: object) -> Tensor | None:
    import torch

    try:
        return torch.tensor(float(value), dtype=torch.float64)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def metric_of(metric: str | Function | None, pairs: Sequence[PreparedPair]) -> PairMetric:
    """Choose the metric asked for, or the logit difference where all pairs have both tokens."""
    users = {user.name: user for user in USERS.values() if user.of == "pairs"}
    user = given_metric(metric, "pairs") if callable(metric) else users.get(metric or "")
    if user is not None:
        return PairMetric(user.name, user.unit, user.function)
    missing = [pair.number + 1 for pair in pairs if pair.against is None]
    name = metric or ("log-prob" if missing else "logit-diff")
    if name not in OF_PAIRS:
        raise UsageError(f"unknown metric {name!r}; choose one of {', '.join((*OF_PAIRS, *users))}")
    if name == "logit-diff" and missing:
        raise UsageError(
            "logit-diff holds the answer against another token, and pair {} names none; add "
            "{against}, or take another {metric}",
            missing[0],
            against=...,
            metric=...,
        )
    return PairMetric(name, UNITS[name])


@dataclass(frozen=True, eq=False, slots=True)
class PatchRun:
    """One of the two runs of a batch."""

    batch: tuple[Inputs, ...]  # what runs
    at: Integers  # int64 [N], the position whose logits count
    # what its attention layers had inside, see :class:`~attnviz.captures.trials.Activations`
    values: Mapping[Kept, Mapping[Site, Array]]
    # between the layers, [N, T, D] each; empty where a pass cannot begin at one
    states: tuple[Array, ...]
    mlps: tuple[Array, ...]  # what the feed-forward parts add; empty unless asked for
    ends: Array  # what it ends with at ``at``, see :meth:`PatchBench.forward`
    logits: Array  # [N, V] there


class PatchBench:
    """A model, and what its passes give at single positions."""

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
        positions: Integers,
        request: ForwardRequest = PLAIN,
        observers: Sequence[Observer] = (),
    ) -> tuple[Output, Array]:
        """Run a pass to one position of each item: states [B, D] for the LM head, or logits [B, V].

        Logits where the way from states to them is not known, see :meth:`logits`.
        """
        head = self._readout is not None
        request = replace(request, hidden=head, logits=not head, ends=np.asarray(positions))
        output = self.source.forward(batch, observers, request)
        ends = output.hidden if head else output.logits
        assert ends is not None
        return output, ends[:, 0]

    def logits(self, ends: Array, *, grad: bool = False) -> Array:
        """Return the logits [B, V] of what passes end with."""
        readout = self._readout
        if readout is None:
            return ends
        assert readout.table is not None
        lib = arrays.of(ends)
        with contextlib.nullcontext() if grad else arrays.no_gradients(), one_thread_for(ends):
            ends = ends if readout.factor == 1 else ends * readout.factor
            table = arrays.converted(readout.table, ends)
            bias = None if readout.bias is None else arrays.converted(readout.bias, ends)
            return lib.linear(ends, table, bias)

    def values(self, ends: Array, runs: RunPair) -> Array:
        """Return the metric of what n passes of pairs end with, float64 [n · N]."""
        readout, lib = self._readout, arrays.of(ends)
        two = self.metric.function is None and self.metric.name == "logit-diff"
        if readout is None or not two or lib.is_half(ends):
            return self.metric.of(self.logits(ends), runs.clean.logits, runs.pairs)
        assert readout.table is not None
        tokens = [(pair.answer, pair.against or 0) for pair in runs.pairs]
        ids = lib.asarray(tokens * (len(ends) // len(tokens)), lib.int64, readout.table)
        with arrays.no_gradients():
            rows = arrays.exact(arrays.converted(readout.table[ids], ends))  # [n · N, 2, D]
            pair = (arrays.exact(ends)[:, None] * rows).sum(-1) * readout.factor
            if readout.bias is not None:
                pair = pair + arrays.exact(arrays.converted(readout.bias[ids], ends))
            return pair[:, 0] - pair[:, 1]

    def run(
        self,
        batch: Sequence[Inputs],
        positions: Sequence[int],
        parts: Collection[Kept],
        *,
        mlps: bool = False,
    ) -> PatchRun:
        """One of the two runs, with what is to be taken from it."""
        source = self.source
        ends_at = np.array(positions, np.int64)
        activations = Activations(parts, source.layout.sites)
        request = ForwardRequest(states=source.start_kind is not None, mlps=mlps)
        output, ends = self.forward(batch, ends_at, request, [activations] if parts else [])
        return PatchRun(
            tuple(batch), ends_at, activations.values, output.states, output.mlps, ends,
            self.logits(ends),
        )  # fmt: skip


Prefix = tuple[tuple[tuple[tuple[int, ...], int | None], ...], ...]
"""Of each of the first layers, which rows are patched, and at which position."""


@dataclass(frozen=True, eq=False, slots=True)
class RunPair:
    """Both runs of a batch of pairs, all of the same two lengths."""

    pairs: tuple[PreparedPair, ...]  # the batch
    clean: PatchRun  # the run on the clean prompts
    corrupted: PatchRun  # that on the corrupted ones
    # where sets of heads that were patched alone in their passes came to, by direction, component
    # and selected positions: the states [N, T, D] behind the first layers, or the metric [N]
    reached: dict[tuple[Direction, str, str], dict[Prefix, Any]] = field(default_factory=dict)

    def base(self, direction: Direction) -> PatchRun:
        """Return the run that is patched."""
        return self.corrupted if direction == "denoise" else self.clean

    def donor(self, direction: Direction) -> PatchRun:
        """Return the run that is patched from."""
        return self.clean if direction == "denoise" else self.corrupted

    def places(self, direction: Direction) -> Integers | None:
        """Map the base's positions to the donor's [N, T], -1 for none; None where all are equal."""
        if all(pair.aligned for pair in self.pairs):
            return None
        rows = []
        for pair in self.pairs:
            partner = list(pair.partner)
            if direction == "denoise":
                length = pair.lengths[1]
                inverse = [-1] * length
                for mine, theirs in enumerate(partner):
                    if theirs >= 0:
                        inverse[theirs] = mine
                partner = inverse
            rows.append(partner)
        return np.array(rows, np.int64)


def both(
    bench: PatchBench, pairs: Sequence[PreparedPair], parts: Collection[Kept], *, mlps: bool = False
) -> RunPair:
    """Run a batch of pairs, clean and corrupted."""
    clean, corrupted = (
        bench.run(
            [pair.corrupted if side else pair.clean for pair in pairs],
            [pair.at[side] for pair in pairs],
            parts,
            mlps=mlps,
        )
        for side in (0, 1)
    )
    return RunPair(tuple(pairs), clean, corrupted)


def batches(pairs: Sequence[PreparedPair], tokens: int, limit: int = 16) -> list[tuple[int, ...]]:
    """Numbers of pairs in batches of the same two lengths, by these alone."""
    by_length: dict[tuple[int, int], list[int]] = {}
    for number, pair in enumerate(pairs):
        by_length.setdefault(pair.lengths, []).append(number)
    chunks = []
    for lengths in sorted(by_length):
        numbers = by_length[lengths]
        size = max(1, min(limit, tokens // max(lengths)))
        chunks += [tuple(numbers[n : n + size]) for n in range(0, len(numbers), size)]
    return chunks
