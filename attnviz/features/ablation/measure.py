"""Measuring groups of heads on many texts: batches to one process or several, sums by text.

What a batch gives depends on the batch alone and texts are summed in their order, so that any
number of processes gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.ablation import gradient, sweep
from attnviz.ablation.fills import Means, Method, donors, longest, resampled
from attnviz.ablation.groups import Group
from attnviz.ablation.metrics import Metric
from attnviz.ablation.trials import Trial
from attnviz.corpus.executors import Lost
from attnviz.corpus.running import executor
from attnviz.errors import AttnvizError
from attnviz.models.memory import physical_memory
from attnviz.passes import Source
from attnviz.statistics.clusters import ClusterSums

LARGEST = 16
"""Trials in a batch at most."""

Floats = NDArray[np.float64]
Loader = Callable[[], Source]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a batch's values depend on beside the batch; goes to every process.

    Attributes:
        trials: all of them.
        metric: what is measured.
        method: what takes a head's place.
        tokens: at most so many run at once.
        means: of every head's output, for the method ``mean``.
        seed: of the donors.
        draws: donors for each text.
        gradient: whether gradients are taken as well.
        by_position: whether changes are kept for every position.
    """

    trials: tuple[Trial, ...]
    metric: Metric
    method: Method = "zero"
    tokens: int = 4096
    means: Means | None = None
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
        changes: [groups], how much more it is without each group.
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
    """A batch: numbers of trials, and what to take away from them."""

    trials: tuple[int, ...]
    groups: tuple[Group, ...]


class Meter:
    """Measures batches with a model; :meth:`__call__` is what an executor does with a task.

    Args:
        source: the model.
        plan: how.
    """

    def __init__(self, source: Source, plan: Plan) -> None:
        self._source, self._plan = source, plan
        self._first: dict[int, Trial] = {}
        for trial in plan.trials:
            self._first.setdefault(trial.text, trial)

    def __call__(self, task: TrialBatch) -> list[Measured]:
        """The values of a batch's trials, in their order."""
        plan, trials = self._plan, [self._plan.trials[n] for n in task.trials]
        base, changes = [], []
        for draw in range(plan.draws):
            values = self._values(trials, task.groups, draw)
            base = [one.cpu().numpy() for one in values.base]
            for number, before in enumerate(base):
                found = [values.ablated[g][number].cpu().numpy() - before
                         for g in range(len(task.groups))]  # fmt: skip
                stacked = np.stack(found) if found else np.zeros((0, len(before)))
                if draw == 0:
                    changes.append(stacked / plan.draws)
                else:
                    changes[number] += stacked / plan.draws
        slopes: list[Floats] = [np.zeros(0)] * len(trials)
        if plan.gradient:
            slopes = list(gradient.gradients(self._source, trials, plan.metric).cpu().numpy())
        return [
            Measured(
                trial.text,
                len(trial.positions),
                float(before.sum()),
                change.sum(1),
                slope,
                change if plan.by_position else np.zeros((0, 0)),
            )
            for trial, before, change, slope in zip(trials, base, changes, slopes, strict=True)
        ]

    def _values(
        self, trials: Sequence[Trial], groups: Sequence[Group], draw: int
    ) -> sweep.BatchValues:
        plan, fills = self._plan, None
        batch = [trial.inputs for trial in trials]
        if plan.means is not None:
            fills = plan.means.fills(longest(batch))
        elif plan.method == "resample":
            lengths = [len(trial.tokens) for trial in self._first.values()]
            numbers = donors([trial.text for trial in trials], lengths, seed=plan.seed, draw=draw)
            given = [self._first[n].inputs for n in numbers]
            fills = resampled(self._source, batch, given)
        return sweep.sweep(
            self._source, trials, groups, plan.metric, fills=fills, tokens=plan.tokens
        )


