"""Measuring groups of heads on many texts: batches to one process or several, sums by text.

What a batch gives depends on the batch alone and texts are summed in their order, so that any
number of processes gives the same bits. Beside changes stand gradients of gates, ∂L/∂ξ_h =
⟨z_h, ∂L/∂z_h⟩ summed over the tokens of one text (Michel et al. 2019, arXiv:1905.10650; their code
takes absolute values per token, others per batch: these are three different numbers).

Two figures say how near what takes a head's place is to what the head hands on, for each method,
over the rows of some of the texts: the distance ‖fill − z‖ relative to ‖z‖, means of both over
rows; and the share of rows whose fill is off the manifold of the head's outputs: farther from the
nearest one on another text than 95 % of real outputs are, or of a norm outside of the middle 95 %
of theirs, as that of a mean is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.trials import Trial
from attnviz.core import arrays
from attnviz.core.arrays import Array, Floats, exact, fetched
from attnviz.core.heads import Head, Site
from attnviz.core.source import ForwardRequest, Gate, Output, Source
from attnviz.core.threads import one_thread_for
from attnviz.corpus.executors import WorkerFailure
from attnviz.corpus.running import executor
from attnviz.errors import AttnvizError, UsageError
from attnviz.features.ablation.fills import Fills, HeadOutputs, Method, Reference, batches, users
from attnviz.features.ablation.ruled import HeadRules, RuleMaps, replacements
from attnviz.interventions.metrics import Metric
from attnviz.interventions.sweep import (
    BaselineRun,
    Intervention,
    ablations,
    baseline,
    pass_tokens,
    sweep_trials,
)
from attnviz.scoring.observe import observe
from attnviz.scoring.select import Group
from attnviz.scoring.user_measures import FILLS

if TYPE_CHECKING:
    from torch import Tensor


RANDOM = "random "
"""What a rule's null is called by: its rows, with their weights at positions drawn anew."""

