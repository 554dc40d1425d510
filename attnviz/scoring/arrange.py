"""Which heads a table lists, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, to_numpy
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Site
from attnviz.core.scores import HeadScores
from attnviz.core.source import Rows
from attnviz.errors import UsageError
from attnviz.scoring.observe import ScoreObserver, allowed_keys
from attnviz.scoring.roles import ANNOTATED, MIN_ROWS, SHOWN, does_something, is_called, role_name
from attnviz.scoring.scores import SCORES


def arrange(
    heads: Sequence[HeadScores],
    *,
    role: str | None = None,
    sort: str = "layer",
    top: int | None = None,
    everything: bool = False,
    named: Sequence[HeadScores] = (),
) -> tuple[HeadScores, ...]:
    """Filter, sort and cut a list of heads."""
    role = None if role is None else role_name(role)
    annotated = [r for h in (*heads, *named) for r in h.roles if r.name in ANNOTATED]
    given = sorted({r.of for r in annotated if r.of})
    known_role = role is None or role in SHOWN or role.partition(":")[0] in ANNOTATED
    if not known_role and not any(is_called(r, str(role)) for r in annotated):
        raise UsageError(f"unknown role {role!r}; roles are {', '.join([*SHOWN, *given])}")
    by_role = sort not in ("layer", "role", "score", *SCORES)
    wanted = role_name(sort)
    if by_role and not any(is_called(r, wanted) for r in annotated):
        known = ", ".join([*SCORES, *sorted({r.name for r in annotated}), *given])
        if annotated:
            raise UsageError(
                "cannot sort by {!r}; use layer, role, score, or one of {}", sort, known
            )
        raise UsageError(
            "cannot sort by {!r}; use layer, role, score, or one of {}; or with a result of "
            "annotated text, see {evidence}, a relation such as obj",
            sort,
            known,
            evidence=...,
        )
    if role is not None:
        listed = [h for h in heads if any(is_called(r, role) for r in h.roles)]
    else:
        listed = [h for h in heads if everything or does_something(h)]
    if sort == "role":
        order = {name: number for number, name in enumerate(SHOWN)}
        listed.sort(
            key=lambda h: (
                (order[h.roles[0].name], -(h.roles[0].evidence.mean or 0.0))
                if h.roles
                else (len(order), 0.0)
            )
        )
    elif sort == "score":
        listed.sort(key=lambda h: -(h.roles[0].evidence.mean or 0.0) if h.roles else 0.0)
    elif by_role:
        listed.sort(key=lambda h: -_score(h, wanted))
    elif sort != "layer":
        listed.sort(key=lambda h: -_mean(h, sort))
    return tuple(listed[:top])


def leading(scores: HeadScores, role: str | None = None) -> tuple[int, float, Head]:
    """Sorts heads by what there is to see: the clearest evidence first.

    Heads that do something come before those that only have a place to rest, and heads without a
    role last, by any score that has enough rows. Clear is a large lift; ties go by position.
    """
    shown = [r for r in scores.roles if role is None or is_called(r, role)]
    does = [r for r in shown if not r.rests]
    lifts = [r.evidence.lift or 0.0 for r in does or shown]
    if not lifts:
        lifts = [s.lift or 0.0 for s in scores.scores.values() if s.rows >= MIN_ROWS]
    return 0 if does else 1 if shown else 2, -max(lifts, default=0.0), scores.head


def _score(head: HeadScores, annotated: str) -> float:
    """Of a role from annotation; 0 where the head has it not."""
    roles = [r for r in head.roles if r.name in ANNOTATED and is_called(r, annotated)]
    return max((r.evidence.mean or 0.0 for r in roles), default=0.0)


def _mean(head: HeadScores, score: str) -> float:
    known = head.scores.get(score)
    return float("-inf") if known is None or known.mean is None else known.mean


_CHOICES = 8  # so many keys of every query are looked at, the strongest


_AT_ONCE = 32  # keys that are asked about at once


def targets(capture: Capture, head: Head, score: str) -> NDArray[np.bool_]:
    """The keys that a score counts, [T, S], asked of the score itself; none in rows without any."""
    allowed = allowed_keys(capture, head)
    length, keys = allowed.shape
    hits: NDArray[np.bool_] = np.zeros((length, keys), np.bool_)
    for first in range(0, keys, _AT_ONCE):
        some = range(first, min(first + _AT_ONCE, keys))
        single = np.zeros((1, len(some), length, keys), np.float32)
        for number, key in enumerate(some):
            single[0, number, :, key] = 1.0

        def watch(
            item: int, site: Site, start: int, names: Sequence[str], values: Array,
            first: int = first,
        ) -> None:  # fmt: skip
            for number, row in np.argwhere(to_numpy(values[0] > 0.5)).tolist():
                hits[start + row, first + number] = True

        observer = ScoreObserver([capture.inputs], capture.layout, [score], watch)
        observer.observe(_rows(head.site, single, allowed))
    hits &= allowed
    return hits


def strongest_pair(capture: Capture, head: Head, score: str) -> tuple[int, int] | None:
    """The query and the key with the largest weight among the targets of a score.

    Which keys are targets is asked of the score itself: it sees, in place of the head, heads that
    put all of a row's weight on its strongest key, on its second, and so on.
    """
    if not SCORES[score].on_targets:
        return None
    maps = np.asarray(capture.maps[head.site])
    place = capture.place(head)
    weights = np.nan_to_num(maps[place].astype(np.float64))
    allowed = allowed_keys(capture, head)
    length, keys = weights.shape
    order = np.argsort(-weights, axis=1, kind="stable")[:, :_CHOICES]
    single = np.zeros((1, order.shape[1], length, keys), np.float32)
    np.put_along_axis(single[0], order.T[..., None], 1.0, -1)
    best: list[tuple[float, int, int]] = []

    def watch(item: int, site: Site, start: int, names: Sequence[str], values: Array) -> None:
        for choice, row in np.argwhere(to_numpy(values[0] > 0.5)).tolist():
            key = int(order[start + row, choice])
            best.append((-float(weights[start + row, key]), start + row, key))

    observer = ScoreObserver([capture.inputs], capture.layout, [score], watch)
    observer.observe(_rows(head.site, single, allowed))
    if not best or min(best)[0] == 0:
        return None
    _, query, key = min(best)
    return query, key


def _rows(site: Site, weights: NDArray[np.float32], allowed: NDArray[np.bool_]) -> Rows:
    """A whole layer as one block."""
    return Rows(site, 0, 0, arrays.array(weights), arrays.array(allowed[None, None]))
