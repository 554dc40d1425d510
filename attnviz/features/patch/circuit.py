"""The circuit: heads that do a task, found on one half of the pairs and judged on the other.

Heads are ranked by what they restore or remove alone, on the first half. A circuit is the first of
them, as few as come near to a faithfulness of 1. More than 1 is not near: heads that suppress the
answer are parts too. It is judged on the second half by running the clean prompts with all other
heads as in the corrupted run (or at their means), as Wang et al. 2022 (arXiv:2211.00593) do:
faithfulness, completeness and minimality. Resamples of the first half show how much of it is the
pairs' choice (arXiv:2510.00845).
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from attnviz.captures.trials import Activations
from attnviz.core import arrays
from attnviz.core.arrays import Floats
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.source import Source
from attnviz.core.split import HALVES, NO_VALUES, Values, sides_by_name
from attnviz.errors import InputError, UsageError
from attnviz.features.patch import paths, shares
from attnviz.features.patch import result as records
from attnviz.features.patch.measure import PatchPlan, PatchSums
from attnviz.features.patch.pairs import PreparedPair
from attnviz.features.patch.paths import Path
from attnviz.features.patch.runs import batches
from attnviz.features.patch.settings import PatchSettings
from attnviz.features.patch.sweep import Patching, Target
from attnviz.features.patch.words import not_done
from attnviz.scoring.observe import observe, score_batch
from attnviz.statistics.histogram import none_if_nan
from attnviz.statistics.order import ROUNDING
from attnviz.statistics.ratios import mean, ratios

RANDOM = 20
RESAMPLES = 50
CURVE = 24  # sizes of the curve at most
FEWEST = 10  # independent pairs that a circuit needs


@dataclass(frozen=True)
class Halves:
    """Numbers of the pairs that a circuit is found on, and of those that it is judged on."""

    search: tuple[int, ...]
    judged: tuple[int, ...]


def halves(
    names: Sequence[str], seed: int, split: str = HALVES, values: Values = NO_VALUES
) -> Halves:
    """Split pairs by their clusters."""
    clusters = len(set(names))
    if clusters < FEWEST:
        raise InputError(
            f"a circuit is found on one half of the pairs and judged on the other: {clusters} "
            f"independent ones are too few, give {FEWEST} or more"
        )
    parts = [
        tuple(np.flatnonzero(side).tolist())
        for side in sides_by_name(split, list(names), seed, values)
    ]
    if min(len({names[n] for n in part}) for part in parts) < FEWEST // 2:
        raise InputError(
            "{split} leaves {} and {} independent pairs to find a circuit on and to judge it; each "
            "part needs {}",
            *(len({names[n] for n in part}) for part in parts),
            FEWEST // 2,
            split=split,
        )
    return Halves(*parts)


def importance(changes: Floats, gaps: Floats) -> Floats:
    """Of each head, the larger of what it restores and removes: changes [pairs, 2, heads]."""
    return np.abs(changes.sum(0) / gaps.sum()).max(0)


def ranked(changes: Floats, gaps: Floats, layout: Layout) -> list[Head]:
    """Heads, the most important first; see :func:`importance`."""
    size, heads = importance(changes, gaps), list(layout)
    return [heads[n] for n in np.argsort(-size, kind="stable")]


def corrupted_outside(heads: Collection[Head], layout: Layout) -> Patching:
    """Return a run of the clean prompts with all heads outside of a set as in the corrupted run."""
    return corrupted([head for head in layout if head not in heads])


def corrupted(heads: Sequence[Head]) -> Patching:
    """Return a run of the clean prompts with some heads as in the corrupted run."""
    rows: dict[Site, tuple[int, ...]] = {}
    for head in heads:
        rows[head.site] = (*rows.get(head.site, ()), head.index)
    layer = min((head.layer for head in heads), default=0)
    return Patching(Target("set", "z", tuple(heads), rows, layer))


def random_sets(size: int, heads: Sequence[Head], seed: int) -> list[list[Head]]:
    """Return sets of as many heads, drawn alike from all of them; none where there are too few."""
    draw = random.Random(f"{seed}/circuits")
    return [draw.sample(heads, size) for _ in range(RANDOM)] if size <= len(heads) else []


def smallest(curve: Sequence[float], least: float) -> int | None:
    """Find the least size that keeps no less than a share of the gap, and no more over 1."""
    near = (n for n, share in enumerate(curve) if n and _off(share) <= 1 - least)
    return next(near, None)


def eliminated(
    heads: Sequence[Head],
    faithful: Callable[[Sequence[Sequence[Head]]], Sequence[float]],
    least: float,
    size: int | None,
) -> list[Head]:
    """Return the heads that are left when one after another is left out, the least missed first."""
    members = list(heads)
    off = _off(faithful([members])[0])
    while len(members) > max(size or 1, 1):
        fewer = [[member for member in members if member != head] for head in members]
        shares = [_off(share) for share in faithful(fewer)]
        # of equal ones the last of the ranking goes
        best = min(range(len(members)), key=lambda n: (round(shares[n], 9), -n))
        if size is None and shares[best] > max(1 - least, off):
            break
        members, off = fewer[best], shares[best]
    return members


def _off(share: float) -> float:
    """How far a faithfulness is from 1."""
    return abs(1 - share)


def nothing(measured: Sequence[PatchSums], names: Sequence[str]) -> bool:
    """Whether corrupting all heads, the first of the sets, does not surely change the metric."""
    full = np.array([sums.clean for sums in measured])
    gaps = full - np.array([sums.patched[0][0] for sums in measured])
    _, low, high = mean(gaps, names)
    return abs(gaps.sum()) < ROUNDING * max(np.abs(full).sum(), 1.0) or low <= 0 <= high


def faithfulness(
    measured: Sequence[PatchSums], names: Sequence[str], changes: Floats | None = None
) -> list[records.PatchShare]:
    """Take (m(C) - m(∅)) / (m(full) - m(∅)) of every set, of ``changes`` [pairs, sets], ∅ first."""
    values = np.stack([sums.patched[0] for sums in measured])  # [pairs, sets]
    gaps = np.array([sums.clean for sums in measured]) - values[:, 0]
    middle, low, high = mean(gaps, names)
    if nothing(measured, names):
        between = "" if math.isnan(low) else f", 95 % interval {-high:+.3g} to {-low:+.3g}"
        raise InputError(
            "there is no circuit to judge: corrupting all heads changes the metric by "
            f"{-middle:+.3g}{between} on {len(gaps)} pairs, so no share of it can be taken; change "
            "what is corrupted, or give more pairs"
        )
    moved = values - values[:, :1] if changes is None else changes
    ends = ratios(moved, gaps, names, joint=False)
    return [
        records.PatchShare(
            float(moved[:, n].mean()), float(ends.value[n]),
            none_if_nan(ends.low[n]), none_if_nan(ends.high[n]),
        )
        for n in range(moved.shape[1])
    ]  # fmt: skip


def resampled(
    changes: Floats, gaps: Floats, names: Sequence[str], layout: Layout, size: int, seed: int
) -> list[frozenset[Head]]:
    """Return the circuits of resamples of the clusters, of the same size."""
    samples = _resamples(names, seed, RESAMPLES)
    return [frozenset(ranked(changes[rows], gaps[rows], layout)[:size]) for rows in samples]


def _resamples(names: Sequence[str], seed: int, count: int) -> Iterator[list[int]]:
    """Draw clusters as often as there are some, and give the pairs that these have."""
    clusters, draw = list(dict.fromkeys(names)), random.Random(f"{seed}/resamples")
    rows = {name: [n for n, cluster in enumerate(names) if cluster == name] for name in clusters}
    for _ in range(count):
        yield [n for name in draw.choices(clusters, k=len(clusters)) for n in rows[name]]


def jaccard(heads: Collection[Head], circuits: Sequence[Collection[Head]]) -> float:
    """Mean of |A ∩ B| / |A ∪ B|."""
    mine = set(heads)
    return float(np.mean([len(mine & set(c)) / len(mine | set(c)) for c in circuits]))


def strong_links(
    paths: Sequence[Path],
    changes: Floats,
    gaps: Floats,
    names: Sequence[str],
    circuits: Sequence[Collection[Head]],
    least: float,
    seed: int,
) -> dict[Path, float]:
    """List edges of a share of ``least`` or more, by ``changes`` [pairs, 2, paths] and ``gaps``."""
    often = np.zeros(len(paths))
    samples = _resamples(names, seed, len(circuits))
    for members, rows in zip(circuits, samples, strict=True):
        inside = np.array([_is_within(path, members) for path in paths])
        often += inside & (importance(changes[rows], gaps[rows]) >= least)
    size = importance(changes, gaps)
    return {
        path: float(often[n] / len(circuits)) for n, path in enumerate(paths) if size[n] >= least
    }


def _is_within(path: Path, members: Collection[Head]) -> bool:
    """Whether a path leads from a member to a member, or to the logits."""
    to_member = any(head in members for head in path.receivers)
    return path.sender in members and (to_member or not path.receivers)


LEAST = 0.01  # share of the effect that an edge of a circuit restores or removes at least
LONGEST = 96  # tokens of a prompt whose maps are kept

Measure = Callable[[PatchPlan, str], list[PatchSums]]
"""A plan and the stage's name, to the values of its pairs in their order."""


