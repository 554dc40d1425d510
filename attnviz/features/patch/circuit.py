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
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from attnviz.core.heads import Head, Layout, Site
from attnviz.core.split import HALVES, NO_VALUES, Values, sides_by_name
from attnviz.errors import InputError
from attnviz.features.patch import judge
from attnviz.features.patch.measure import Floats, PatchSums
from attnviz.features.patch.paths import Path
from attnviz.features.patch.result import (
    Circuit,
    Greedy,
    Link,
    Member,
    PatchShare,
    PathEffect,
    Size,
)
from attnviz.features.patch.targets import Patching, Target
from attnviz.statistics.order import ROUNDING
from attnviz.statistics.ratios import mean, ratios

RANDOM = 20
RESAMPLES = 50
CURVE = 24
"""Sizes of the curve at most."""
FEWEST = 10
"""Independent pairs that a circuit needs."""

PatchRun = Callable[[Sequence[int], Sequence[Patching], bool], list[PatchSums]]
"""Numbers of pairs, sets of heads to corrupt in the clean run, and whether by means."""


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
    sizes: Floats = np.abs(changes.sum(0) / gaps.sum()).max(0)
    return sizes


def ranked(changes: Floats, gaps: Floats, layout: Layout) -> list[Head]:
    """Heads, the most important first; see :func:`importance`."""
    size, heads = importance(changes, gaps), list(layout)
    return [heads[n] for n in np.argsort(-size, kind="stable")]


def corrupted_outside(heads: Collection[Head], layout: Layout) -> Patching:
    """A run of the clean prompts with all heads outside of a set as in the corrupted run."""
    return corrupted([head for head in layout if head not in heads])


def corrupted(heads: Sequence[Head]) -> Patching:
    """A run of the clean prompts with some heads as in the corrupted run."""
    rows: dict[Site, tuple[int, ...]] = {}
    for head in heads:
        rows[head.site] = (*rows.get(head.site, ()), head.index)
    layer = min((head.layer for head in heads), default=0)
    return Patching(Target("set", "z", tuple(heads), rows, layer))


def random_sets(size: int, heads: Sequence[Head], seed: int) -> list[list[Head]]:
    """Sets of as many heads, drawn alike from all of them; none where there are too few."""
    draw = random.Random(f"{seed}/circuits")
    return [draw.sample(heads, size) for _ in range(RANDOM)] if size <= len(heads) else []


def smallest(curve: Sequence[float], least: float) -> int | None:
    """The smallest size, from 1, that keeps no less than a share of the gap, and no more over 1."""
    near = (n for n, share in enumerate(curve) if n and _off(share) <= 1 - least)
    return next(near, None)


def eliminated(
    heads: Sequence[Head],
    faithful: Callable[[Sequence[Sequence[Head]]], Sequence[float]],
    least: float,
    size: int | None,
) -> list[Head]:
    """The heads that are left when one after another is left out, the least missed first."""
    members = list(heads)
    off = _off(faithful([members])[0])
    while len(members) > max(size or 1, 1):
        fewer = [[other for other in members if other != head] for head in members]
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
) -> list[PatchShare]:
    """(m(C) - m(∅)) / (m(full) - m(∅)) of every set; the first of those measured is ∅.

    ``changes`` [pairs, sets], what to hold against m(full) - m(∅) instead.
    """
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
        PatchShare(
            float(moved[:, n].mean()), float(ends.value[n]),
            judge.known(ends.low[n]), judge.known(ends.high[n]),
        )
        for n in range(moved.shape[1])
    ]  # fmt: skip


def resampled(
    changes: Floats, gaps: Floats, names: Sequence[str], layout: Layout, size: int, seed: int
) -> list[frozenset[Head]]:
    """The circuits of resamples of the clusters, of the same size."""
    clusters = list(dict.fromkeys(names))
    rows = {name: [n for n, own in enumerate(names) if own == name] for name in clusters}
    draw, circuits = random.Random(f"{seed}/resamples"), []
    for _ in range(RESAMPLES):
        some = [n for name in draw.choices(clusters, k=len(clusters)) for n in rows[name]]
        circuits.append(frozenset(ranked(changes[some], gaps[some], layout)[:size]))
    return circuits


def jaccard(heads: Collection[Head], others: Sequence[Collection[Head]]) -> float:
    """Mean of |A ∩ B| / |A ∪ B|."""
    mine = set(heads)
    return float(np.mean([len(mine & set(other)) / len(mine | set(other)) for other in others]))


def links(
    paths: Sequence[Path],
    changes: Floats,
    gaps: Floats,
    names: Sequence[str],
    circuits: Sequence[Collection[Head]],
    least: float,
    seed: int,
) -> dict[Path, float]:
    """Edges that restore or remove a share of at least ``least``, and how often they do.

    ``paths``: between members, and to the logits; ``changes`` [pairs, 2, paths], where the circuit
    was found; ``gaps`` [pairs].
    """
    clusters = list(dict.fromkeys(names))
    rows = {name: [n for n, own in enumerate(names) if own == name] for name in clusters}
    draw, often = random.Random(f"{seed}/resamples"), np.zeros(len(paths))
    for members in circuits:
        some = [n for name in draw.choices(clusters, k=len(clusters)) for n in rows[name]]
        there = np.array([path.sender in members and _into(path, members) for path in paths])
        often += there & (importance(changes[some], gaps[some]) >= least)
    size = importance(changes, gaps)
    return {
        path: float(often[n] / len(circuits)) for n, path in enumerate(paths) if size[n] >= least
    }


def _into(path: Path, members: Collection[Head]) -> bool:
    """Whether a path leads to a member, or to the logits."""
    return not path.receivers or any(head in members for head in path.receivers)


def assemble(
    chosen: str,
    divided: str,
    enough: bool,
    metric: tuple[float, float],
    split: Halves,
    order: Sequence[Head],
    size: int,
    single: Mapping[Head, tuple[float, float]],
    scores: Mapping[str, Sequence[PatchShare]],
    by_mean: PatchShare | None,
    curve_found: Sequence[float],
    greedy: Sequence[Head],
    circuits: Sequence[Collection[Head]],
    edges: Sequence[tuple[PathEffect, float]],
    least: float,
    roles: Mapping[Head, str],
    patterns: Mapping[Head, tuple[tuple[float, ...], ...]],
    means: str,
) -> Circuit:
    """Everything about a circuit in one value; arguments as its attributes."""
    members = order[:size]
    curve = [
        Size(n, None if not n else order[n - 1], scores["curve"][n], curve_found[n])
        for n in range(len(scores["curve"]))
    ]
    return Circuit(
        tuple(
            Member(
                head, *single[head], scores["minimal"][n],
                sum(head in circuit for circuit in circuits) / len(circuits),
                roles.get(head, ""), patterns.get(head, ()),
            )
            for n, head in enumerate(members)
        ),
        tuple(
            Link(edge, often)
            for edge, often in sorted(edges, key=lambda pair: -abs(pair[0].first.share))
        ),
        divided, len(split.search), len(split.judged), chosen, enough, *metric,
        scores["circuit"][0], by_mean, scores["complete"][0], tuple(curve),
        Greedy(tuple(greedy), scores["greedy"][0]),
        tuple(score.share for score in scores["random"]),
        tuple(score.share for score in scores["outside"]),
        least, len(circuits), jaccard(members, circuits), means,
    )  # fmt: skip
