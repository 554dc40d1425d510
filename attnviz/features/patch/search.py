"""Finding and judging a circuit: which runs there are, in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from attnviz.captures.activations import Activations
from attnviz.core.heads import Head, Site
from attnviz.core.source import ForwardRequest, Source
from attnviz.errors import UsageError
from attnviz.features.patch import circuit, judge, paths
from attnviz.features.patch.measure import PatchPlan, PatchSums
from attnviz.features.patch.pairs import PreparedPair
from attnviz.features.patch.paths import Path
from attnviz.features.patch.result import DIRECTIONS, Circuit, PatchEffect, PatchShare, PathEffect
from attnviz.features.patch.runs import batches
from attnviz.features.patch.targets import Patching
from attnviz.scoring.observe import ScoreObserver

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
        size: heads of the circuit; None for the smallest one that is faithful enough.
        faithful: how faithful that is.
        least: share of an edge.
    """

    source: Source
    pairs: Sequence[PreparedPair]
    plan: PatchPlan
    shared: Mapping[Site, int]
    measure: Measure
    seed: int
    size: int | None
    faithful: float
    least: float

    def run(self) -> tuple[Circuit, list[PatchSums], tuple[PatchEffect, ...]]:
        """The circuit, every head alone on the pairs that it was found on, and its effects.

        Raises:
            InputError: too few pairs, or no heads that carry the answer.
        """
        layout, seed = self.source.layout, self.seed
        names = judge.clusters(self.pairs)
        split = circuit.halves(names, seed)
        found_names = [names[n] for n in split.found]
        judged_names = [names[n] for n in split.judged]
        first = self._pairs(split.found)
        alone = self.measure(replace(self.plan, pairs=first), "heads")
        changes, gaps = judge.moved(alone, DIRECTIONS)
        judge.gap(alone, found_names, self.plan.metric, self.source)
        order = circuit.ranked(changes, gaps, layout)
        most = min(circuit.CURVE, len(order)) if self.size is None else max(
            min(circuit.CURVE, len(order)), self.size
        )  # fmt: skip
        sets = [circuit.without(order[:n], layout) for n in range(most + 1)]
        curve_found = [share.share for share in self._faithful(split.found, sets, found_names)]
        size = self._size(curve_found)
        members = order[:size]
        scores = self._judged(split, members, sets, judged_names)
        circuits = circuit.resampled(changes, gaps, found_names, layout, size, seed)
        edges = self._links(split, members, circuits, found_names, judged_names)
        effects = judge.effects(self.plan.trials, alone, DIRECTIONS, found_names, seed)
        single = {
            head: (effect.denoise.share, effect.noise.share)
            for head, effect in zip(layout, effects, strict=True)
            if effect.denoise is not None and effect.noise is not None
        }
        roles, patterns = self._described(first, members)
        assembled = circuit.assemble(
            "size" if self.size is not None else "faithful", split, order, size, single, scores,
            curve_found, circuits, edges, self.least, roles, patterns, self._means(first)[1],
        )  # fmt: skip
        return assembled, alone, effects

    def _pairs(self, numbers: Sequence[int]) -> tuple[PreparedPair, ...]:
        """Some of the pairs, numbered anew."""
        return tuple(replace(self.pairs[n], number=place) for place, n in enumerate(numbers))

    def _size(self, curve: Sequence[float]) -> int:
        """The smallest size that is faithful enough, or the one that was asked for."""
        if self.size is not None:
            if self.size > len(self.source.layout):
                raise UsageError(
                    "a circuit of {size} heads is more than the {} that there are",
                    len(self.source.layout),
                    size=self.size,
                )
            return self.size
        enough = [n for n, share in enumerate(curve) if n and share >= self.faithful]
        return enough[0] if enough else len(curve) - 1

    def _faithful(
        self,
        numbers: Sequence[int],
        sets: Sequence[Patching],
        names: Sequence[str],
        means: Mapping[Site, Tensor] | None = None,
    ) -> list[PatchShare]:
        """Faithfulness of sets, the first of which is the empty one."""
        plan = replace(
            self.plan, pairs=self._pairs(numbers), trials=tuple(sets), directions=("noise",),
            means=means,
        )  # fmt: skip
        return circuit.faithfulness(self.measure(plan, "circuits"), names, self.seed)

    def _judged(
        self,
        split: circuit.Halves,
        members: Sequence[Head],
        sets: Sequence[Patching],
        names: Sequence[str],
    ) -> dict[str, list[PatchShare]]:
        """Everything on the other half: the circuit, what is outside, and without each member."""
        layout, size = self.source.layout, len(members)
        drawn = [circuit.without(heads, layout) for heads in
                 circuit.random_sets(size, layout, self.seed)]  # fmt: skip
        fewer = [
            circuit.without([member for member in members if member != head], layout)
            for head in members
        ]
        every = [*sets, circuit.corrupted(members), *drawn, *fewer]
        plan = replace(
            self.plan, pairs=self._pairs(split.judged), trials=tuple(every), directions=("noise",)
        )
        measured = self.measure(plan, "circuits")
        shares = circuit.faithfulness(measured, names, self.seed)
        count = len(sets)
        values = np.stack([sums.patched[0] for sums in measured])
        lost = values[:, size : size + 1] - values[:, count + 1 + len(drawn) :]
        means, _ = self._means(self._pairs(split.found))
        mean = self._faithful(split.judged, [sets[0], circuit.without(members, layout)], names,
                              means)  # fmt: skip
        return {
            "curve": shares[:count],
            "circuit": [shares[size]],
            "complete": [shares[count]],
            "random": shares[count + 1 : count + 1 + len(drawn)],
            "minimal": circuit.faithfulness(measured, names, self.seed, lost),
            "mean": mean[1:],
        }

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
        measured = self.measure(replace(plan, pairs=self._pairs(split.found)), "edges")
        changes, gaps = judge.moved(measured, DIRECTIONS)
        chosen = circuit.links(every, changes, gaps, found_names, circuits, self.least, self.seed)
        if not chosen:
            return []
        kept: tuple[Path, ...] = tuple(chosen)
        plan = replace(plan, paths=kept, pairs=self._pairs(split.judged))
        again = self.measure(plan, "edges")
        edges = judge.edges(kept, again, DIRECTIONS, judged_names, self.seed, {})
        return list(zip(edges, chosen.values(), strict=True))

    def _means(self, pairs: Sequence[PreparedPair]) -> tuple[dict[Site, Tensor], str]:
        """Mean outputs [T, H, d_v] over clean and corrupted prompts, and what they are over."""
        longest = max(max(pair.lengths) for pair in self.pairs)
        same = {length for pair in self.pairs for length in pair.lengths} == {longest}
        sums: dict[Site, Tensor] = {}
        count = 0
        for numbers in batches(pairs, self.plan.tokens):
            for side in ("clean", "corrupted"):
                kept = Activations(["z"], self.source.layout.sites)
                batch = [getattr(pairs[n], side) for n in numbers]
                self.source.forward(batch, [kept], ForwardRequest(hidden=False))
                for site, z in kept.values["z"].items():
                    total = z.double().sum(0).transpose(0, 1)  # [T, H, d_v]
                    total = total if same else total.sum(0, keepdim=True)
                    sums[site] = sums[site] + total if site in sums else total
                count += len(batch) * (1 if same else batch[0].length)
        means = {site: (values / count).expand(longest, -1, -1) for site, values in sums.items()}
        return means, "positions" if same else "tokens"

    def _described(
        self, pairs: Sequence[PreparedPair], members: Sequence[Head]
    ) -> tuple[dict[Head, str], dict[Head, tuple[tuple[float, ...], ...]]]:
        """What members do on the clean prompts, and their maps on the first."""
        batch = [pair.clean for pair in pairs]
        observer = ScoreObserver(batch, self.source.layout)
        self.source.forward(batch, [observer], ForwardRequest(hidden=False))
        roles = {
            scored.head: scored.does.name for scored in observer.result() if scored.does is not None
        }
        shown = self.pairs[0].clean
        if shown.length > LONGEST:
            return roles, {}
        kept = Activations(["pattern"], {head.site for head in members})
        self.source.forward([shown], [kept], ForwardRequest(hidden=False))
        maps = kept.values["pattern"]
        return roles, {
            head: tuple(
                tuple(round(float(value), 3) for value in row)
                for row in maps[head.site][0, head.index].cpu()
            )
            for head in members
        }
