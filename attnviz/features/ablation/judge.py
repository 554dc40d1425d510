"""What can be said of each group, from sums by text: its changes, and whether it is needed.

How many heads can be removed, one after the other: ordered on one part, measured on the other.

An order that was chosen on the texts it is then measured on fits them better than others: its cost
would look too small. The parts are those of :mod:`attnviz.core.split`, but that ``halves`` are the
halves that fill each other, which have texts of the same lengths: what a head says at a position is
known from texts that are as long.
"""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Floats
from attnviz.core.heads import Head, Layout
from attnviz.core.scores import HeadScores
from attnviz.core.settings import Progress
from attnviz.core.source import Source
from attnviz.core.split import HALVES, Values, sides_by_name
from attnviz.errors import InputError, UsageError
from attnviz.features.ablation.measure import Bench, Measured, Nearness, Plan
from attnviz.features.ablation.result import Change, CurvePoint, Effect, Kept, OneLess
from attnviz.features.ablation.settings import AblationSettings
from attnviz.interventions.judge import Family, judge
from attnviz.interventions.metrics import Metric
from attnviz.scoring.select import Group
from attnviz.statistics.clusters import LEAST, ClusterSums, merge_copies
from attnviz.statistics.histogram import none_if_nan
from attnviz.statistics.order import Medians, largest_share, most_moved, trimmed_means
from attnviz.statistics.ratios import fieller


@dataclass(frozen=True, slots=True)
class Summed:
    """Sums by text, in the order of the texts."""

    texts: tuple[int, ...]  # their numbers
    # for each, what it belongs to; texts of one cluster are not independent
    clusters: tuple[int, ...]
    rows: NDArray[np.int64]  # int [texts], positions
    base: Floats  # [texts], sums of the metric
    changes: Floats  # [texts, methods, groups]
    gradients: Floats  # [texts, heads], of each text's mean; no columns unless asked for

    @classmethod
    def of(cls, measured: Sequence[Measured], clusters: Sequence[int]) -> Summed:
        """Put the trials of each text together."""
        ordered = sorted(range(len(measured)), key=lambda n: (measured[n].text, n))
        texts = tuple(dict.fromkeys(measured[n].text for n in ordered))
        row = {text: i for i, text in enumerate(texts)}
        rows, base = np.zeros(len(texts), np.int64), np.zeros(len(texts))
        changes = np.zeros((len(texts), *measured[0].changes.shape))
        slopes = np.zeros((len(texts), len(measured[0].gradients)))
        for n in ordered:
            trial, i = measured[n], row[measured[n].text]
            rows[i] += trial.positions
            base[i] += trial.base
            changes[i] += trial.changes
            slopes[i] += trial.gradients
        belong = tuple(clusters[text] for text in texts)
        return cls(texts, belong, rows, base, changes, slopes / np.maximum(rows, 1)[:, None])

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return len(set(self.clusters))

    def only(self, texts: Collection[int]) -> Summed:
        """Return the sums of some texts."""
        chosen = [row for row, text in enumerate(self.texts) if text in texts]
        return Summed(
            tuple(self.texts[row] for row in chosen),
            tuple(self.clusters[row] for row in chosen),
            self.rows[chosen],
            self.base[chosen],
            self.changes[chosen],
            self.gradients[chosen],
        )

    def by(self, methods: slice) -> Summed:
        """Return the sums of some methods."""
        return replace(self, changes=self.changes[:, methods])

    @property
    def names(self) -> list[str]:
        """What each text belongs to, as a name."""
        return [str(cluster) for cluster in self.clusters]

    def mean_base(self) -> tuple[float, float | None, float | None]:
        """Return the metric on the full model, and its interval where there is one."""
        clusters = ClusterSums.of(*merge_copies(self.names, self.base[:, None], self.rows[:, None]))
        mean, half = float(clusters.mean()[0]), float(clusters.half()[0])
        return (mean, mean - half, mean + half) if math.isfinite(half) else (mean, None, None)


