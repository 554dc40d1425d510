"""Which heads a table lists, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from attnviz.core.heads import Head
from attnviz.core.scores import HeadScores
from attnviz.errors import UsageError
from attnviz.scoring.roles import ANNOTATED, MIN_ROWS, SHOWN, does_something, role_name
from attnviz.scoring.scores import SCORES


def arrange(
    heads: Sequence[HeadScores],
    *,
    role: str | None = None,
    sort: str = "layer",
    top: int | None = None,
    everything: bool = False,
) -> tuple[HeadScores, ...]:
    """Filter, sort and cut a list of heads.

    Args:
        heads: in the order of the layout.
        role: keep only heads that have this role, such as ``syntactic`` or ``syntactic: obj``.
        sort: ``layer`` (as they are), ``role`` (by what they do, else where they rest, in the
            table's order of roles, the strongest evidence first), ``score`` (of the role, largest
            first), or the name of a score (largest mean first).
        top: how many to keep at most.
        everything: keep all heads; otherwise, where no role is asked for, only those that do
            something beyond resting.

    Raises:
        UsageError: an unknown role or order; the message names those that exist.
    """
    role = None if role is None else role_name(role)
    if role is not None and role not in SHOWN and role.partition(":")[0] not in ANNOTATED:
        raise UsageError(f"unknown role {role!r}; roles are {', '.join(SHOWN)}")
    if sort not in ("layer", "role", "score", *SCORES):
        known = ", ".join(SCORES)
        raise UsageError(f"cannot sort by {sort!r}; use layer, role, score or one of {known}")
    if role is not None:
        kept = [h for h in heads if any(role in (r.name, r.title) for r in h.roles)]
    else:
        kept = [h for h in heads if everything or does_something(h)]
    if sort == "role":
        order = {name: number for number, name in enumerate(SHOWN)}
        kept.sort(
            key=lambda h: (
                (order[h.roles[0].name], -(h.roles[0].evidence.mean or 0.0))
                if h.roles
                else (len(order), 0.0)
            )
        )
    elif sort == "score":
        kept.sort(key=lambda h: -(h.roles[0].evidence.mean or 0.0) if h.roles else 0.0)
    elif sort != "layer":
        kept.sort(key=lambda h: -_mean(h, sort))
    return tuple(kept[:top])


def leading(scores: HeadScores, role: str | None = None) -> tuple[int, float, Head]:
    """Sorts heads by what there is to see: the clearest evidence first.

    Heads that do something come before those that only have a place to rest, and heads without a
    role last, by any score that has enough rows. Clear is a large lift; ties go by position.

    Args:
        scores: of the head.
        role: the only role that is asked for; all by default.
    """
    shown = [r for r in scores.roles if role in (None, r.name, r.title)]
    does = [r for r in shown if not r.rests]
    lifts = [r.evidence.lift or 0.0 for r in does or shown]
    if not lifts:
        lifts = [s.lift or 0.0 for s in scores.scores.values() if s.rows >= MIN_ROWS]
    return 0 if does else 1 if shown else 2, -max(lifts, default=0.0), scores.head


def _mean(head: HeadScores, score: str) -> float:
    found = head.scores.get(score)
    return float("-inf") if found is None or found.mean is None else found.mean