@dataclass(frozen=True)
class Part:
    """One of the two parts of the pairs."""

    pairs: tuple[PreparedPair, ...]  # numbered anew
    names: list[str]  # what each counts with

    @classmethod
    def of(cls, pairs: Sequence[PreparedPair], numbers: Sequence[int]) -> Part:
        """Take the pairs with some numbers."""
        chosen = tuple(replace(pairs[n], number=number) for number, n in enumerate(numbers))
        return cls(chosen, shares.clusters(chosen))


@dataclass(frozen=True)
class Search:
    """What a circuit is looked for with."""

    source: Source  # the model
    plan: PatchPlan  # what all runs share, with all pairs; its trials are every head alone
    shared: Mapping[Site, int]  # key heads by layer
    measure: Measure  # runs a plan
    settings: PatchSettings  # its size or the share that it keeps; the seed of all that is drawn
    split: str  # which pairs it is found on; ``values`` what a field says of their clusters
    values: Values

    def run(self) -> tuple[Part, records.Circuit, list[PatchSums], tuple[records.PatchEffect, ...]]:
        """Give the pairs that a circuit was found on, it, and every head alone on these pairs."""
        layout, seed = self.source.layout, self.settings.seed
        requested = self.settings.circuit_size
        if requested is not None and requested > len(layout):
            raise UsageError(
                "a circuit of {circuit} heads is more than the {} that there are",
                len(layout),
                circuit=requested,
            )
        pairs = self.plan.pairs
        numbers = halves(shares.clusters(pairs), seed, self.split, self.values)
        search, judged = (Part.of(pairs, part) for part in (numbers.search, numbers.judged))
        unpatched = self._corrupted(search, [])
        shares.check_gap(unpatched, search.names, self.plan.metric)
        self._check_done(unpatched, search)
        self._check_done(self._corrupted(judged, []), judged)
        singles = self.measure(replace(self.plan, pairs=search.pairs), "heads")
        changes, gaps = shares.moved(singles, records.DIRECTIONS)
        order = ranked(changes, gaps, layout)
        limit = max(min(CURVE, len(order)), requested or 0)
        sets = [corrupted_outside(order[:n], layout) for n in range(limit + 1)]
        curve_found = [share.share for share in self._faithful(search, sets)]
        least = smallest(curve_found, self.settings.faithful)
        size, enough = requested or least or limit, bool(requested or least)
        members = order[:size]
        greedy = self._eliminated(search, order[: min(limit, max(2 * size, 8))])
        scores, (full, empty) = self._judged(judged, members, sets, greedy)
        means, means_over = self._means(search)
        by_mean = self._by_mean(judged, members, means)
        circuits = resampled(changes, gaps, search.names, layout, size, seed)
        links = self._links(search, judged, set(members), circuits)
        effects = shares.effects(self.plan.trials, singles, records.DIRECTIONS, search.names)
        single = {
            head: (effect.denoise.share, effect.noise.share)
            for head, effect in zip(layout, effects, strict=True)
            if effect.denoise is not None and effect.noise is not None
        }
        roles, patterns = self._described(search, members)
        circuit = records.Circuit(
            members=tuple(
                records.Member(
                    head, *single[head], scores["minimal"][n],
                    sum(head in resample for resample in circuits) / len(circuits),
                    roles.get(head, ""), patterns.get(head, ()),
                )
                for n, head in enumerate(members)
            ),
            links=links,
            split=self.split,
            found_on=len(search.pairs),
            judged_on=len(judged.pairs),
            chosen="faithful" if requested is None else "size",
            enough=enough,
            full=full,
            empty=empty,
            faithful=scores["curve"][size],
            faithful_mean=by_mean,
            complete=scores["complete"][0],
            curve=tuple(
                records.Size(n, None if not n else order[n - 1], share, curve_found[n])
                for n, share in enumerate(scores["curve"])
            ),
            greedy=records.Greedy(tuple(greedy), scores["greedy"][0]),
            random=tuple(score.share for score in scores["random"]),
            random_outside=tuple(score.share for score in scores["outside"]),
            least=LEAST,
            resamples=len(circuits),
            overlap=jaccard(members, circuits),
            means=means_over,
        )  # fmt: skip
        return search, circuit, singles, effects

    def _check_done(self, measured: Sequence[PatchSums], part: Part) -> None:
        """Raise InputError where the model does not do the task on these pairs."""
        plan = self.plan
        held = all(pair.against is not None for pair in plan.pairs)
        score = shares.baseline(measured, part.names, 0, held=held)
        if reason := not_done(score, plan.metric.name):
            raise InputError(
                "there is no circuit to find: {} does not do this task on {} of its pairs ({}); "
                "take another {task}, or pairs that it answers",
                self.source.info.model,
                len(measured),
                reason,
                task=...,
            )

    def _eliminated(self, part: Part, heads: Sequence[Head]) -> list[Head]:
        """Return a circuit by what heads do together, see :func:`eliminated`."""
        layout, settings = self.source.layout, self.settings

        def faithful(sets: Sequence[Sequence[Head]]) -> list[float]:
            patchings = [corrupted_outside(heads, layout) for heads in ([], *sets)]
            return [share.share for share in self._faithful(part, patchings)[1:]]

        return eliminated(heads, faithful, settings.faithful, settings.circuit_size)

    def _corrupted(
        self, part: Part, sets: Sequence[Patching], means: Mapping[Site, Floats] | None = None
    ) -> list[PatchSums]:
        """Return the metric of pairs with sets of heads corrupted, or at their means."""
        plan = replace(
            self.plan, pairs=part.pairs, trials=tuple(sets), directions=("noise",), means=means
        )
        return self.measure(plan, "circuits")

    def _faithful(self, part: Part, sets: Sequence[Patching]) -> list[records.PatchShare]:
        """Faithfulness of sets, the first of which is the empty one."""
        return faithfulness(self._corrupted(part, sets), part.names)

    def _by_mean(
        self, part: Part, members: Sequence[Head], means: Mapping[Site, Floats]
    ) -> records.PatchShare | None:
        """Faithfulness with all other heads at their means over the first half's prompts."""
        sets = [corrupted_outside(heads, self.source.layout) for heads in ([], members)]
        measured = self._corrupted(part, sets, means)
        if nothing(measured, part.names):
            return None
        return faithfulness(measured, part.names)[1]

    def _judged(
        self, part: Part, members: Sequence[Head], sets: Sequence[Patching], greedy: Sequence[Head]
    ) -> tuple[dict[str, list[records.PatchShare]], tuple[float, float]]:
        """Judge it, the outside, the greedy one, random ones and each member on the other half."""
        layout, size, seed = self.source.layout, len(members), self.settings.seed
        outside = [head for head in layout if head not in members]
        fewer = [[member for member in members if member != head] for head in members]
        named = {
            "curve": list(sets),
            "complete": [corrupted(members)],
            "greedy": [corrupted_outside(greedy, layout)],
        } | {
            name: [corrupted_outside(draw, layout) for draw in draws]
            for name, draws in (
                ("random", random_sets(size, list(layout), seed)),
                ("outside", random_sets(size, outside, seed)),
                ("minimal", fewer),
            )
        }
        measured = self._corrupted(
            part, [patching for several in named.values() for patching in several]
        )
        shares = iter(faithfulness(measured, part.names))
        scores = {name: list(islice(shares, len(several))) for name, several in named.items()}
        values = np.stack([sums.patched[0] for sums in measured])
        lost = values[:, size : size + 1] - values[:, -len(fewer) :]
        scores["minimal"] = faithfulness(measured, part.names, lost)
        full = float(np.mean([sums.clean for sums in measured]))
        return scores, (full, float(values[:, 0].mean()))

    def _links(
        self, search: Part, judged: Part, members: set[Head], circuits: Sequence[frozenset[Head]]
    ) -> tuple[records.Link, ...]:
        """Edges between members, the strongest first, chosen on one half, measured on the other."""
        candidates = paths.every_path(self.source.layout, self.shared)
        tried = tuple(path for path in candidates if _is_within(path, members))
        plan = replace(self.plan, trials=(), paths=tried, mlps="free")
        measured = self.measure(replace(plan, pairs=search.pairs), "edges")
        changes, gaps = shares.moved(measured, records.DIRECTIONS)
        chosen = strong_links(
            tried, changes, gaps, search.names, circuits, LEAST, self.settings.seed
        )
        if not chosen:
            return ()
        strong = tuple(chosen)
        measured = self.measure(replace(plan, paths=strong, pairs=judged.pairs), "edges")
        edges = shares.edges(strong, measured, records.DIRECTIONS, judged.names, {})
        links = map(records.Link, edges, chosen.values())
        return tuple(sorted(links, key=lambda link: -abs(link.edge.first.share)))

    def _means(self, part: Part) -> tuple[dict[Site, Floats], str]:
        """Mean outputs [T, H, d_v] over clean and corrupted prompts, and what they are over."""
        lengths = {length for pair in self.plan.pairs for length in pair.lengths}
        aligned, longest = len(lengths) == 1, max(lengths)
        sums: dict[Site, Floats] = {}
        count = 0
        for numbers in batches(part.pairs, self.plan.tokens):
            for side in ("clean", "corrupted"):
                activations = Activations(["z"], self.source.layout.sites)
                batch = [getattr(part.pairs[n], side) for n in numbers]
                observe(self.source, batch, activations)
                for site, z in activations.values["z"].items():
                    total = arrays.doubles(z).sum(0).swapaxes(0, 1)  # [T, H, d_v]
                    total = total if aligned else total.sum(0, keepdims=True)
                    sums[site] = sums[site] + total if site in sums else total
                count += len(batch) * (1 if aligned else batch[0].length)
        means = {
            site: np.broadcast_to(values / count, (longest, *values.shape[1:]))
            for site, values in sums.items()
        }
        return means, "positions" if aligned else "tokens"

    def _described(
        self, part: Part, members: Sequence[Head]
    ) -> tuple[dict[Head, str], dict[Head, tuple[tuple[float, ...], ...]]]:
        """Return what members do on the clean prompts, and their maps on the first."""
        observer = score_batch(self.source, [pair.clean for pair in part.pairs])
        roles = {
            scored.head: scored.does.name for scored in observer.result() if scored.does is not None
        }
        example = self.plan.pairs[0].clean
        if example.length > LONGEST:
            return roles, {}
        activations = Activations(["pattern"], {head.site for head in members})
        observe(self.source, [example], activations)
        maps = activations.values["pattern"]
        return roles, {
            head: tuple(
                tuple(round(float(value), 3) for value in row)
                for row in arrays.to_numpy(maps[head.site][0, head.index])
            )
            for head in members
        }