def estimates(summed: Summed, average: str, rounding: float = 0.0) -> Family:
    """Judge all changes [methods * groups] as one family; medians alone have joint intervals."""
    changes = summed.changes.reshape(len(summed.texts), -1)
    family = judge(
        changes,
        summed.rows,
        summed.names,
        rounding=rounding * math.sqrt(summed.count),
        size=np.zeros(len(changes)),
        pooled_rounding=rounding,
    )
    if average == "median":
        return family
    mean, absent = family.pooled, np.full(changes.shape[1], np.nan)
    ends = (
        trimmed_means(family.values) if average == "trimmed" else (mean.value, mean.low, mean.high)
    )
    return replace(family, typical=Medians(*ends, absent, absent, absent))


ROUNDING = 8
"""Changes of so many units in the last place of the model's numbers are no more than rounding."""

UNITS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The distance of 1 to the next number of a type."""


def rounding(source: Source, base: float, positions: int) -> float:
    """Return the size of a change that rounding alone makes."""
    unit = UNITS.get(source.info.dtype.split(".")[-1], UNITS["float32"])
    return ROUNDING * unit * max(1.0, abs(base)) / math.sqrt(max(positions, 1))


def judged(
    groups: Sequence[Group],
    summed: Summed,
    settings: AblationSettings,
    metric: Metric,
    noise: float,
    smallest: float | None,
    near: Mapping[str, Mapping[Head, Nearness]],
) -> tuple[Effect, ...]:
    """Judge every group by each method and rank it; ``near``: how far fills are from outputs."""
    family = estimates(summed, settings.average, noise)
    largest, often = largest_share(family.sums), family.often(smallest or 0.0)
    worse = (summed.changes * metric.worse > 0).mean(0).reshape(-1)
    one_less, compares = _one_less(summed, settings), metric.compares

    def change(method: str, n: int, heads: Sequence[Head]) -> Change:
        estimate, fills = family[n], near.get(method, {})
        distances = [fills[head] for head in heads if head in fills]
        worse_in, better_in = (often[n] or (None, None))[:: metric.worse or 1]
        low, least, mean_low = (  # a distance is never below 0, and so is no end of an interval
            end if end is None or not compares else max(end, 0.0)
            for end in (estimate.low, estimate.joint_low, estimate.mean_low)
        )
        return Change(
            method,
            estimate.value,
            low,
            estimate.high,
            least,
            estimate.joint_high,
            worse=None if compares else float(worse[n]),
            sure=None if compares else estimate.sure,
            largest=none_if_nan(largest[n]),
            detectable=None if compares else estimate.detectable,
            apart=_mean([fill.apart for fill in distances]),
            off=_mean([fill.off for fill in distances if fill.off is not None]),
            one_less=None if one_less is None else one_less[n],
            mean=estimate.mean,
            mean_low=mean_low,
            mean_high=estimate.mean_high,
            often_worse=worse_in,
            often_better=better_in,
        )

    changes = [
        tuple(
            change(method, number * len(groups) + n, group.heads)
            for number, method in enumerate(settings.methods)
        )
        for n, group in enumerate(groups)
    ]
    verdicts = [None if smallest is None else verdict(by, metric.worse, smallest) for by in changes]
    size = [by[0].change * metric.worse for by in changes]
    real = sorted((n for n in range(len(groups)) if abs(size[n]) > noise), key=lambda n: -size[n])
    ranks = {number: rank for rank, number in enumerate(real, start=1)}
    return tuple(
        Effect(group.name, group.heads, changes[n], verdicts[n], ranks.get(n))
        for n, group in enumerate(groups)
    )


def verdict(by: Sequence[Change], worse: int, smallest: float) -> str | None:
    """Judge what methods together say, see :attr:`~attnviz.features.ablation.result.Effect`."""
    if len(by) < 2 or any(change.sure is None for change in by):
        return None
    spans = [_toward(change, worse) for change in by]
    signs = [math.copysign(1, c.change * worse) if c.sure else 0.0 for c in by]
    costs = sum(bool(c.sure) and low >= smallest for c, (low, _) in zip(by, spans, strict=True))
    gains = sum(bool(c.sure) and high <= -smallest for c, (_, high) in zip(by, spans, strict=True))
    worse_by, better_by = signs.count(1.0), signs.count(-1.0)
    if all(-smallest < low and high < smallest for low, high in spans):
        return "small"
    if worse_by and better_by:
        return "depends"
    if costs >= 2 or gains >= 2:
        return "needed" if costs else "better without"
    if costs + gains == 1 == worse_by + better_by:
        return "depends"
    return "worse" if worse_by else "better" if better_by else ""


def _toward(change: Change, worse: int) -> tuple[float, float]:
    """Give the joint interval's ends, positive for the worse; infinite where they are not known."""
    if change.joint_low is None or change.joint_high is None:
        return -math.inf, math.inf
    low, high = sorted((change.joint_low * worse, change.joint_high * worse))
    return low, high


