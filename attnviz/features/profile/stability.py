"""What stays when the texts are drawn anew: the roles of heads, and the head most alike each.

Every draw takes each text a Poisson(1) number of times, as the bootstrap of intervals does, and
says again which roles are sure. Chance and what other roles' targets get are those of all texts;
likeness is drawn from the texts on which heads were compared.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import Head, Layout, SiteKind
from attnviz.features.profile import likeness
from attnviz.features.profile.result import Stability
from attnviz.features.profile.state import RESAMPLES, State
from attnviz.scoring.roles import ROLES
from attnviz.scoring.scores import SCORES
from attnviz.statistics.clusters import LEAST, LEVEL, POWER, half_widths, holm, one_sided
from attnviz.statistics.histogram import Floats
from attnviz.statistics.simultaneous import poisson

Bools = NDArray[np.bool_]


def asked_of() -> tuple[tuple[int, float, float], ...]:
    """Give the column of every score that a role rests on, with the mean and lift it must reach."""
    return tuple(
        (list(SCORES).index(evidence.score), evidence.mean, evidence.lift)
        for role in ROLES.values()
        for evidence in role.evidence
    )


@dataclass(frozen=True, eq=False, slots=True)
class Decisions:
    """What is sure."""

    sure: Bools  # bool [H, n], of scores that roles rest on; others are True
    questions: int  # how many there were
    # [H, n], the mean from which a score would have been sure in 80 % of such samples; NaN for
    # those that no role rests on. By Bonferroni's correction, which Holm's begins with, where there
    # are no simultaneous intervals.
    detectable: Floats

    def unsure(self, head: int) -> frozenset[str]:
        """Return the scores of a head that are no evidence."""
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
    """Decide which scores surely reach what roles take: ``mean``, ``error``, ``chance`` [H, n]."""
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


def redrawn(state: State) -> list[Stability]:
    """Of every head, in the order of the layout."""
    layout = state.about.layout
    roles: list[Counter[str]] = [Counter() for _ in layout]
    near: list[Counter[Head]] = [Counter() for _ in layout]
    _roles(state, roles)
    _nearest(state, near)
    return [
        Stability(dict(given.most_common()), tuple(heads.most_common()))
        for given, heads in zip(roles, near, strict=True)
    ]


def first_of(layout: Layout, kind: SiteKind) -> int:
    """Return the number of the first head of a kind."""
    kinds = layout.kinds
    return sum(sum(layout.heads[before]) for before in kinds[: kinds.index(kind)])


def _roles(state: State, counts: list[Counter[str]]) -> None:
    total, drawn = state.total(), state.bootstrap
    rows = np.maximum(total.rows, 1)
    chance = total.chances / rows
    known = state.sums.count >= LEAST
    freedom = np.where(known, state.sums.count - 1.0, np.nan)
    means, errors = drawn.means(), _errors(state)
    for draw in range(RESAMPLES):
        share = drawn.b[draw] / rows
        mean = np.nan_to_num(means[draw])
        sums = replace(
            total,
            values=mean * drawn.b[draw],
            chances=total.chances * share,
            rows=drawn.b[draw],
            shares=total.shares * share[..., None],
        )
        decisions = decide(mean, errors[draw], chance, freedom=freedom)
        for number, given in enumerate(counts):
            given.update(role.title for role in sums.roles(number, decisions.unsure(number)))


def _errors(state: State) -> Floats:
    """[R, H, n], the standard error of every draw's means."""
    drawn, mean, count = state.bootstrap, state.bootstrap.means(), state.sums.count
    squares = drawn.aa.value() - 2 * mean * drawn.ab.value() + mean * mean * drawn.bb
    many = np.where(count > 1, count / np.maximum(count - 1, 1), np.nan)
    return np.sqrt(many * np.maximum(squares, 0)) / np.where(drawn.b > 0, drawn.b, np.nan)


def _nearest(state: State, counts: list[Counter[Head]]) -> None:
    layout, sample = state.about.layout, state.tally.alike
    if not sample:
        return
    draws = poisson(state.about.seed, [f"{text.key:016x}" for text in sample], RESAMPLES)
    for weights in draws:
        texts = dict(zip((text.key for text in sample), weights.tolist(), strict=True))
        for kind in layout.kinds:
            heads = [head for head in layout if head.site.kind == kind]
            apart, _ = likeness.distances(sample, kind, len(heads), texts)
            if len(heads) < 2 or np.isnan(apart).any():
                continue
            np.fill_diagonal(apart, np.inf)
            for number, other in enumerate(apart.argmin(1).tolist(), first_of(layout, kind)):
                counts[number][heads[other]] += 1
