"""What can be said of each group: its changes, their intervals, and whether it is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from attnviz.core.heads import Head
from attnviz.core.scores import HeadScores
from attnviz.core.source import Source
from attnviz.features.ablation.measure import Floats
from attnviz.features.ablation.metrics import Metric
from attnviz.features.ablation.result import Change, Effect
from attnviz.features.ablation.settings import AblationSettings
from attnviz.features.ablation.summed import Summed, together
from attnviz.scoring.groups import Group

ROUNDING = 8
"""Changes of so many units in the last place of the model's numbers are no more than rounding."""


def rounding(source: Source, base: float, positions: int) -> float:
    """The size of a change that rounding alone makes.

    Args:
        source: the model, whose numbers have a precision.
        base: the metric on the full model.
        positions: over how many positions the change is a mean.
    """
    kind = getattr(torch, source.info.dtype.split(".")[-1], torch.float32)
    unit = float(torch.finfo(kind).eps)
    return ROUNDING * unit * max(1.0, abs(base)) / math.sqrt(max(positions, 1))


def smallest_of_interest(settings: AblationSettings, metric: Metric, base: float) -> float | None:
    """The smallest effect of interest in the metric's unit; None for a distance."""
    return None if metric.compares else settings.smallest * abs(base)


def judged(
    groups: Sequence[Group],
    summed: Summed,
    settings: AblationSettings,
    metric: Metric,
    noise: float,
    base: float,
) -> tuple[Effect, ...]:
    """Every group with its changes by each method, its verdict and its rank.

    Args:
        groups: what was ablated.
        summed: what was measured.
        settings: how.
        metric: what.
        noise: see :func:`rounding`.
        base: the metric on the full model.
    """
    changes = _changes(summed, settings, metric)
    smallest = smallest_of_interest(settings, metric, base)
    verdicts = [None if smallest is None else verdict(by, metric.worse, smallest) for by in changes]
    size = [by[0].change * metric.worse for by in changes]
    real = sorted((n for n in range(len(groups)) if abs(size[n]) > noise), key=lambda n: -size[n])
    ranks = {number: rank for rank, number in enumerate(real, start=1)}
    return tuple(
        Effect(group.name, group.heads, changes[n], verdicts[n], ranks.get(n))
        for n, group in enumerate(groups)
    )


def verdict(by: Sequence[Change], worse: int, smallest: float) -> str | None:
    """What methods together say, see :attr:`attnviz.features.ablation.result.Effect.verdict`.

    Args:
        by: the change by each method.
        worse: the sign of a change for the worse.
        smallest: the smallest size of interest.
    """
    if len(by) < 2 or any(change.sure is None for change in by):
        return None
    signs = [math.copysign(1, c.change * worse) if c.sure else 0.0 for c in by]
    large = [s if abs(c.change) >= smallest else 0.0 for s, c in zip(signs, by, strict=True)]
    costs, gains = large.count(1), large.count(-1)
    if costs >= 2 and not gains:
        return "needed"
    if gains >= 2 and not costs:
        return "better without"
    if costs or gains:
        return "depends"
    return "small" if any(signs) else ""


def described(
    effects: Sequence[Effect],
    source: Source,
    scores: Sequence[HeadScores],
    slopes: tuple[Floats, Floats] | None,
    shares: Mapping[Head, float],
) -> tuple[Effect, ...]:
    """The effects with what is known of their heads beside the changes.

    Args:
        effects: of :func:`judged`.
        source: the model.
        scores: what each head does on the texts, in the order of the layout.
        slopes: the size and the signed value of gradients, by head.
        shares: of each head's output how much is its mean, where they are known.
    """
    place = {head: number for number, head in enumerate(source.layout)}
    alone = {one.heads[0]: one.change for one in effects if len(one.heads) == 1}
    found = []
    for one in effects:
        if len(one.heads) > 1:
            members = [alone[head] for head in one.heads if head in alone]
            whole = len(members) == len(one.heads)
            found.append(replace(one, members=float(sum(members)) if whole else None))
            continue
        number = place[one.heads[0]]
        score = scores[number]
        found.append(
            replace(
                one,
                mean_share=shares.get(one.heads[0]),
                gradient=None if slopes is None else float(slopes[0][number]),
                signed=None if slopes is None else float(slopes[1][number]),
                does=score.does.name if score.does else "",
                rests=score.rests.name if score.rests else "",
            )
        )
    return tuple(found)


def _changes(
    summed: Summed, settings: AblationSettings, metric: Metric
) -> list[tuple[Change, ...]]:
    """For each group, the change by each method with its intervals."""
    methods, groups = summed.changes.shape[1:]
    found = together(summed, settings.average, settings.seed)
    worse = (summed.changes * metric.worse > 0).mean(0).reshape(-1)
    listed = []
    for group in range(groups):
        by = []
        for number, method in enumerate(settings.methods[:methods]):
            n = number * groups + group
            low, high, least, most = (
                _known(end[n]) for end in (found.low, found.high, *found.joint)
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
                    sure=None if metric.compares or most is None else bool(found.sure[n]),
                    largest=_known(found.largest[n]),
                )
            )
        listed.append(tuple(by))
    return listed


def _known(value: float) -> float | None:
    """A number; None for one that is not known."""
    return float(value) if math.isfinite(value) else None