Loader = Callable[[], Source]


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a batch's values depend on beside the batch; goes to every process."""

    trials: tuple[Trial, ...]  # all of them
    metric: Metric  # what is measured
    methods: tuple[Method, ...] = ("zero",)  # what takes a head's place, one after the other
    tokens: int = 4096  # at most so many run at once
    # where means and donors come from; None where nothing but zero is put in place
    reference: Reference | None = None
    seed: int = 0  # of the donors
    draws: int = 1  # donors for each text
    gradient: bool = False  # whether gradients are taken as well
    by_position: bool = False  # whether changes are kept for every position, by the first method
    # by method that puts rules in heads' places, those of every pool of the reference
    rules: Mapping[Method, tuple[HeadRules, ...]] = field(default_factory=dict)

    @property
    def runs(self) -> tuple[Method, ...]:
        """All that is put in heads' places: methods, rules, and each rule's null."""
        nulls = [f"{RANDOM}{method}" for method in self.rules]
        return (*self.methods, *self.rules, *nulls)

    def rules_of(self, method: Method, trial: Trial) -> HeadRules:
        """Return the rules that stand for heads in a text: those of what fills it."""
        assert self.reference is not None
        return self.rules[method][self.reference.of[trial.text]]

    def batches(self, source: Source, lengths: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the numbers of texts of these lengths in batches, each for one pass of a model."""
        return batches(lengths, pass_tokens(self.tokens, source.concurrent))

    def is_named(self, method: Method, head: Head) -> bool:
        """Whether a head has a rule whatever text is measured."""
        return all(head in pool.names for pool in self.rules[method])


@dataclass(frozen=True, slots=True)
class Measured:
    """The values of one trial."""

    text: int  # the number of its text
    positions: int  # how many positions counted
    base: float  # the metric's sum over them on the full model
    changes: Floats  # [methods, groups], how much more it is without each group
    gradients: Floats  # [heads], of that sum; empty unless asked for
    by_position: Floats  # [groups, positions], the changes one by one; empty unless asked for


@dataclass(frozen=True, slots=True)
class TrialBatch:
    """A batch: numbers of trials, what to ablate from them, and how."""

    trials: tuple[int, ...]
    groups: tuple[Group, ...]
    methods: tuple[Method, ...]


class Meter:
    """Measures batches with a model; :meth:`__call__` is what an executor does with a task."""

    def __init__(
        self, source: Source, plan: Plan, on_share: Callable[[float], None] = lambda share: None
    ) -> None:
        self._source, self._plan, self._on_share = source, plan, on_share
        self._done = self._all = 0

    def __call__(self, task: TrialBatch) -> list[Measured]:
        """Return the values of a batch's trials, in their order."""
        plan, trials = self._plan, [self._plan.trials[n] for n in task.trials]
        self._done, self._all = 0, len(task.groups) * sum(map(self._draws, task.methods))
        full = baseline(self._source, trials, plan.metric)
        base = [arrays.to_numpy(values) for values in full.base]
        maps = None
        if not plan.rules.keys().isdisjoint(task.methods):
            sites = {site for group in task.groups for site in group.sites}
            maps = RuleMaps(self._source, trials, sites)
        by_method = [
            self._changes(trials, task.groups, method, full, base, maps) for method in task.methods
        ]
        slopes: list[Floats] = [np.zeros(0)] * len(trials)
        if plan.gradient:
            slopes = list(arrays.to_numpy(gradients(self._source, trials, plan.metric)))
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
        full: BaselineRun,
        base: Sequence[Floats],
        maps: RuleMaps | None,
    ) -> list[Floats]:
        """For each trial [groups, positions], how much more the metric is."""
        plan, draws, rule = self._plan, self._draws(method), method.removeprefix(RANDOM)
        total = [np.zeros((len(groups), len(before))) for before in base]
        numbers = [
            number
            for number, group in enumerate(groups)
            if rule not in plan.rules or any(plan.is_named(rule, head) for head in group.heads)
        ]
        changed = [groups[number] for number in numbers]
        for draw in range(draws):
            values = sweep_trials(
                self._source,
                trials,
                self._interventions(trials, changed, method, draw, maps),
                plan.metric,
                tokens=plan.tokens,
                unchanged=full,
                on_progress=self._tell,
            )
            for number, before in enumerate(base):
                for group, after in zip(numbers, values, strict=True):
                    total[number][group] += (after[number] - before) / draws
        return total

    def _interventions(
        self, trials: Sequence[Trial], groups: Sequence[Group], method: Method, draw: int,
        maps: RuleMaps | None,
    ) -> list[Intervention]:  # fmt: skip
        """Return what stands in each group's place: fills, or a rule's weights."""
        plan, rule = self._plan, method.removeprefix(RANDOM)
        if maps is None or rule not in plan.rules:
            fills = self.fills(trials, groups, method, draw)
            return ablations(self._source, groups, len(trials), fills)
        heads = {head for group in groups for head in group.heads}
        bare = {head for head in heads if not plan.is_named(rule, head)}
        rules = [plan.rules_of(rule, trial) for trial in trials]
        weights = maps.of(rules, heads - bare, plan.seed if method != rule else None)
        soft, filled = any(of_trial.shares for of_trial in rules), None
        if soft or any(len(group.heads) > 1 and bare & {*group.heads} for group in groups):
            filled = self.fills(trials, groups, "mean" if soft else plan.methods[0], 0)
        return replacements(self._source, groups, rules, weights, bare, filled)

    def _draws(self, method: Method) -> int:
        return self._plan.draws if method == "resample" else 1

    def _tell(self, groups: int) -> None:
        """So many more groups of the batch are measured."""
        self._done += groups
        self._on_share(self._done / self._all)

    def fills(
        self, trials: Sequence[Trial], groups: Sequence[Group], method: Method, draw: int
    ) -> Fills | None:
        """Return what takes the place of the groups' heads, in the layers that have some."""
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
        self.plan, self._source = plan, source
        self._on_share: Callable[[float], None] = lambda share: None
        inline = jobs == 1 and ray is None
        worker = (
            partial(Meter, plan=plan, on_share=self._tell) if inline else partial(Meter, plan=plan)
        )
        self._executor = executor(worker, source, load, jobs, ray)

    def __enter__(self) -> Bench:
        self._running = self._executor.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._executor.__exit__(*error)

    def _tell(self, share: float) -> None:
        self._on_share(share)

    def batches(self, texts: Collection[int] | None = None) -> list[tuple[int, ...]]:
        """Return the numbers of trials in batches; of all texts unless some are given."""
        trials = self.plan.trials
        numbers = [n for n, trial in enumerate(trials) if texts is None or trial.text in texts]
        parts = self.plan.batches(self._source, [trials[n].inputs.length for n in numbers])
        return [tuple(numbers[n] for n in part) for part in parts]

    def measure(
        self,
        groups: Sequence[Group],
        *,
        texts: Collection[int] | None = None,
        first_method: bool = False,
        on_share: Callable[[float], None] = lambda share: None,
    ) -> Iterator[list[Measured]]:
        """Every trial without each group, batch by batch."""
        plan, self._on_share = self.plan, on_share
        methods = plan.methods[:1] if first_method else plan.runs
        tasks = [TrialBatch(batch, tuple(groups), methods) for batch in self.batches(texts)]
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


