"""What stays when the texts are drawn anew: the roles of heads, and the head most alike each.

Every draw takes each text a Poisson(1) number of times, as the bootstrap of intervals does, and
says again which roles are sure. Chance and what other roles' targets get are those of all texts;
likeness is drawn from the texts on which heads were compared.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from attnviz.core.heads import Head, Layout, SiteKind
from attnviz.features.profile import likeness
from attnviz.features.profile.deciding import decide
from attnviz.features.profile.result import Stability
from attnviz.features.profile.state import RESAMPLES, State
from attnviz.statistics.clusters import LEAST
from attnviz.statistics.exact import Floats
from attnviz.statistics.simultaneous import poisson


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
    """The number of the first head of a kind."""
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
    errors: Floats = np.sqrt(many * np.maximum(squares, 0)) / np.where(drawn.b > 0, drawn.b, np.nan)
    return errors


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
