"""How many heads can be removed, one after the other: ordered on one part, measured on the other.

An order that was chosen on the texts it is then measured on fits them better than others: its cost
would look too small. The parts are those of :mod:`attnviz.core.split`, but that ``halves`` are the
halves that fill each other, which have texts of the same lengths: what a head says at a position is
known from texts that are as long.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from attnviz.core.heads import Head, Layout
from attnviz.core.settings import Progress
from attnviz.core.split import HALVES, Values, sides_by_name
from attnviz.errors import InputError, UsageError
from attnviz.features.ablation.judge import Summed, estimates
from attnviz.features.ablation.measure import Bench, Floats, Measured
from attnviz.features.ablation.result import CurvePoint, Effect
from attnviz.features.ablation.settings import AblationSettings
from attnviz.interventions.metrics import Metric
from attnviz.scoring.select import Group

Parts = tuple[frozenset[int], frozenset[int]]
"""Numbers of the texts that an order is chosen on, and of those that it is measured on."""
STEPS = 10
"""Heads are ranked again after every tenth of them."""


def curve(
    bench: Bench,
    effects: Sequence[Effect],
    summed: Summed,
    parts: Parts,
    clusters: Sequence[int],
    settings: AblationSettings,
    metric: Metric,
    layout: Layout,
    progress: Progress,
) -> tuple[CurvePoint, ...]:
    """The metric with more and more heads ablated, the least important first; by one method."""
    alone = {e.heads[0]: n for n, e in enumerate(effects) if len(e.heads) == 1}
    if set(alone) != set(layout):
        raise UsageError(
            "a curve ablates every head; leave out {select}", select=settings.select or ...
        )
    by = "effect" if settings.order in (None, "remeasured") else settings.order
    walk = _Walk(bench, parts, clusters, settings, progress)
    heads = tuple(layout)
    orders: dict[str, list[Head]] = {}
    if by != "random":
        half = summed.only(walk.chosen_on)
        changes = estimates(half, settings.average).typical.center
        slopes = np.abs(half.gradients).mean(0) if by == "gradient" else None
        place = {head: number for number, head in enumerate(layout)}

        def importance(head: Head) -> tuple[float, ...]:
            cost = float(changes[alone[head]]) * metric.worse
            if slopes is not None:
                return (float(slopes[place[head]]),)
            if by == "role":  # heads without a role first
                return (float(bool(effects[alone[head]].does)), cost)
            return (cost,)

        orders[by] = sorted(heads, key=importance)
    if settings.order == "remeasured":
        orders["effect"] = walk.remeasured(orders["effect"], metric)
    count = max(1, settings.random_orders) if by == "random" else settings.random_orders
    for number in range(count):
        order = list(heads)
        random.Random(f"{settings.seed}/{number}").shuffle(order)
        orders[f"random {number + 1}"] = order
    points: list[CurvePoint] = []
    for name, order in orders.items():
        points += walk.points(name, order, layout)
    return tuple(points)


class _Walk:
    """Takes heads away one after the other, on one half of the texts or the other."""

    def __init__(
        self,
        bench: Bench,
        parts: Parts,
        clusters: Sequence[int],
        settings: AblationSettings,
        progress: Progress,
    ) -> None:
        self._bench, self._clusters, self._progress = bench, clusters, progress
        self._average = settings.average
        self.chosen_on, self.measured_on = parts

    def remeasured(self, order: list[Head], metric: Metric) -> list[Head]:
        """The same, ranking what is left again after every tenth of the heads."""
        gone: list[Head] = []
        left = list(order)
        step = max(1, len(order) // STEPS)
        while left:
            gone, left = gone + left[:step], left[step:]
            if len(left) > 1:
                groups = [Group(f"{len(gone)}+{head.name}", (*gone, head)) for head in left]
                changes = self._estimates(groups, self.chosen_on, "ranking again")[0]
                ranked = np.argsort(changes * metric.worse, kind="stable")
                left = [left[n] for n in ranked]
        return gone

    def points(self, name: str, order: Sequence[Head], layout: Layout) -> list[CurvePoint]:
        """The cost of an order."""
        groups = [Group(f"first {n}", tuple(order[:n])) for n in range(1, len(order) + 1)]
        means, lows, highs = self._estimates(groups, self.measured_on, f"curve, {name}")
        known = not np.isnan(lows).any()
        start = 0.0 if known else None
        points = [CurvePoint(name, 0, "", 0.0, start, start)]
        for n, head in enumerate(order):
            ends = (float(lows[n]), float(highs[n])) if known else (None, None)
            points.append(CurvePoint(name, n + 1, layout.name(head), float(means[n]), *ends))
        return points

    def _estimates(
        self, groups: Sequence[Group], texts: Collection[int], stage: str
    ) -> tuple[Floats, Floats, Floats]:
        measured: list[Measured] = []
        total = sum(trial.text in texts for trial in self._bench.plan.trials)
        for batch in self._bench.measure(groups, texts=texts, first_method=True):
            measured += batch
            self._progress(stage, len(measured), total)
        found = estimates(Summed.of(measured, self._clusters), self._average).typical
        return found.center, found.low, found.high


def order_parts(
    fold: Sequence[int], split: str, names: Mapping[int, str], seed: int, values: Values
) -> Parts:
    """The texts that an order is chosen on, and those it is measured on; both on one alone."""
    if split == HALVES:
        parts = [frozenset(n for n, side in enumerate(fold) if side == s) for s in (0, 1)]
    else:
        numbers = np.array(list(names))
        masks = sides_by_name(split, list(names.values()), seed, values)
        parts = [frozenset(numbers[mask].tolist()) for mask in masks]
    first, second = parts
    if first and second:
        return first, second
    if len(set(names.values())) > 1:
        raise InputError(
            "{split} leaves {} texts to order heads on and {} to measure on; give more texts",
            len(first), len(second), split=split,
        )  # fmt: skip
    return first | second, first | second