def kept(
    effects: Sequence[Effect], summed: Summed, plan: Plan, noise: float, smallest: float | None
) -> tuple[Effect, ...]:
    """Add what rules keep of each effect; ``summed``: by methods, then rules, then their nulls."""
    least, rules = max(noise, smallest or 0.0), list(plan.rules)

    def by_rule(number: int, effect: Effect, index: int) -> Kept | None:
        """Return what one rule keeps of the effect with a number; None where no head has a rule."""
        method = rules[index]
        heads = [head for head in effect.heads if plan.is_named(method, head)]
        if not heads:
            return None
        names = dict.fromkeys(pool.names[head] for pool in plan.rules[method] for head in heads)
        ruled_row = len(plan.methods) + index
        sums = summed.changes[:, [0, ruled_row, ruled_row + len(rules)], number]
        lost, ruled, null = merge_copies(summed.names, *sums.T)
        rows = int(summed.rows.sum())
        change = Kept(method, ", ".join(names), float(ruled.sum()) / rows)
        large = abs(float(lost.sum())) / rows >= least
        return _shared_out(change, lost, ruled, null) if large else change

    return tuple(
        replace(
            effect,
            kept=tuple(
                share
                for place in range(len(rules))
                if (share := by_rule(number, effect, place)) is not None
            ),
        )
        for number, effect in enumerate(effects)
    )


def _shared_out(change: Kept, lost: Floats, ruled: Floats, null: Floats) -> Kept:
    """Say what is kept of what is lost, by sums over texts [G]; nothing where that may be 0."""
    low, high = fieller(ruled, lost)
    if math.isnan(low) and len(lost) >= LEAST:
        return change
    null_low, null_high = fieller(null, lost)
    margin = fieller(null - ruled, lost)[0]
    return replace(
        change,
        share=1 - float(ruled.sum() / lost.sum()),
        low=none_if_nan(1 - high),
        high=none_if_nan(1 - low),
        null=1 - float(null.sum() / lost.sum()),
        null_low=none_if_nan(1 - null_high),
        null_high=none_if_nan(1 - null_low),
        explains=None if math.isnan(margin) else bool(margin > 0 and high < 1),
    )


def _mean(values: Sequence[float]) -> float | None:
    return float(sum(values) / len(values)) if values else None


def described(
    effects: Sequence[Effect],
    source: Source,
    scores: Sequence[HeadScores],
    slopes: tuple[Floats, Floats] | None,
    shares: Mapping[Head, float],
) -> tuple[Effect, ...]:
    """Return the effects with what is known of their heads beside the changes."""
    index = {head: number for number, head in enumerate(source.layout)}
    single = {effect.heads[0]: effect.change for effect in effects if len(effect.heads) == 1}
    listed = []
    for effect in effects:
        if len(effect.heads) > 1:
            members = [single[head] for head in effect.heads if head in single]
            complete = len(members) == len(effect.heads)
            listed.append(replace(effect, members=float(sum(members)) if complete else None))
            continue
        number = index[effect.heads[0]]
        score = scores[number]
        listed.append(
            replace(
                effect,
                mean_share=shares.get(effect.heads[0]),
                gradient=None if slopes is None else float(slopes[0][number]),
                signed=None if slopes is None else float(slopes[1][number]),
                does=score.does.name if score.does else "",
                rests=score.rests.name if score.rests else "",
            )
        )
    return tuple(listed)


def _one_less(summed: Summed, settings: AblationSettings) -> list[OneLess] | None:
    """Of every change what it is without the text that moves it most; None unless asked for."""
    clusters = list(dict.fromkeys(summed.clusters))
    if not settings.stability or len(clusters) < 2:
        return None

    def center(indices: Sequence[int]) -> Floats:
        names = {clusters[index] for index in indices}
        texts = zip(summed.texts, summed.clusters, strict=True)
        part = summed.only([text for text, name in texts if name in names])
        return estimates(part, settings.average).typical.center

    first = [summed.texts[summed.clusters.index(name)] for name in clusters]
    indices, values = most_moved(center, len(clusters))
    return [OneLess(first[index] + 1, value) for index, value in zip(indices, values, strict=True)]


