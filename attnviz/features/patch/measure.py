"""Patching many pairs: batches to one process or several, values by pair.

What a batch gives depends on the batch alone, so that any number of processes gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from attnviz.core import arrays
from attnviz.core.arrays import Floats
from attnviz.core.heads import Site
from attnviz.core.source import Kept, Source
from attnviz.corpus.running import answered, executor
from attnviz.features.patch import paths
from attnviz.features.patch.pairs import PreparedPair
from attnviz.features.patch.paths import Mlps, Path
from attnviz.features.patch.result import Direction
from attnviz.features.patch.runs import PairMetric, PatchBench, RunPair, batches, both
from attnviz.features.patch.sweep import Patching, parts_of, sweep
from attnviz.interventions.sweep import MEMORY
from attnviz.scoring.user_measures import FILLS

KeptRuns = dict[tuple[object, ...], RunPair]
"""Both runs of batches of pairs as they are, by their inputs, which live as long."""


@dataclass(frozen=True, slots=True)
class PatchPlan:
    """Everything that a batch's values depend on beside the batch; goes to every process."""

    pairs: tuple[PreparedPair, ...]  # all of them
    metric: PairMetric  # what is measured
    trials: tuple[Patching, ...]  # what is patched, one run each
    directions: tuple[Direction, ...]  # which
    at: str = ""  # positions, see :func:`~attnviz.features.patch.sweep.marked`
    tokens: int = 4096  # at most so many run at once
    estimate: bool = False  # whether denoising is estimated by gradients as well
    # heads' outputs [T, H, d_v] that take the place of the other run's
    means: Mapping[Site, Floats] | None = None
    # what is measured exactly, in the directions, where it is not ``steps`` that is asked
    paths: tuple[Path, ...] = ()
    mlps: Mlps = "frozen"  # between sender and receiver
    # paths are estimated by gradients alone, over so many steps; None to measure them
    steps: int | None = None
    # the name of what a user makes of the other run's outputs; None for these themselves
    fill: str | None = None

    @property
    def at_once(self) -> int:
        """Tokens in a batch at most."""
        return self.tokens if self.steps is None else min(self.tokens, paths.ESTIMATED_TOKENS)


@dataclass(frozen=True, slots=True)
class PatchSums:
    """The values of one pair."""

    number: int  # of the pair
    clean: float  # the metric on the clean run; ``corrupted`` on the corrupted one
    corrupted: float
    wins: tuple[bool, bool]  # whether the answer beats what it is held against, in both runs
    top: tuple[bool, bool]  # whether it is the likeliest token, in both runs
    patched: Floats  # [directions, trials or paths], the metric of every patched run
    # [trials or paths], the estimated change by denoising; empty unless asked for
    estimated: Floats