def check_gradient(metric: Metric) -> None:
    """Raise UsageError for a metric whose gradient is zero where nothing is ablated."""
    if metric.compares:
        raise UsageError(
            "{} is 0 on the full model and flat there, so it has no gradient",
            metric.name,
            remedy="use {metric} or leave {estimate} out",
            metric="loss",
            estimate=...,
        )


def gradients(source: Source, trials: Sequence[Trial], metric: Metric) -> Tensor:
    """Take ∂(sum of the metric)/∂ξ_h in one backward pass, float64 [trials, heads]."""
    import torch

    layout = source.layout
    shares = {
        site: torch.ones(
            len(trials), layout.heads[site.kind][site.layer], device=source.info.device
        ).requires_grad_()
        for site in layout.sites
        if layout.heads[site.kind][site.layer]
    }
    positions = metric.logits_at(trials)
    gates = {site: Gate(share) for site, share in shares.items()}
    request = ForwardRequest(gates, hidden=False, logits=True, logits_at=positions, grad=True)
    output = source.forward([trial.inputs for trial in trials], request=request)
    with torch.enable_grad():
        values = metric.of(Output(), output, trials, positions)
        total = torch.stack([of_trial.sum() for of_trial in values]).sum()
    if not total.requires_grad:
        raise UsageError("{} has no gradient; leave {estimate} out", metric.name, estimate=...)
    return exact(torch.cat(torch.autograd.grad(total, list(shares.values())), 1))


ROWS = 512
"""Rows are taken from as many texts, drawn by the seed, as give so many; at least two texts."""
_NEAR = 64
"""Rows whose distances to all others stay in a processor's cache."""
_REAL = 0.95
"""The share of real outputs that are on the manifold, by distance and by norm."""


@dataclass(frozen=True, slots=True)
class Nearness:
    """Of one head's fills by one method."""

    apart: float  # mean ‖fill − z‖ / mean ‖z‖; 1 for zero
    off: float | None  # share of rows off the manifold; None where a single text was looked at


