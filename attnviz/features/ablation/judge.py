"""What can be said of each group: its changes, their intervals, and whether it is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from attnviz.core.heads import Head
from attnviz.core.scores import HeadScores
from attnviz.core.source import Source
from attnviz.features.ablation.measure import Floats
from attnviz.features.ablation.metrics import Metric
from attnviz.features.ablation.nearness import Nearness
from attnviz.features.ablation.result import Change, Effect, Often, OneLess
from attnviz.features.ablation.settings import AblationSettings
from attnviz.features.ablation.summed import Summed, centers, estimates
from attnviz.scoring.groups import Group
from attnviz.statistics.order import Occurrences, most_moved

ROUNDING = 8
"""Changes of so many units in the last place of the model's numbers are no more than rounding."""

UNITS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""The distance of 1 to the next number of a type."""


def rounding(source: Source, base: float, positions: int) -> float:
    """The size of a change that rounding alone makes."""
    unit = UNITS.get(source.info.dtype.split(".")[-1], UNITS["float32"])
    return ROUNDING * unit * max(1.0, abs(base)) / math.sqrt(max(positions, 1))


def smallest_of_interest(settings: AblationSettings, metric: Metric, stake: float) -> float | None:
    """The smallest effect of interest in the metric's unit, a share of what is at stake."""
    return None if metric.compares else settings.smallest * abs(stake)


def judged(
    groups: Sequence[Group],
    summed: Summed,
    settings: AblationSettings,
    metric: Metric,
    noise: float,
    smallest: float | None,
) -> tuple[Effect, ...]:
    """Every group with its changes by each method, its verdict and its rank."""
    changes = _changes(summed, settings, metric, noise, smallest)
    verdicts = [None if smallest is None else verdict(by, metric.worse, smallest) for by in changes]
    size = [by[0].change * metric.worse for by in changes]
    real = sorted((n for n in range(len(groups)) if abs(size[n]) > noise), key=lambda n: -size[n])
    ranks = {number: rank for rank, number in enumerate(real, start=1)}
    return tuple(
        Effect(group.name, group.heads, changes[n], verdicts[n], ranks.get(n))
        for n, group in enumerate(groups)
    )


def verdict(by: Sequence[Change], worse: int, smallest: float) -> str | None:
    """What methods together say, see :attr:`attnviz.features.ablation.result.Effect.verdict`."""
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
    """The ends of the joint interval, positive for the worse; infinite where they are not known."""
    if change.joint_low is None or change.joint_high is None:
        return -math.inf, math.inf
    low, high = sorted((change.joint_low * worse, change.joint_high * worse))
    return low, high


def stood(
    effects: Sequence[Effect], near: Mapping[str, Mapping[Head, Nearness]]
) -> tuple[Effect, ...]:
    """The effects with how far what stood in for heads was from what they hand on."""
    return tuple(
        replace(effect, by=tuple(_stood(change, effect.heads, near) for change in effect.by))
        for effect in effects
    )


def _stood(
    change: Change, heads: Sequence[Head], near: Mapping[str, Mapping[Head, Nearness]]
) -> Change:
    some = [near[change.method][head] for head in heads if head in near.get(change.method, {})]
    off = [fill.off for fill in some if fill.off is not None]
    return replace(
        change,
        apart=_mean([fill.apart for fill in some]),
        off=_mean(off),
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
    """The effects with what is known of their heads beside the changes."""
    place = {head: number for number, head in enumerate(source.layout)}
    alone = {effect.heads[0]: effect.change for effect in effects if len(effect.heads) == 1}
    known = []
    for effect in effects:
        if len(effect.heads) > 1:
            members = [alone[head] for head in effect.heads if head in alone]
            whole = len(members) == len(effect.heads)
            known.append(replace(effect, members=float(sum(members)) if whole else None))
            continue
        number = place[effect.heads[0]]
        score = scores[number]
        known.append(
            replace(
                effect,
                mean_share=shares.get(effect.heads[0]),
                gradient=None if slopes is None else float(slopes[0][number]),
                signed=None if slopes is None else float(slopes[1][number]),
                does=score.does.name if score.does else "",
                rests=score.rests.name if score.rests else "",
            )
        )
    return tuple(known)


def _one_less(summed: Summed, settings: AblationSettings) -> list[OneLess] | None:
    """Of every change what it is without the text that moves it most; None unless asked for."""
    own = list(dict.fromkeys(summed.clusters))
    if not settings.stability or len(own) < 2:
        return None

    def center(places: Sequence[int]) -> Floats:
        names = {own[place] for place in places}
        some = zip(summed.texts, summed.clusters, strict=True)
        return centers(
            summed.only([text for text, name in some if name in names]), settings.average
        )

    first = [summed.texts[summed.clusters.index(name)] for name in own]
    places, values = most_moved(center, len(own))
    return [OneLess(first[place] + 1, value) for place, value in zip(places, values, strict=True)]


def _changes(
    summed: Summed,
    settings: AblationSettings,
    metric: Metric,
    noise: float,
    smallest: float | None,
) -> list[tuple[Change, ...]]:
    """For each group, the change by each method with its intervals."""
    methods, groups = summed.changes.shape[1:]
    found = estimates(summed, settings.average, noise, smallest)
    worse = (summed.changes * metric.worse > 0).mean(0).reshape(-1)
    one_less = _one_less(summed, settings)
    listed = []
    for group in range(groups):
        by = []
        for number, method in enumerate(settings.methods[:methods]):
            n = number * groups + group
            ends = found.low, found.high, *found.joint, found.mean.low, found.mean.high
            low, high, least, most, mean_low, mean_high = (_known(end[n]) for end in ends)
            sure = None if least is None or most is None else least > 0 or most < 0
            if metric.compares:  # never below 0, and so is no end of an interval
                low, least, mean_low = (
                    None if end is None else max(end, 0.0) for end in (low, least, mean_low)
                )
            by.append(
                Change(
                    method,
                    float(found.center[n]),
                    low,
                    high,
                    least,
                    most,
                    worse=None if metric.compares else float(worse[n]),
                    sure=None if metric.compares else sure,
                    largest=_known(found.largest[n]),
                    detectable=None if metric.compares else _known(found.detectable[n]),
                    one_less=None if one_less is None else one_less[n],
                    mean=float(found.mean.value[n]),
                    mean_low=mean_low,
                    mean_high=mean_high,
                    often_worse=_often(found.often, n, metric.worse),
                    often_better=_often(found.often, n, -metric.worse),
                )
            )
        listed.append(tuple(by))
    return listed


def _often(found: Occurrences | None, place: int, sign: int) -> Often | None:
    """In how many texts a change of interest goes one way; None where none is of interest."""
    if found is None:
        return None
    texts, least = (
        (found.above, found.least_above) if sign > 0 else (found.below, found.least_below)
    )
    return Often(int(texts[place]), float(least[place]))


def _known(value: float) -> float | None:
    """A number; None for one that is not known."""
    return float(value) if math.isfinite(value) else None