class PatchMeter:
    """Measures batches with a model; :meth:`__call__` is what an executor does with a task."""

    def __init__(self, source: Source, plan: PatchPlan, cache: KeptRuns | None = None) -> None:
        self._bench, self._plan, self._cache = PatchBench(source, plan.metric), plan, cache

    def __call__(self, task: tuple[int, ...]) -> list[PatchSums]:
        """Return the values of a batch's pairs, in their order."""
        plan, bench = self._plan, self._bench
        pairs = [plan.pairs[number] for number in task]
        component = plan.trials[0].target.component if plan.trials else "z"
        several = plan.paths or self._cache is not None  # a circuit's plans share what is kept
        parts = paths.KEPT if several else parts_of(component)
        runs = self._unpatched(pairs, parts, mlps=component == "mlp")
        if plan.means is not None:
            runs = _with_means(runs, plan.means)
        values = [np.zeros((0, len(pairs)))] * len(plan.directions)
        guessed = np.zeros((0, len(pairs)))
        if plan.steps is not None:
            from attnviz.features.patch.estimate import scores

            guessed = scores(bench, runs, plan.paths, plan.steps)
        else:
            values = [self._patched(runs, direction) for direction in plan.directions]
        if plan.estimate:
            from attnviz.features.patch.estimate import estimates

            guessed = estimates(bench, runs, [trial.target for trial in plan.trials], plan.at)
        clean, corrupted = (
            arrays.to_numpy(bench.values(run.ends, runs)).tolist()
            for run in (runs.clean, runs.corrupted)
        )
        return [
            PatchSums(
                pair.number, clean[index], corrupted[index], *answers(runs, index),
                np.stack([answer[:, index] for answer in values]), guessed[:, index],
            )
            for index, pair in enumerate(pairs)
        ]  # fmt: skip

    def _unpatched(
        self, pairs: Sequence[PreparedPair], parts: Sequence[Kept], *, mlps: bool
    ) -> RunPair:
        """Run pairs as they are, or take the runs of the cache."""
        cache = {} if self._cache is None else self._cache
        key = (*(id(side) for pair in pairs for side in (pair.clean, pair.corrupted)), *parts, mlps)
        if key in cache:
            if sum(map(_size, cache.values())) > MEMORY:
                for runs in cache.values():
                    runs.reached.clear()
            return replace(cache[key], pairs=tuple(pairs))
        runs = both(self._bench, pairs, parts, mlps=mlps)
        if sum(map(_size, [*cache.values(), runs])) < MEMORY:
            cache[key] = runs
        return runs

    def _patched(self, runs: RunPair, direction: Direction) -> Floats:
        """Return the metric of every run in one direction, [trials or paths, N]."""
        plan, bench = self._plan, self._bench
        if plan.paths:
            return paths.sweep(
                bench, runs, plan.paths, direction, mlps=plan.mlps, tokens=plan.tokens
            )
        return sweep(
            bench, runs, plan.trials, direction, selection=plan.at, tokens=plan.tokens,
            fill=None if plan.fill is None else FILLS[plan.fill],
        )  # fmt: skip


def _size(runs: RunPair) -> int:
    """Count the bytes of what both runs hold."""
    both_runs = (runs.clean, runs.corrupted)
    held = [x for run in both_runs for of_part in run.values.values() for x in of_part.values()]
    held += [x for run in both_runs for x in (*run.states, *run.mlps, run.ends, run.logits)]
    held += [x for sets in runs.reached.values() for x in sets.values()]
    return sum(int(x.nbytes) for x in held)


def _with_means(runs: RunPair, means: Mapping[Site, Floats]) -> RunPair:
    """Return the same with means in place of what the corrupted run's heads gave."""
    outputs = runs.corrupted.values["z"]
    length = next(iter(outputs.values())).shape[2]
    replaced = {}
    for site, z in outputs.items():
        lib = arrays.of(z)
        mean = lib.asarray(means[site][:length].swapaxes(0, 1), z.dtype, z)
        replaced[site] = lib.xp.broadcast_to(mean, z.shape)
    return RunPair(runs.pairs, runs.clean, replace(runs.corrupted, values={"z": replaced}))


def answers(runs: RunPair, index: int) -> tuple[tuple[bool, bool], tuple[bool, bool]]:
    """Whether the answer of a pair wins, and whether it is the likeliest, in both runs."""
    pair = runs.pairs[index]
    wins, top = [], []
    for run in (runs.clean, runs.corrupted):
        logits = run.logits[index]
        against = pair.against
        wins.append(against is not None and bool(logits[pair.answer] > logits[against]))
        top.append(int(logits.argmax()) == pair.answer)
    return (wins[0], wins[1]), (top[0], top[1])


def measure(
    source: Source,
    plan: PatchPlan,
    load: Callable[[], Source] | None = None,
    jobs: int = 1,
    ray: str | None = None,
    cache: KeptRuns | None = None,
) -> Iterator[list[PatchSums]]:
    """Measure every pair, batch by batch; ``cache``: unpatched runs, where plans share pairs."""
    cache = cache if jobs == 1 and ray is None else None
    tasks: Sequence[tuple[int, ...]] = batches(plan.pairs, plan.at_once)
    with executor(partial(PatchMeter, plan=plan, cache=cache), source, load, jobs, ray) as running:
        for _, answer in answered(running, tasks, "a batch of pairs"):
            yield answer
