"""Which heads a table lists, and in which order."""

from __future__ import annotations

from collections.abc import Sequence

from attnviz.errors import UsageError
from attnviz.records import HeadScores
from attnviz.scoring.roles import ROLES
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
        role: keep only heads that have this role.
        sort: ``layer`` (as they are), ``role`` (by the strongest role, in the table's order of
            roles, the strongest evidence first), or the name of a score (largest mean first).
        top: how many to keep at most.
        everything: also keep heads without a role.

    Raises:
        UsageError: an unknown role or order; the message names those that exist.
    """
    if role is not None and role not in ROLES:
        raise UsageError(f"no role {role!r}; roles are {', '.join(ROLES)}")
    if sort not in ("layer", "role", *SCORES):
        raise UsageError(f"cannot sort by {sort!r}; use layer, role or {', '.join(SCORES)}")
    kept = [h for h in heads if everything or h.roles]
    if role is not None:
        kept = [h for h in kept if any(r.name == role for r in h.roles)]
    if sort == "role":
        order = {name: number for number, name in enumerate(ROLES)}
        kept.sort(
            key=lambda h: (
                (order[h.roles[0].name], -(h.roles[0].evidence.mean or 0.0))
                if h.roles
                else (len(order), 0.0)
            )
        )
    elif sort != "layer":
        kept.sort(key=lambda h: -_mean(h, sort))
    return tuple(kept[:top])


def _mean(head: HeadScores, score: str) -> float:
    found = head.scores.get(score)
    return float("-inf") if found is None or found.mean is None else found.mean
