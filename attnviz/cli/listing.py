"""Which heads a table on the terminal lists: of very many the clearest, and how to see more."""

from __future__ import annotations

from collections.abc import Sequence

from attnviz.core.scores import HeadScores
from attnviz.drawing.folded import rows_shown
from attnviz.scoring.arrange import arrange, leading

Listed = tuple[tuple[HeadScores, ...], str]
"""Heads in the order of the table, and what stands below it of those that are not listed."""


def listed(
    heads: Sequence[HeadScores],
    *,
    role: str | None,
    sort: str,
    top: int | None,
    everything: bool = False,
    named: Sequence[HeadScores] = (),
) -> Listed:
    """Filter, sort and cut heads as :func:`~attnviz.scoring.arrange.arrange` does, for people.

    Where neither ``top`` nor ``everything`` says how many, and there are more than anyone reads,
    these are the first ones: by the order that was asked for, else by how clear the evidence is.
    """
    rows = arrange(heads, role=role, sort=sort, top=top, everything=everything, named=named)
    count = len(rows) if everything else rows_shown(len(rows), top)
    if count == len(rows):
        return rows, ""
    first = "clearest evidence"
    if sort == "layer":
        rows = tuple(sorted(rows, key=lambda one: leading(one, role)))
    else:
        first = f"largest {sort}" if sort != "role" else "first roles"
    more = f"the {count} heads with the {first} of {len(rows):,} (--top {len(rows)} lists them)"
    return rows[:count], more