Parts = tuple[frozenset[int], frozenset[int]]
"""Numbers of the texts that an order is chosen on, and of those that it is measured on."""
STEPS = 10
"""Heads are ranked again after every tenth of them."""


@dataclass(frozen=True)
class Curve:
    """Takes heads away one after the other, the least important first, by one method."""

    bench: Bench
    parts: Parts
    clusters: Sequence[int]
    settings: AblationSettings
    layout: Layout
    progress: Progress

    def points(self, effects: Sequence[Effect], summed: Summed) -> tuple[CurvePoint, ...]:
        """Get the metric with more and more heads ablated, in every order."""
        settings, layout, metric = self.settings, self.layout, self.bench.plan.metric
        single = {e.heads[0]: n for n, e in enumerate(effects) if len(e.heads) == 1}
        if set(single) != set(layout):
            raise UsageError(
                "a curve ablates every head; leave out {select}", select=settings.select or ...
            )
        criterion = "effect" if settings.order in (None, "remeasured") else settings.order
        orders: dict[str, list[Head]] = {}
        if criterion != "random":
            half = summed.only(self.parts[0])
            changes = estimates(half, settings.average).typical.center
            slopes = np.abs(half.gradients).mean(0) if criterion == "gradient" else None
            index = {head: number for number, head in enumerate(layout)}

            def importance(head: Head) -> tuple[float, ...]:
                cost = float(changes[single[head]]) * metric.worse
                if slopes is not None:
                    return (float(slopes[index[head]]),)
                if criterion == "role":  # heads without a role first
                    return (float(bool(effects[single[head]].does)), cost)
                return (cost,)

            orders[criterion] = sorted(layout, key=importance)
        if settings.order == "remeasured":
            orders["effect"] = self._remeasured(orders["effect"])
        count = settings.random_orders
        for number in range(max(1, count) if criterion == "random" else count):
            order = list(layout)
            random.Random(f"{settings.seed}/{number}").shuffle(order)
            orders[f"random {number + 1}"] = order
        return tuple(
            point for name, order in orders.items() for point in self._in_order(name, order)
        )

    def _remeasured(self, order: list[Head]) -> list[Head]:
        """Return the same, ranking what is left again after every tenth of the heads."""
        removed: list[Head] = []
        queue, worse = list(order), self.bench.plan.metric.worse
        step = max(1, len(order) // STEPS)
        while queue:
            removed, queue = removed + queue[:step], queue[step:]
            if len(queue) > 1:
                groups = [Group(f"{len(removed)}+{head.name}", (*removed, head)) for head in queue]
                changes = self._estimates(groups, self.parts[0], "ranking again").center
                queue = [queue[n] for n in np.argsort(changes * worse, kind="stable")]
        return removed

    def _in_order(self, name: str, order: Sequence[Head]) -> Iterator[CurvePoint]:
        """Yield the cost of an order."""
        groups = [Group(f"first {n}", tuple(order[:n])) for n in range(1, len(order) + 1)]
        typical = self._estimates(groups, self.parts[1], f"curve, {name}")
        bounded = not np.isnan(typical.low).any()
        start = 0.0 if bounded else None
        yield CurvePoint(name, 0, "", 0.0, start, start)
        for n, head in enumerate(order):
            ends = (float(typical.low[n]), float(typical.high[n])) if bounded else (None, None)
            center = float(typical.center[n])
            yield CurvePoint(name, n + 1, self.layout.name(head), center, *ends)

    def _estimates(self, groups: Sequence[Group], texts: Collection[int], stage: str) -> Medians:
        measured: list[Measured] = []
        total = sum(trial.text in texts for trial in self.bench.plan.trials)
        for batch in self.bench.measure(groups, texts=texts, first_method=True):
            measured += batch
            self.progress(stage, len(measured), total)
        return estimates(Summed.of(measured, self.clusters), self.settings.average).typical


def order_parts(
    fold: Sequence[int], split: str, names: Mapping[int, str], seed: int, values: Values
) -> Parts:
    """Give the texts that an order is chosen on, and those it is measured on; both on one alone."""
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
