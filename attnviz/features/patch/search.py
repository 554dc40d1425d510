"""Finding and judging a circuit: which runs there are, in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from attnviz.captures.trials import Activations
from attnviz.core import arrays
from attnviz.core.heads import Head, Site
from attnviz.core.source import Source
from attnviz.core.split import Values
from attnviz.errors import InputError, UsageError
from attnviz.features.patch import circuit, judge, paths
from attnviz.features.patch.measure import Floats, PatchPlan, PatchSums
from attnviz.features.patch.notes import not_done
from attnviz.features.patch.pairs import PreparedPair
from attnviz.features.patch.paths import Path
from attnviz.features.patch.result import DIRECTIONS, Circuit, PatchEffect, PatchShare, PathEffect
from attnviz.features.patch.runs import batches
from attnviz.features.patch.targets import Patching
from attnviz.scoring.passes import observe, score_batch

LONGEST = 96
"""Tokens of a prompt whose maps are kept."""

Measure = Callable[[PatchPlan, str], list[PatchSums]]
"""A plan and the stage's name, to the values of its pairs in their order."""


@dataclass(frozen=True)
class Search:
    """What a circuit is looked for with.

    Attributes:
        source: the model.
        pairs: as it runs them.
        plan: what all runs share; its trials are every head alone.
        shared: key heads by layer.
        measure: runs a plan.
        seed: of halves, random circuits and resamples.
        split: which pairs it is found on; ``values`` what a field says of their clusters.
        values: see ``split``.
        size: heads of the circuit; None for the smallest one that is faithful enough.
        faithful: the share of the gap that it keeps at least; as much over 1 is as far off.
        least: share of an edge.
    """

    source: Source
    pairs: Sequence[PreparedPair]
    plan: PatchPlan
    shared: Mapping[Site, int]
    measure: Measure
    seed: int
    split: str
    values: Values
    size: int | None
    faithful: float
    least: float

    def run(self) -> tuple[Circuit, list[PatchSums], tuple[PatchEffect, ...]]:
        """The circuit, every head alone on the pairs that it was found on, and its effects."""
        layout, seed = self.source.layout, self.seed
        if self.size is not None and self.size > len(layout):
            raise UsageError(
                "a circuit of {circuit} heads is more than the {} that there are",
                len(layout),
                circuit=self.size,
            )
        names = judge.clusters(self.pairs)
        split = circuit.halves(names, seed, self.split, self.values)
        found_names = [names[n] for n in split.search]
        judged_names = [names[n] for n in split.judged]
        first = self._pairs(split.search)
        alone = self.measure(replace(self.plan, pairs=first), "heads")
        changes, gaps = judge.moved(alone, DIRECTIONS)
        judge.gap(alone, found_names, self.plan.metric, self.source)
        self._done(alone, found_names)
        self._done(self._sets(split.judged, [circuit.corrupted_outside([], layout)]), judged_names)
        order = circuit.ranked(changes, gaps, layout)
        most = min(circuit.CURVE, len(order)) if self.size is None else max(
            min(circuit.CURVE, len(order)), self.size
        )  # fmt: skip
        sets = [circuit.corrupted_outside(order[:n], layout) for n in range(most + 1)]
        curve_found = [share.share for share in self._faithful(split.search, sets, found_names)]
        size, enough = self._size(curve_found)
        members = order[:size]
        greedy = self._eliminated(split.search, order[: min(most, max(2 * size, 8))], found_names)
        scores, metric = self._judged(split, members, sets, greedy, judged_names)
        by_mean = self._by_mean(split, members, judged_names)
        circuits = circuit.resampled(changes, gaps, found_names, layout, size, seed)
        edges = self._links(split, members, circuits, found_names, judged_names)
        effects = judge.effects(self.plan.trials, alone, DIRECTIONS, found_names)
        single = {
            head: (effect.denoise.share, effect.noise.share)
            for head, effect in zip(layout, effects, strict=True)
            if effect.denoise is not None and effect.noise is not None
        }
        roles, patterns = self._described(first, members)
        assembled = circuit.assemble(
            "size" if self.size is not None else "faithful", self.split, enough, metric, split,
            order, size, single, scores, by_mean, curve_found, greedy, circuits, edges, self.least,
            roles, patterns, self._means(first)[1],
        )  # fmt: skip
        return assembled, alone, effects

    def _pairs(self, numbers: Sequence[int]) -> tuple[PreparedPair, ...]:
        """Some of the pairs, numbered anew."""
        return tuple(replace(self.pairs[n], number=place) for place, n in enumerate(numbers))

    def _done(self, measured: Sequence[PatchSums], names: Sequence[str]) -> None:
        """Raise InputError where the model does not do the task on these pairs."""
        plan = self.plan
        held = all(pair.against is not None for pair in plan.pairs)
        score = judge.baseline(measured, names, plan.metric, 0, held=held)
        if why := not_done(score, plan.metric.name):
            raise InputError(
                "there is no circuit to find: {} does not do this task on {} of its pairs ({}); "
                "take another {task}, or pairs that it answers",
                self.source.info.model,
                len(measured),
                why,
                task=...,
            )

    def _size(self, curve: Sequence[float]) -> tuple[int, bool]:
        """The smallest size that is faithful enough, or what was asked for; and whether it is."""
        if self.size is not None:
            return self.size, True
        size = circuit.smallest(curve, self.faithful)
        return (len(curve) - 1, False) if size is None else (size, True)

    def _eliminated(
        self, numbers: Sequence[int], heads: Sequence[Head], names: Sequence[str]
    ) -> list[Head]:
        """A circuit by what heads do together, see :func:`circuit.eliminated`."""
        layout = self.source.layout

        def faithful(sets: Sequence[Sequence[Head]]) -> list[float]:
            every = [circuit.corrupted_outside(heads, layout) for heads in ([], *sets)]
            return [share.share for share in self._faithful(numbers, every, names)[1:]]

        return circuit.eliminated(heads, faithful, self.faithful, self.size)

    def _sets(
        self,
        numbers: Sequence[int],
        sets: Sequence[Patching],
        means: Mapping[Site, Floats] | None = None,
    ) -> list[PatchSums]:
        """The metric of pairs with sets of heads corrupted, or at their means."""
        plan = replace(
            self.plan, pairs=self._pairs(numbers), trials=tuple(sets), directions=("noise",),
            means=means,
        )  # fmt: skip
        return self.measure(plan, "circuits")

    def _faithful(
        self, numbers: Sequence[int], sets: Sequence[Patching], names: Sequence[str]
    ) -> list[PatchShare]:
        """Faithfulness of sets, the first of which is the empty one."""
        return circuit.faithfulness(self._sets(numbers, sets), names)

    def _by_mean(
        self, split: circuit.Halves, members: Sequence[Head], names: Sequence[str]
    ) -> PatchShare | None:
        """Faithfulness with all other heads at their means over the first half's prompts."""
        layout, (means, _) = self.source.layout, self._means(self._pairs(split.search))
        sets = [circuit.corrupted_outside(heads, layout) for heads in ([], members)]
        measured = self._sets(split.judged, sets, means)
        if circuit.nothing(measured, names):
            return None
        return circuit.faithfulness(measured, names)[1]

    def _judged(
        self,
        split: circuit.Halves,
        members: Sequence[Head],
        sets: Sequence[Patching],
        greedy: Sequence[Head],
        names: Sequence[str],
    ) -> tuple[dict[str, list[PatchShare]], tuple[float, float]]:
        """Everything on the other half, and the metric itself with no and with all heads corrupted.

        The circuit, what is outside, the greedy one, random ones, and without each member.
        """
        layout, size, heads = self.source.layout, len(members), list(self.source.layout)
        outside = [head for head in heads if head not in members]
        fewer = [[member for member in members if member != head] for head in members]
        named = {
            "curve": list(sets),
            "complete": [circuit.corrupted(members)],
            "greedy": [circuit.corrupted_outside(greedy, layout)],
        } | {
            name: [circuit.corrupted_outside(some, layout) for some in drawn]
            for name, drawn in (
                ("random", circuit.random_sets(size, heads, self.seed)),
                ("outside", circuit.random_sets(size, outside, self.seed)),
                ("minimal", fewer),
            )
        }
        measured = self._sets(
            split.judged, [patching for several in named.values() for patching in several]
        )
        shares = iter(circuit.faithfulness(measured, names))
        scores = {name: list(islice(shares, len(several))) for name, several in named.items()}
        values = np.stack([sums.patched[0] for sums in measured])
        lost = values[:, size : size + 1] - values[:, -len(fewer) :]
        scores["circuit"] = [scores["curve"][size]]
        scores["minimal"] = circuit.faithfulness(measured, names, lost)
        full = float(np.mean([sums.clean for sums in measured]))
        return scores, (full, float(values[:, 0].mean()))

    def _links(
        self,
        split: circuit.Halves,
        members: Sequence[Head],
        circuits: Sequence[frozenset[Head]],
        found_names: Sequence[str],
        judged_names: Sequence[str],
    ) -> list[tuple[PathEffect, float]]:
        """Edges between members, chosen on one half and measured on the other."""
        layout, between = self.source.layout, set(members)
        every = tuple(
            path
            for path in paths.every_path(layout, self.shared)
            if path.sender in between and (not path.receivers or between & set(path.receivers))
        )
        plan = replace(self.plan, trials=(), paths=every, mlps="free")
        measured = self.measure(replace(plan, pairs=self._pairs(split.search)), "edges")
        changes, gaps = judge.moved(measured, DIRECTIONS)
        chosen = circuit.links(every, changes, gaps, found_names, circuits, self.least, self.seed)
        if not chosen:
            return []
        links: tuple[Path, ...] = tuple(chosen)
        plan = replace(plan, paths=links, pairs=self._pairs(split.judged))
        again = self.measure(plan, "edges")
        edges = judge.edges(links, again, DIRECTIONS, judged_names, {})
        return list(zip(edges, chosen.values(), strict=True))

    def _means(self, pairs: Sequence[PreparedPair]) -> tuple[dict[Site, Floats], str]:
        """Mean outputs [T, H, d_v] over clean and corrupted prompts, and what they are over."""
        longest = max(max(pair.lengths) for pair in self.pairs)
        same = {length for pair in self.pairs for length in pair.lengths} == {longest}
        sums: dict[Site, Floats] = {}
        count = 0
        for numbers in batches(pairs, self.plan.tokens):
            for side in ("clean", "corrupted"):
                activations = Activations(["z"], self.source.layout.sites)
                batch = [getattr(pairs[n], side) for n in numbers]
                observe(self.source, batch, activations)
                for site, z in activations.values["z"].items():
                    total = arrays.doubles(z).sum(0).swapaxes(0, 1)  # [T, H, d_v]
                    total = total if same else total.sum(0, keepdims=True)
                    sums[site] = sums[site] + total if site in sums else total
                count += len(batch) * (1 if same else batch[0].length)
        means = {
            site: np.broadcast_to(values / count, (longest, *values.shape[1:]))
            for site, values in sums.items()
        }
        return means, "positions" if same else "tokens"

    def _described(
        self, pairs: Sequence[PreparedPair], members: Sequence[Head]
    ) -> tuple[dict[Head, str], dict[Head, tuple[tuple[float, ...], ...]]]:
        """What members do on the clean prompts, and their maps on the first."""
        batch = [pair.clean for pair in pairs]
        observer = score_batch(self.source, batch)
        roles = {
            scored.head: scored.does.name for scored in observer.result() if scored.does is not None
        }
        shown = self.pairs[0].clean
        if shown.length > LONGEST:
            return roles, {}
        activations = Activations(["pattern"], {head.site for head in members})
        observe(self.source, [shown], activations)
        maps = activations.values["pattern"]
        return roles, {
            head: tuple(
                tuple(round(float(value), 3) for value in row)
                for row in arrays.to_numpy(maps[head.site][0, head.index])
            )
            for head in members
        }
