"""When annotation gives a head a role: the same rule for grammar and for names.

Ten points above the best rule without any grammar (Voita et al. 2019, arXiv:1905.09418) on the
documents that the head was not chosen on, and surely above it: by Holm's correction over all
questions of a run. Where heads are chosen on one half of the documents, these are the ones that got
ten points there; where everything is chosen and measured on the same data, every head, direction
and relation. A head that is right in fewer than :data:`LEAST_SHARE` of the cases does not find
them, however bad the rule is that it is held against. A handful of cases leaves zero out by chance,
on untrained weights too, so there is a least number.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from attnviz.core.interval import Interval
from attnviz.core.scores import Estimate, Role, Score
from attnviz.statistics.families import LEVEL, holm

TEN_POINTS = 0.1
LEAST_SHARE = 0.25
"""Of the cases, that a head with a role is right in."""
LEAST_CASES, LEAST_DOCUMENTS = 30, 10
"""Held-out cases, and documents that they are from."""
SCORE = "accuracy"


def enough(cases: int, documents: int) -> bool:
    """Whether there are so many that a role can be given at all."""
    return cases >= LEAST_CASES and documents >= LEAST_DOCUMENTS


def large(accuracy: Interval, margin: Interval) -> bool:
    """Whether held-out figures are as large as a role takes."""
    return (accuracy.value or 0.0) >= LEAST_SHARE and (margin.value or 0.0) >= TEN_POINTS


def sure(p: Sequence[float], asked: int) -> list[bool]:
    """Which margins are surely above 0, of a family of questions (Holm 1979)."""
    others = np.ones(asked - len(p))
    adjusted = holm(np.concatenate([np.asarray(p, np.float64), others]))[: len(p)]
    return [bool(p <= 1 - LEVEL) for p in adjusted]


def evidence(
    name: str, accuracy: Interval, baseline: float | None, count: int, of: str = ""
) -> tuple[Role, Estimate]:
    """A role from annotation, as those of a text: chance is the best rule without attention."""
    mean, low, high = accuracy.value, accuracy.low, accuracy.high
    lift = mean / baseline if mean is not None and baseline else None
    role = Role(name, SCORE, Score(mean, baseline, lift, count), few_rows=False, of=of)
    return role, Estimate(mean, baseline, lift, count, 0, low, high)
