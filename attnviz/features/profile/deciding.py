"""Which roles are sure: a head shows one where its score surely reaches what the role takes.

All heads and all scores that roles rest on are one family of questions: is the mean at least the
role's mean, and its lift over chance? Each is a test against that bound, and Holm's correction (or
intervals that hold for all at once) keeps the chance that any role is given wrongly at 5 %. Chance
is taken for known, and so is what other roles' targets get on the same rows.

Notation in shapes: H heads, n scores.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.scoring.roles import ROLES
from attnviz.scoring.scores import SCORES
from attnviz.statistics.exact import Floats
from attnviz.statistics.families import LEVEL, POWER, half_widths, holm, one_sided

Bools = NDArray[np.bool_]


def asked_of() -> tuple[tuple[int, float, float], ...]:
    """The column of every score that a role rests on, with the mean and lift it must reach."""
    return tuple(
        (list(SCORES).index(evidence.score), evidence.mean, evidence.lift)
        for role in ROLES.values()
        for evidence in role.evidence
    )


@dataclass(frozen=True, eq=False, slots=True)
class Decisions:
    """What is sure.

    Attributes:
        sure: bool [H, n], of scores that roles rest on; others are True.
        questions: how many there were.
        detectable: [H, n], the mean from which a score would have been sure in 80 % of such
            samples; NaN for those that no role rests on. By Bonferroni's correction, which Holm's
            begins with, where there are no simultaneous intervals.
    """

    sure: Bools
    questions: int
    detectable: Floats

    def unsure(self, head: int) -> frozenset[str]:
        """The scores of a head that are no evidence."""
        return frozenset(name for name, sure in zip(SCORES, self.sure[head], strict=True)
                         if not sure)  # fmt: skip


def decide(
    mean: Floats,
    error: Floats,
    chance: Floats,
    *,
    freedom: Floats | None = None,
    width: Floats | None = None,
) -> Decisions:
    """Which scores surely reach what their roles take.

    ``mean`` [H, n]; ``error`` their standard errors, ``chance`` that of uniform attention.
    """
    columns = [column for column, _, _ in asked_of()]
    bounds = np.array([(least, lift) for _, least, lift in asked_of()])
    bound = np.fmax(bounds[:, 0], bounds[:, 1] * chance[:, columns])
    apart = mean[:, columns] - bound
    if width is not None:
        asked = ~np.isnan(width[:, columns] + apart)
        answers = apart > width[:, columns] * error[:, columns]
        needed = width[:, columns]
    else:
        assert freedom is not None
        p = one_sided(apart, error[:, columns], freedom[:, columns])
        asked = ~np.isnan(p)
        answers = holm(p) <= 1 - LEVEL
        one_side = 2 * (1 - LEVEL) / max(int(asked.sum()), 1)
        needed = half_widths(freedom[:, columns], 1 - one_side)
    sure = np.ones(mean.shape, np.bool_)
    sure[:, columns] = answers & asked
    detectable = np.full(mean.shape, np.nan)
    detectable[:, columns] = np.where(asked, bound + (needed + POWER) * error[:, columns], np.nan)
    return Decisions(sure, int(asked.sum()), detectable)