def nearness(
    source: Source, plan: Plan, groups: Sequence[Group]
) -> dict[str, dict[Head, Nearness]]:
    """By method, that of each head of some groups; users' fills as well."""
    tested, meter = _some(plan.trials, plan.seed), Meter(source, plan)
    heads: dict[Site, set[int]] = {}
    for head in (head for group in groups for head in group.heads):
        heads.setdefault(head.site, set()).add(head.index)
    outputs = HeadOutputs(heads)
    observe(source, [trial.inputs for trial in tested], outputs)
    fills = {method: meter.fills(tested, groups, method, 0) for method in plan.methods}
    by_method: dict[str, dict[Head, Nearness]] = {method: {} for method in fills}
    for site, output in outputs.values().items():  # of a hybrid, those of its layers that attend
        z = arrays.exact(output)
        xp = arrays.of(z).xp
        lengths = [len(trial.inputs.sides[site.kind].queries) for trial in tested]
        filled = [
            xp.zeros_like(z) if fill is None else arrays.exact(arrays.converted(fill[site], z))
            for fill in fills.values()
        ]
        indices = sorted(heads[site])
        rows = arrays.of(z).asarray(indices, arrays.of(z).int64, z)
        ours, *several = (
            xp.concatenate([part[n, :size][:, rows] for n, size in enumerate(lengths)]).swapaxes(
                0, 1
            )
            for part in (z, *(xp.broadcast_to(x, z.shape) for x in filled))
        )  # [heads, rows, d]
        size = arrays.norm(ours).mean(1).clip(1e-12)
        with one_thread_for(z):
            off = _off(ours, several, np.repeat(np.arange(len(lengths)), lengths))
        for number, (by_head, theirs) in enumerate(zip(by_method.values(), several, strict=True)):
            distance = arrays.norm(theirs - ours).mean(1) / size
            distances = distance.tolist()
            for row, index in enumerate(indices):
                share = off[row][number] if off else None
                by_head[Head(site, index)] = Nearness(distances[row], share)
    return by_method


def _some(trials: Sequence[Trial], seed: int) -> list[Trial]:
    """One trial each of a few texts."""
    first: dict[int, Trial] = {}
    for trial in trials:
        first.setdefault(trial.text, trial)
    order = list(first.values())
    random.Random(f"{seed}/nearness").shuffle(order)
    chosen: list[Trial] = []
    rows = 0
    for trial in order:
        if rows >= ROWS and len(chosen) >= 2:
            break
        chosen.append(trial)
        rows += trial.inputs.length
    return sorted(chosen, key=lambda trial: trial.text)


def _off(real: Array, fills: Sequence[Array], text: NDArray[np.int64]) -> list[list[float]]:
    """By head and fill, the share of rows whose fill is no output that the head has on other texts.

    ``real`` and each of the fills [H, rows, d]; ``text`` [rows]; nothing for rows of one text.
    """
    same_text = text[:, None] == text[None, :]
    if same_text.all():
        return []
    xp = arrays.of(real).xp
    barrier = arrays.converted(arrays.array(np.where(same_text, np.inf, 0.0)), real)
    shares: list[list[Array]] = []
    for head, ours in enumerate(real):
        far = xp.quantile(_to_nearest(ours, ours, barrier), _REAL)
        norms, of_head = arrays.norm(ours), []
        low, high = (xp.quantile(norms, (1 + sign * _REAL) / 2) for sign in (-1, 1))
        for theirs in (fill[head] for fill in fills):
            size, distance = arrays.norm(theirs), _to_nearest(theirs, ours, barrier)
            outside = (distance > far) | (size < low) | (size > high)
            of_head.append(arrays.exact(outside).mean())
        shares.append(of_head)
    numbers = map(float, fetched([share for of_head in shares for share in of_head]))
    return [[next(numbers) for _ in of_head] for of_head in shares]


def _to_nearest(a: Array, b: Array, barrier: Array) -> Array:
    """Return the least ‖a_i − b_j‖ = √(‖a_i‖² + ‖b_j‖² − 2 a_i · b_j) over j, of rows [n, d], [n].

    ``barrier`` [n, n]: infinite where j stands back.
    """
    xp, sizes = arrays.of(a).xp, arrays.of(a).xp.square(b).sum(-1)
    nearest = []
    for part in (slice(n, n + _NEAR) for n in range(0, len(a), _NEAR)):
        squares = xp.square(a[part]).sum(-1)[:, None] + sizes
        products = a[part] @ b.T
        products *= 2
        squares -= products
        squares += barrier[part]
        nearest.append(xp.amin(squares, 1))
    return xp.sqrt(xp.concatenate(nearest).clip(0))
