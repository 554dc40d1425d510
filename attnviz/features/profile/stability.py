"""What stays when the texts are drawn anew: the roles of heads, and the head most alike each.

Every draw takes each text a Poisson(1) number of times, as the bootstrap of intervals does, and
says again which roles are sure. Chance and what other roles' targets get are those of all texts;
likeness is drawn from the texts on which heads were compared.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from attnviz.core.arrays import Bools, Floats
from attnviz.core.heads import Head, Layout, SiteKind
from attnviz.features.profile import likeness
from attnviz.features.profile.result import Stability
from attnviz.features.profile.state import RESAMPLES, State
from attnviz.scoring.roles import ROLES
from attnviz.scoring.scores import SCORES
from attnviz.statistics.clusters import LEAST, LEVEL, POWER, half_widths, holm, one_sided
from attnviz.statistics.simultaneous import poisson


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
    excess = mean[:, columns] - bound
    if width is not None:
        tested = ~np.isnan(width[:, columns] + excess)
        answers = excess > width[:, columns] * error[:, columns]
        needed = width[:, columns]
    else:
        assert freedom is not None
        p = one_sided(excess, error[:, columns], freedom[:, columns])
        tested = ~np.isnan(p)
        answers = holm(p) <= 1 - LEVEL
        one_side = 2 * (1 - LEVEL) / max(int(tested.sum()), 1)
        needed = half_widths(freedom[:, columns], 1 - one_side)
    sure = np.ones(mean.shape, np.bool_)
    sure[:, columns] = answers & tested
    detectable = np.full(mean.shape, np.nan)
    detectable[:, columns] = np.where(tested, bound + (needed + POWER) * error[:, columns], np.nan)
    return Decisions(sure, int(tested.sum()), detectable)


def redrawn(state: State) -> list[Stability]:
    """Of every head, in the order of the layout."""
    layout = state.about.layout
    roles: list[Counter[str]] = [Counter() for _ in layout]
    near: list[Counter[Head]] = [Counter() for _ in layout]
    _roles(state, roles)
    _nearest(state, near)
    return [
        Stability(dict(counts.most_common()), tuple(heads.most_common()))
        for counts, heads in zip(roles, near, strict=True)
    ]


def first_of(layout: Layout, kind: SiteKind) -> int:
    """Return the number of the first head of a kind."""
    kinds = layout.kinds
    return sum(sum(layout.heads[earlier]) for earlier in kinds[: kinds.index(kind)])


def _roles(state: State, counts: list[Counter[str]]) -> None:
    total, draws = state.total(), state.bootstrap
    rows = np.maximum(total.rows, 1)
    chance = total.chances / rows
    measured = state.sums.count >= LEAST
    freedom = np.where(measured, state.sums.count - 1.0, np.nan)
    means, errors = draws.means(), _errors(state)
    for draw in range(RESAMPLES):
        share = draws.b[draw] / rows
        mean = np.nan_to_num(means[draw])
        sums = replace(
            total,
            values=mean * draws.b[draw],
            chances=total.chances * share,
            rows=draws.b[draw],
            shares=total.shares * share[..., None],
        )
        decisions = decide(mean, errors[draw], chance, freedom=freedom)
        for number, roles in enumerate(counts):
            roles.update(role.title for role in sums.roles(number, decisions.unsure(number)))


def _errors(state: State) -> Floats:
    """[R, H, n], the standard error of every draw's means."""
    draws, mean, count = state.bootstrap, state.bootstrap.means(), state.sums.count
    squares = draws.aa.value() - 2 * mean * draws.ab.value() + mean * mean * draws.bb
    correction = np.where(count > 1, count / np.maximum(count - 1, 1), np.nan)
    return np.sqrt(correction * np.maximum(squares, 0)) / np.where(draws.b > 0, draws.b, np.nan)


def _nearest(state: State, counts: list[Counter[Head]]) -> None:
    layout, sample = state.about.layout, state.tally.alike
    if not sample:
        return
    draws = poisson(state.about.seed, [f"{text.key:016x}" for text in sample], RESAMPLES)
    for weights in draws:
        texts = dict(zip((text.key for text in sample), weights.tolist(), strict=True))
        for kind in layout.kinds:
            heads = [head for head in layout if head.site.kind == kind]
            distances, _ = likeness.distances(sample, kind, len(heads), texts)
            if len(heads) < 2 or np.isnan(distances).any():
                continue
            np.fill_diagonal(distances, np.inf)
            for number, near in enumerate(distances.argmin(1).tolist(), first_of(layout, kind)):
                counts[number][heads[near]] += 1
