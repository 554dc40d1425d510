"""Measuring groups of heads on many texts: batches to one process or several, sums by text.

What a batch gives depends on the batch alone and texts are summed in their order, so that any
number of processes gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.trials import Trial
from attnviz.core import arrays
from attnviz.core.source import Source
from attnviz.corpus.executors import WorkerFailure
from attnviz.corpus.running import executor
from attnviz.errors import AttnvizError
from attnviz.features.ablation import gradient, sweep
from attnviz.features.ablation.fills import Fills, Method, users
from attnviz.features.ablation.metrics import Metric
from attnviz.features.ablation.reference import Reference, batches
from attnviz.models.memory import physical_memory
from attnviz.scoring.groups import Group
from attnviz.scoring.user_measures import FILLS

ROOM = 1 << 28
"""Bytes for the logits and states of a batch: a model of a billion parameters has a vocabulary of
which a few thousand tokens take gigabytes, and gains nothing from more than some hundred rows."""

Floats = NDArray[np.float64]
Loader = Callable[[], Source]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a batch's values depend on beside the batch; goes to every process.

    Attributes:
        trials: all of them.
        metric: what is measured.
        methods: what takes a head's place, one after the other.
        tokens: at most so many run at once.
        reference: where means and donors come from; None where nothing but zero is put in place.
        seed: of the donors.
        draws: donors for each text.
        gradient: whether gradients are taken as well.
        by_position: whether changes are kept for every position, by the first method.
    """

    trials: tuple[Trial, ...]
    metric: Metric
    methods: tuple[Method, ...] = ("zero",)
    tokens: int = 4096
    reference: Reference | None = None
    seed: int = 0
    draws: int = 1
    gradient: bool = False
    by_position: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """The values of one trial.

    Attributes:
        text: the number of its text.
        positions: how many positions counted.
        base: the metric's sum over them on the full model.
        changes: [methods, groups], how much more it is without each group.
        gradients: [heads], of that sum; empty unless asked for.
        by_position: [groups, positions], the changes one by one; empty unless asked for.
    """

    text: int
    positions: int
    base: float
    changes: Floats
    gradients: Floats
    by_position: Floats


@dataclass(frozen=True, slots=True)
class TrialBatch:
    """A batch: numbers of trials, what to ablate from them, and how."""

    trials: tuple[int, ...]
    groups: tuple[Group, ...]
    methods: tuple[Method, ...]


class Meter:
    """Measures batches with a model; :meth:`__call__` is what an executor does with a task."""

    def __init__(
        self, source: Source, plan: Plan, told: Callable[[float], None] = lambda share: None
    ) -> None:
        self._source, self._plan, self._told = source, plan, told
        self._done = self._all = 0

    def __call__(self, task: TrialBatch) -> list[Measured]:
        """The values of a batch's trials, in their order."""
        plan, trials = self._plan, [self._plan.trials[n] for n in task.trials]
        self._done, self._all = 0, len(task.groups) * sum(map(self._draws, task.methods))
        full = sweep.whole(self._source, trials, plan.metric)
        base = [arrays.to_numpy(values) for values in full.base]
        by_method = [
            self._changes(trials, task.groups, method, full, base) for method in task.methods
        ]
        slopes: list[Floats] = [np.zeros(0)] * len(trials)
        if plan.gradient:
            slopes = list(arrays.to_numpy(gradient.gradients(self._source, trials, plan.metric)))
        return [
            Measured(
                trial.text,
                len(trial.positions),
                float(base[n].sum()),
                np.stack([changes[n].sum(1) for changes in by_method]),
                slopes[n],
                by_method[0][n] if plan.by_position else np.zeros((0, 0)),
            )
            for n, trial in enumerate(trials)
        ]

    def _changes(
        self,
        trials: Sequence[Trial],
        groups: Sequence[Group],
        method: Method,
        full: sweep.Full,
        base: Sequence[Floats],
    ) -> list[Floats]:
        """For each trial [groups, positions], how much more the metric is."""
        plan, draws = self._plan, self._draws(method)
        total = [np.zeros((len(groups), len(before))) for before in base]
        for draw in range(draws):
            fills = self.fills(trials, groups, method, draw)
            values = sweep.sweep(
                self._source, trials, groups, plan.metric,
                fills=fills, tokens=plan.tokens, full=full, told=self._tell,
            )  # fmt: skip
            for number, before in enumerate(base):
                for group in range(len(groups)):
                    after = arrays.to_numpy(values.ablated[group][number])
                    total[number][group] += (after - before) / draws
        return total

    def _draws(self, method: Method) -> int:
        return self._plan.draws if method == "resample" else 1

    def _tell(self, groups: int) -> None:
        """So many more groups of the batch are measured."""
        self._done += groups
        self._told(self._done / self._all)

    def fills(
        self, trials: Sequence[Trial], groups: Sequence[Group], method: Method, draw: int
    ) -> Fills | None:
        """What takes the place of the groups' heads, in the layers that have some."""
        plan, sites = self._plan, {site for group in groups for site in group.sites}
        if method == "zero":
            return None
        assert plan.reference is not None
        if method == "mean":
            return plan.reference.means(trials, sites)
        if method in FILLS:
            batch = [trial.inputs for trial in trials]
            return users(FILLS[method], self._source, batch, plan.reference.means(trials, sites))
        return plan.reference.resampled(self._source, trials, plan.seed, draw, sites)


class Bench:
    """Where tasks are measured: this process, several, or Ray; use in a ``with`` block."""

    def __init__(
        self,
        source: Source,
        plan: Plan,
        load: Loader | None = None,
        jobs: int = 1,
        ray: str | None = None,
    ) -> None:
        self.plan = plan
        self._told: Callable[[float], None] = lambda share: None
        here = jobs == 1 and ray is None
        worker = partial(Meter, plan=plan, told=self._tell) if here else partial(Meter, plan=plan)
        self._executor = executor(worker, source, load, jobs, ray)

    def __enter__(self) -> Bench:
        self._running = self._executor.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._executor.__exit__(*error)

    def _tell(self, share: float) -> None:
        self._told(share)

    def measure(
        self,
        groups: Sequence[Group],
        *,
        texts: Collection[int] | None = None,
        first_method: bool = False,
        told: Callable[[float], None] = lambda share: None,
    ) -> Iterator[list[Measured]]:
        """Every trial without each group, batch by batch."""
        plan, self._told = self.plan, told
        numbers = [n for n, trial in enumerate(plan.trials) if texts is None or trial.text in texts]
        lengths = [plan.trials[n].inputs.length for n in numbers]
        parts = [tuple(numbers[n] for n in batch) for batch in batches(lengths, plan.tokens)]
        methods = plan.methods[:1] if first_method else plan.methods
        tasks = [TrialBatch(batch, tuple(groups), methods) for batch in parts]
        for task, answer in self._running.run(tasks):
            if isinstance(answer, WorkerFailure):
                lost = ", ".join(str(self.plan.trials[n].text + 1) for n in task.trials[:5])
                raise AttnvizError(
                    "texts {} cannot be measured: {}",
                    lost,
                    answer.reason,
                    remedy="lower {batch_tokens}",
                    batch_tokens=...,
                )
            yield answer


def affordable(source: Source, metric: Metric) -> int:
    """How many tokens may run at once in :data:`ROOM`, or in an eighth of the memory."""
    width = 64 * 64  # states, feed-forward parts and attention, generously
    vocabulary = 3 * (source.vocab_size or 0) if metric.logits else 0
    room = min(physical_memory() // 8, ROOM)
    return int(min(max(room // (4 * (width + vocabulary)), 128), 8192))