class Bench:
    """Where tasks are measured: this process, several, or Ray; use in a ``with`` block.

    Args:
        source: the model, for this process.
        plan: how.
        load: loads the same model in another process; None for a model that is here only.
        jobs: how many processes or actors.
        ray: where Ray is, see :class:`~attnviz.corpus.on_ray.OnRay`; None for without.

    Raises:
        UsageError: several processes for a model that is in this one only.
    """

    def __init__(
        self,
        source: Source,
        plan: Plan,
        load: Loader | None = None,
        jobs: int = 1,
        ray: str | None = None,
    ) -> None:
        self.plan = plan
        self._executor = executor(partial(Meter, plan=plan), source, load, jobs, ray)

    def __enter__(self) -> Bench:
        self._running = self._executor.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._executor.__exit__(*error)

    def measure(self, groups: Sequence[Group]) -> Iterator[list[Measured]]:
        """Every trial without each group, batch by batch.

        Raises:
            AttnvizError: a batch that no process survives.
        """
        found = batches([trial.inputs.length for trial in self.plan.trials], self.plan.tokens)
        tasks = [TrialBatch(batch, tuple(groups)) for batch in found]
        for task, answer in self._running.run(tasks):
            if isinstance(answer, Lost):
                texts = ", ".join(str(self.plan.trials[n].text + 1) for n in task.trials[:5])
                raise AttnvizError(
                    "texts {} cannot be measured: {}",
                    texts,
                    answer.reason,
                    remedy="lower {batch_tokens}",
                    batch_tokens=...,
                )
            yield answer


def batches(lengths: Sequence[int], tokens: int) -> list[tuple[int, ...]]:
    """Numbers of trials or texts in batches of about the same length, by their lengths alone.

    Args:
        lengths: of each.
        tokens: at most so many in a batch, with padding (but always one item).
    """
    found: list[tuple[int, ...]] = []
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda n: (lengths[n], n)):
        length = lengths[number]
        if batch and (len(batch) == LARGEST or (len(batch) + 1) * length > tokens):
            found.append(tuple(batch))
            batch = []
        batch.append(number)
    return [*found, tuple(batch)] if batch else found


def affordable(source: Source, metric: Metric) -> int:
    """How many tokens may run at once in an eighth of the memory."""
    width = 64 * 64  # states, feed-forward parts and attention, generously
    vocabulary = 3 * (source.vocab_size or 0) if metric.logits else 0
    return int(min(max(physical_memory() // (8 * 4 * (width + vocabulary)), 256), 8192))


@dataclass(frozen=True, slots=True)
class Summed:
    """Sums by text, in the order of the texts.

    Attributes:
        texts: their numbers.
        rows: int [texts], positions.
        base: [texts], sums of the metric.
        changes: [texts, groups].
        gradients: [texts, heads], of each text's mean; no columns unless asked for.
    """

    texts: tuple[int, ...]
    rows: NDArray[np.int64]
    base: Floats
    changes: Floats
    gradients: Floats

    @classmethod
    def of(cls, measured: Sequence[Measured], groups: int) -> Summed:
        """Put the trials of each text together."""
        ordered = sorted(range(len(measured)), key=lambda n: (measured[n].text, n))
        texts = tuple(dict.fromkeys(measured[n].text for n in ordered))
        place = {text: i for i, text in enumerate(texts)}
        heads = len(measured[0].gradients) if measured else 0
        rows, base = np.zeros(len(texts), np.int64), np.zeros(len(texts))
        changes, slopes = np.zeros((len(texts), groups)), np.zeros((len(texts), heads))
        for n in ordered:
            one, i = measured[n], place[measured[n].text]
            rows[i] += one.positions
            base[i] += one.base
            changes[i] += one.changes
            slopes[i] += one.gradients
        return cls(texts, rows, base, changes, slopes / np.maximum(rows, 1)[:, None])

    def mean_changes(self) -> tuple[Floats, Floats]:
        """The mean change without each group, and half the width of its interval (NaN: none)."""
        return _clusters(self.changes, self.rows)

    def mean_base(self) -> tuple[float, float]:
        """The same of the metric on the full model."""
        mean, half = _clusters(self.base[:, None], self.rows)
        return float(mean[0]), float(half[0])


def _clusters(sums: Floats, rows: NDArray[np.int64]) -> tuple[Floats, Floats]:
    clusters = ClusterSums((sums.shape[1],))
    clusters.add(sums, np.broadcast_to(rows[:, None], sums.shape))
    return clusters.mean(), clusters.half()
