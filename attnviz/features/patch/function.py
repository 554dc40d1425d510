"""``attnviz.patch``: which heads carry an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from attnviz.captures.loading import answering
from attnviz.captures.settings import ModelSettings
from attnviz.captures.trials import answer_texts, check_choice, labels_of, predicted
from attnviz.core.heads import Layout, Site
from attnviz.core.interface import interface
from attnviz.core.result import fingerprint
from attnviz.core.scores import UserDefined
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.core.split import by_field, field_of
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.patch import paths, shares
from attnviz.features.patch.circuit import Search
from attnviz.features.patch.measure import KeptRuns, PatchPlan, PatchSums, measure
from attnviz.features.patch.pairs import (
    Pair,
    PreparedPair,
    check_task,
    pair_of,
    prepare,
    read_pairs,
    task_pairs,
)
from attnviz.features.patch.result import PairExample, Patch, PatchEffect, PathEffect
from attnviz.features.patch.runs import PairMetric, metric_of
from attnviz.features.patch.settings import PatchSettings
from attnviz.features.patch.sweep import (
    WHOLE,
    Patching,
    key_heads,
    no_roles,
    positions,
    targets,
    trials,
)
from attnviz.features.patch.words import notes
from attnviz.models.limits import batch_factor, memory_of
from attnviz.scoring.select import read_groups
from attnviz.scoring.user_measures import FILLS, given_fill, given_metric

Pairs = Pair | Mapping[str, Any] | str | Path | Iterable[Pair | Mapping[str, Any]]
"""One pair or several, as :class:`Pair` or as a dictionary of its fields; or a JSONL file."""


@interface
def patch(
    pairs: Pairs | None = None,
    *,
    settings: PatchSettings,
    model: ModelSettings,
    progress: Progress | None = None,
) -> Patch:
    """Put values of one run into another, and measure what of the answer comes with them.

    Args:
        pairs: clean and corrupted prompts with the answer, see :class:`attnviz.Pair`; a list, one,
            or a JSONL file. Nothing with ``task``.

    Returns:
        Effects as shares Σ (patched - corrupted) / Σ (clean - corrupted) over pairs for denoising,
        Σ (clean - patched) / Σ (clean - corrupted) for noising, with 95 % intervals over pairs.

    Raises:
        UsageError: options that make no sense, alone or together.
        SelectionError: heads that the model does not have.
        InputError: a pair that cannot be used, or a metric that does not move.
        ModelError: a model that cannot be patched, or gives no logits.

    Source:
        Vig et al. 2020 (arXiv:2004.12265), Meng et al. 2022 (arXiv:2202.05262), Zhang & Nanda 2023
        (arXiv:2309.16042), Heimersheim & Nanda 2024 (arXiv:2404.15255); paths: Wang et al. 2022
        (arXiv:2211.00593), Goldowsky-Dill et al. 2023 (arXiv:2304.05969); estimates: Syed et al.
        2023 (arXiv:2310.10348), Hanna et al. 2024 (arXiv:2403.17806).
    """
    if callable(settings.fill):
        settings = settings.but(fill=given_fill(settings.fill).name)
    chosen = pairs_of(pairs, settings.task, settings.group, settings.split)
    source = answering(model.load(heads=partial(check_heads, settings)))
    ready, messages = prepared(source, chosen, settings)
    study = Study(
        source,
        ready,
        metric_of(settings.metric, ready),
        settings,
        model.again(source),
        progress or (lambda stage, count, total: None),
    )
    study.check()
    result = study.run()
    return replace(result, identity=model.identity, notes=(*messages, *notes(result)))


def pairs_of(
    pairs: Pairs | None, task: str | None, group: str | None, split: str
) -> list[Pair] | str:
    """Return the pairs that were given, or the name of a task."""
    if (pairs is None) == (task is None):
        raise UsageError("give pairs, or {task} for built-in ones", task="induction")
    if task is not None:
        if group is not None:
            raise UsageError("{group} is a field of a file of pairs; leave out {task}", group=group,
                             task=...)  # fmt: skip
        if field_of(split):
            raise UsageError("{split} is of a file of pairs; leave out {task}", split=split,
                             task=...)  # fmt: skip
        check_task(task)
        return task
    part = field_of(split) or None
    if isinstance(pairs, str | Path):
        return read_pairs(str(pairs), group, part)
    if isinstance(pairs, Pair | Mapping):
        pairs = [pairs]
    assert pairs is not None
    return [pair_of(pair, f"pair {n}", group, part) for n, pair in enumerate(pairs, 1)]


def prepared(
    source: Source, pairs: list[Pair] | str, settings: PatchSettings
) -> tuple[list[PreparedPair], list[str]]:
    """Return pairs, or those of a task, as the model runs them, and what to say of their number."""
    messages: list[str] = []
    if source.no_gates:
        raise ModelError("{} cannot be patched: {}", source.info.model, source.no_gates)
    if source.no_logits:
        raise ModelError("{} gives no answers: {}", source.info.model, source.no_logits)
    if isinstance(pairs, str):
        if labels_of(source) is not None:
            raise UsageError(
                "{task} is about words, and {} gives labels; give pairs", source.info.model,
                task=pairs,
            )  # fmt: skip
        pairs, requested = task_pairs(source, pairs, settings.count, settings.seed)
        if len(pairs) < requested:
            messages.append(
                f"The task has {len(pairs)} pairs of words that the tokenizer keeps whole; "
                f"{requested} were asked for."
            )
    return prepare(source, pairs, settings.align), messages


def check_heads(settings: PatchSettings, layout: Layout) -> None:
    """Raise SelectionError for heads of a selection or a path that a model does not have."""
    if settings.select is not None and settings.component not in ("attention", *WHOLE):
        read_groups(settings.select, layout, no_roles)
    unshared = {site: layout.heads[site.kind][site.layer] for site in layout.sites}
    paths.read_paths(settings.listed_paths, layout, unshared)


@dataclass(frozen=True)
class Study:
    """What is patched: a model, pairs, and how."""

    source: Source  # the model
    pairs: Sequence[PreparedPair]  # as it runs them
    metric: PairMetric
    settings: PatchSettings  # how
    load: Callable[[], Source] | None  # loads the model in another process
    progress: Progress  # called again and again

    def check(self) -> None:
        """Refuse what does not go together with these pairs."""
        settings, metric, layout = self.settings, self.metric, self.source.layout
        if metric.function is None:
            check_choice(self.source, metric.name)
        if settings.component == "pattern" and not self._aligned():
            raise UsageError(
                "weights of prompts of different lengths cannot be exchanged; patch q and k, with "
                "{component}",
                component=...,
            )
        if metric.name == "custom" and (settings.jobs > 1 or settings.ray is not None):
            raise UsageError(
                "a function as {metric} stays in this process; leave out {jobs} and {ray}",
                metric=..., jobs=..., ray=...,
            )  # fmt: skip
        if len(layout.kinds) > 1 and (settings.where or settings.by == "position"):
            raise UsageError(
                "an encoder-decoder model has two sequences of positions; leave out {position} and "
                "{by}",
                position=...,
                by=...,
            )
        for pair in self.pairs if settings.where else ():
            try:
                for direction in settings.directions:
                    positions(pair, direction, settings.where)
            except UsageError as error:
                raise UsageError("pair {}: {}", pair.number + 1, error.message) from None

    def run(self) -> Patch:
        """Measure what was asked for."""
        shared = key_heads(self.source, self.pairs[0])
        if self.settings.traced:
            return self._traced(shared)
        return self._circuit(shared) if self.settings.circuit else self._patched(shared)

    def _patched(self, shared: Mapping[Site, int]) -> Patch:
        """Patch heads, sublayers or states."""
        settings = self.settings
        chosen = targets(self.source, settings.component, settings.select, shared)
        runs = trials(chosen, settings.by, _places(self.pairs, settings))
        plan = self._plan(runs, at=settings.where, estimate=settings.estimate, fill=settings.fill)
        measured, partial = self._measured(plan)
        names = self._names(measured)
        effects = shares.effects(runs, measured, settings.directions, names)
        return self._result(self.pairs, measured, effects=effects, partial=partial)

    def _traced(self, shared: Mapping[Site, int]) -> Patch:
        """Paths that were asked for, or the strongest of all by gradients, measured exactly."""
        settings, source, layout = self.settings, self.source, self.source.layout
        paths.check(source, settings.mlps)
        if not self._aligned():
            raise UsageError("paths need prompts of as many tokens; give pairs of equal lengths")
        plan = self._plan(mlps=settings.mlps)
        tried, estimated = paths.read_paths(settings.listed_paths, layout, shared), {}
        if settings.edges:
            paths.check(source, "frozen")
            tried = paths.every_path(layout, shared)
            guess = replace(plan, paths=tried, steps=settings.steps)
            guessed, cut = self._measured(guess, "estimates")
            if cut:
                raise InputError("interrupted before all paths were estimated")
            total = sum(sums.clean - sums.corrupted for sums in guessed)
            by_path = np.sum([sums.estimated for sums in guessed], 0) / total
            estimated = dict(zip(tried, by_path.tolist(), strict=True))
            tried = tuple(sorted(tried, key=lambda path: -abs(estimated[path]))[: settings.edges])
        measured, partial = self._measured(replace(plan, paths=tried))
        names = self._names(measured)
        edges = shares.edges(tried, measured, settings.directions, names, estimated)
        return self._result(
            self.pairs, measured, edges=edges, estimated=len(estimated),
            steps=settings.steps if estimated else None, mlps=settings.mlps, partial=partial,
        )  # fmt: skip

    def _circuit(self, shared: Mapping[Site, int]) -> Patch:
        """Heads that do the task, found on one half of the pairs and judged on the other."""
        source, pairs, requested = self.source, self.pairs, self.settings.split
        paths.check(source, "free")
        if not self._aligned():
            raise UsageError(
                "a circuit needs prompts of as many tokens; give pairs of equal lengths"
            )
        split, values = by_field(
            requested, lambda _: [(p.cluster, _part(p, requested)) for p in pairs]
        )
        cache: KeptRuns = {}

        def whole(plan: PatchPlan, stage: str) -> list[PatchSums]:
            measured, partial = self._measured(plan, stage, cache)
            if partial:
                raise InputError("interrupted before the circuit was found and judged")
            return measured

        plan = self._plan(trials(targets(source, "z", None, shared), "head", ()))
        search = Search(source, plan, shared, whole, self.settings, split, values)
        found_on, circuit, singles, effects = search.run()
        result = self._result(found_on.pairs, singles, effects=effects, circuit=circuit,
                              mlps="free")  # fmt: skip
        return replace(result, example=example(source, pairs), corpus=corpus(pairs))

    def _aligned(self) -> bool:
        """Whether the prompts of every pair have as many tokens."""
        return all(pair.aligned for pair in self.pairs)

    def _plan(self, runs: Sequence[Patching] = (), **more: Any) -> PatchPlan:
        """Plan some runs of all pairs."""
        settings = self.settings
        tokens = settings.batch_tokens or affordable(self.source)
        return PatchPlan(
            tuple(self.pairs), self.metric, tuple(runs), settings.directions, tokens=tokens, **more
        )

    def _measured(
        self, plan: PatchPlan, stage: str = "pairs", cache: KeptRuns | None = None
    ) -> tuple[list[PatchSums], bool]:
        """Every pair in its order, and whether it was interrupted; InputError before the first."""
        measured: list[PatchSums] = []
        settings, partial = self.settings, False
        try:
            for batch in measure(self.source, plan, self.load, settings.jobs, settings.ray, cache):
                measured += batch
                self.progress(stage, len(measured), len(plan.pairs))
        except KeyboardInterrupt:
            partial = True
        if not measured:
            raise InputError("interrupted before anything was measured")
        return sorted(measured, key=lambda sums: sums.number), partial

    def _names(self, measured: Sequence[PatchSums]) -> list[str]:
        """Return what each pair counts with; InputError where no share can be taken."""
        names = shares.clusters([self.pairs[sums.number] for sums in measured])
        shares.check_gap(measured, names, self.metric)
        return names

    def _result(
        self,
        pairs: Sequence[PreparedPair],
        measured: Sequence[PatchSums],
        *,
        effects: tuple[PatchEffect, ...] = (),
        edges: tuple[PathEffect, ...] = (),
        **more: Any,
    ) -> Patch:
        """Return the result of what was measured of pairs."""
        settings, source, metric = self.settings, self.source, self.metric
        pairs = [pairs[sums.number] for sums in measured]
        names = shares.clusters(pairs)
        held = all(pair.against is not None for pair in pairs)
        clean, corrupted = (shares.baseline(measured, names, side, held=held) for side in (0, 1))
        return Patch(
            source=source.info,
            layout=source.layout,
            texts=2 * len(pairs),
            corpus=corpus(pairs),
            seed=settings.seed,
            task=settings.task or "pairs",
            metric=metric.name,
            unit=metric.unit,
            component=settings.component,
            by=settings.by,
            position=settings.where,
            directions=settings.directions,
            pairs=len(pairs),
            clusters=len(set(names)),
            family=shares.family((*effects, *edges)),
            clean=clean,
            corrupted=corrupted,
            effects=effects,
            example=example(source, pairs),
            correlation=shares.correlation((*effects, *edges)),
            edges=edges,
            user_defined=_user_defined(metric, settings),
            **more,
        )


def _part(pair: PreparedPair, split: str) -> str:
    """Which part of the data a pair is of."""
    if pair.pair.part is None:
        raise UsageError("pair {} names no part for {split}", pair.number + 1, split=split)
    return pair.pair.part


def corpus(pairs: Sequence[PreparedPair]) -> str:
    """Return a hash of the pairs."""
    raw = [pair.pair for pair in pairs]
    return fingerprint((pair.clean, pair.corrupted, pair.answer, pair.against) for pair in raw)


def _places(pairs: Sequence[PreparedPair], settings: PatchSettings) -> range:
    """Return the positions that all pairs have, where each is patched by itself."""
    if settings.by == "head":
        return range(0)
    lengths = {length for pair in pairs for length in pair.lengths}
    if len(lengths) > 1:
        raise UsageError(
            "{by} lays positions of all pairs on each other, and they have {} to {} tokens; give "
            "pairs of one length",
            min(lengths),
            max(lengths),
            by="position",
        )
    return range(lengths.pop())


def _user_defined(metric: PairMetric, settings: PatchSettings) -> tuple[UserDefined, ...]:
    """Return what of it is no part of attnviz."""
    function = metric.function
    measured = [] if function is None else [given_metric(function, "pairs").mark]
    filled = [FILLS[settings.fill].mark] if settings.fill else []
    return (*measured, *filled)


def example(source: Source, pairs: Sequence[PreparedPair]) -> PairExample:
    """Return the first pair, as it is shown."""
    pair = pairs[0]
    clean, corrupted = (predicted(inputs).texts for inputs in (pair.clean, pair.corrupted))
    against = "" if pair.against is None else answer_texts(source, [pair.against])[0]
    answer = answer_texts(source, [pair.answer])[0]
    return PairExample(clean, corrupted, answer, against, pair.at[0])


def affordable(source: Source) -> int:
    """How many tokens may run at once in an eighth of the memory that there is for it."""
    vocabulary = source.vocab_size or 0
    readout = source.readout()
    last_only = readout.table is not None and readout.head is None  # the LM head at one position
    token_bytes = 4 * (64 * 64 + (0 if last_only else 3 * vocabulary))
    device = source.info.device
    limit = 4096 * batch_factor(device)
    return int(min(max(memory_of(device) // (8 * token_bytes), 256), limit))
