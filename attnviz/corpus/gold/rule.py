"""When annotation gives a head a role: the same rule for grammar and for names.

Ten points above the best rule without any grammar (Voita et al. 2019, arXiv:1905.09418) on the
documents that the head was not chosen on, with an interval that leaves out zero. An interval from a
handful of cases leaves it out by chance, on untrained weights too, so there is a least number.
"""

from __future__ import annotations

from attnviz.core.scores import Estimate, Role, Score
from attnviz.statistics.share import CaseShare

TEN_POINTS = 0.1
LEAST_CASES, LEAST_DOCUMENTS = 30, 10
"""Held-out cases, and documents that they are from."""
SCORE = "accuracy"


def enough(cases: int, documents: int) -> bool:
    """Whether there are so many that a role can be given at all."""
    return cases >= LEAST_CASES and documents >= LEAST_DOCUMENTS


def sure(margin: CaseShare) -> bool:
    """Whether a held-out margin is that of a role."""
    return (margin.value or 0.0) >= TEN_POINTS and (margin.low or 0.0) > 0


def evidence(
    name: str, accuracy: CaseShare, baseline: float | None, count: int, of: str = ""
) -> tuple[Role, Estimate]:
    """A role from annotation as the roles of a text are: chance is the best rule without attention.

    Args:
        name: of the role.
        accuracy: of the head, held out.
        baseline: accuracy of that rule on the same cases.
        count: cases.
        of: what the role is about, such as a relation.
    """
    mean, low, high = accuracy.value, accuracy.low, accuracy.high
    lift = mean / baseline if mean is not None and baseline else None
    role = Role(name, SCORE, Score(mean, baseline, lift, count), few_rows=False, of=of)
    return role, Estimate(mean, baseline, lift, count, 0, low, high)
