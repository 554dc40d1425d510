"""Texts that are there more than once: they say the same thing, so they count as one group."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.statistics.exact import Floats, Integers


def together(
    names: Sequence[Hashable], a: Floats, b: NDArray[np.integer[Any]]
) -> tuple[Floats, Integers]:
    """The sums of texts with the same name put together, in the order of their first ones.

    Args:
        names: [n], what tells texts apart: their words, or the groups that they belong to.
        a: [n, ...], sums of every text.
        b: [n, ...], numbers of rows.

    Returns:
        The sums [groups, ...] and the numbers of rows of each group.
    """
    places: dict[Hashable, int] = {}
    where = np.array([places.setdefault(name, len(places)) for name in names], np.int64)
    sums = np.zeros((len(places), *np.shape(a)[1:]))
    rows = np.zeros((len(places), *np.shape(b)[1:]), np.int64)
    np.add.at(sums, where, a)
    np.add.at(rows, where, b)
    return sums, rows


def factor(counts: Sequence[int] | NDArray[np.integer[Any]]) -> float:
    """By what copies make texts fewer, and variances larger: Σn² / Σn over the distinct texts.

    It is exact where how often a text is there says nothing about what it says, and the only thing
    that adds up for texts whose sums were not kept.

    Args:
        counts: how often each distinct text is there, at least once.
    """
    some = np.asarray(counts, np.float64)
    return float((some * some).sum() / some.sum()) if len(some) else 1.0
