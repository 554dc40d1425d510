"""How many heads can go: taken away one by one, in an order of importance and in random ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from attnviz.ablation.groups import Group
from attnviz.ablation.measure import Bench, Summed
from attnviz.ablation.metrics import Metric
from attnviz.ablation.settings import AblationSettings
from attnviz.effects import CurvePoint, Effect
from attnviz.errors import UsageError
from attnviz.records import Head, Layout

Progress = Callable[[str, int, int], None]

STEPS = 10
"""Heads are ranked again after every tenth of them."""


def curve(
    bench: Bench,
    effects: Sequence[Effect],
    settings: AblationSettings,
    metric: Metric,
    layout: Layout,
    progress: Progress,
) -> tuple[CurvePoint, ...]:
    """The metric with more and more heads taken away, the least important first.

    Args:
        bench: where it is measured.
        effects: of every head alone.
        settings: the order, and how many random ones beside it.
        metric: what is measured.
        layout: the heads.
        progress: called with the stage.

    Raises:
        UsageError: the effects of single heads are missing.
    """
    single = {e.heads[0]: e for e in effects if len(e.heads) == 1}
    if set(single) != set(layout):
        raise UsageError(
            "a curve takes every head away; leave {heads} out", heads=settings.heads or ...
        )
    heads = tuple(layout)
    orders: dict[str, list[Head]] = {}
    if settings.order != "random":
        orders[settings.order] = _ranked(heads, single, settings, metric)
    if settings.remeasure and settings.order == "effect":
        orders["effect"] = _remeasured(bench, orders["effect"], metric, progress)
    count = max(1, settings.random_orders) if settings.order == "random" else settings.random_orders
    for number in range(count):
        order = list(heads)
        random.Random(f"{settings.seed}/{number}").shuffle(order)
        orders[f"random {number + 1}"] = order
    points: list[CurvePoint] = []
    for name, order in orders.items():
        points += _walk(bench, name, order, layout, progress)
    return tuple(points)


def _ranked(
    heads: Sequence[Head], single: dict[Head, Effect], settings: AblationSettings, metric: Metric
) -> list[Head]:
    """The least important first."""

    def importance(head: Head) -> tuple[float, ...]:
        effect = single[head]
        cost = effect.change * metric.worse
        if settings.order == "gradient":
            return (effect.gradient or 0.0,)
        if settings.order == "role":  # heads without a role first
            return (float(bool(effect.does)), cost)
        return (cost,)

    return sorted(heads, key=importance)


def _remeasured(bench: Bench, order: list[Head], metric: Metric, progress: Progress) -> list[Head]:
    """The same, ranking what is left again after every tenth of the heads."""
    gone: list[Head] = []
    left = list(order)
    step = max(1, len(order) // STEPS)
    while left:
        gone, left = gone + left[:step], left[step:]
        if len(left) > 1:
            groups = [Group(f"{len(gone)}+{head.name}", (*gone, head)) for head in left]
            changes = _changes(bench, groups, progress, "ranking again").mean_changes()[0]
            ranked = np.argsort(changes * metric.worse, kind="stable")
            left = [left[n] for n in ranked]
    return gone


def _walk(
    bench: Bench, name: str, order: Sequence[Head], layout: Layout, progress: Progress
) -> list[CurvePoint]:
    groups = [Group(f"first {n}", tuple(order[:n])) for n in range(1, len(order) + 1)]
    means, halves = _changes(bench, groups, progress, f"curve, {name}").mean_changes()
    known = ~np.isnan(halves)
    points = [CurvePoint(name, 0, "", 0.0, 0.0 if known.any() else None,
                         0.0 if known.any() else None)]  # fmt: skip
    for n, head in enumerate(order):
        change, half = float(means[n]), float(halves[n])
        low, high = (change - half, change + half) if known[n] else (None, None)
        points.append(CurvePoint(name, n + 1, layout.name(head), change, low, high))
    return points


def _changes(bench: Bench, groups: Sequence[Group], progress: Progress, stage: str) -> Summed:
    measured = []
    for batch in bench.measure(groups):
        measured += batch
        progress(stage, len(measured), len(bench.plan.trials))
    return Summed.of(measured, len(groups))
