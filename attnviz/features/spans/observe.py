"""Sums of attention weights from groups of rows to groups of keys, block by block.

Notation in shapes: H heads of a layer, N heads of the model, R groups of rows, K groups of keys,
T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, to_numpy
from attnviz.core.heads import Layout, Site
from attnviz.core.source import Rows

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False, slots=True)
class SpanSums:
    """Sums over the rows that may attend to any key of a group, [N, R, K].

    Attributes:
        values: of the weight on the group.
        chances: of the group's share of the keys that the row may attend to.
        per_token: of the weight on the group, divided by its keys that the row may attend to.
        rows: how many rows.
    """

    values: Floats
    chances: Floats
    per_token: Floats
    rows: NDArray[np.int64]

    def part(self, keys: int) -> SpanSums:
        """The sums on the first groups of keys."""
        return self.block(slice(None), slice(keys))

    def block(self, rows: slice, keys: slice) -> SpanSums:
        """The sums from some groups of rows to some groups of keys."""
        some = np.s_[:, rows, keys]
        return SpanSums(
            self.values[some], self.chances[some], self.per_token[some], self.rows[some]
        )


class SpanObserver:
    """An observer of one text."""

    def __init__(
        self,
        rows: Sequence[Sequence[int]],
        keys: Sequence[Sequence[int]],
        length: int,
        layout: Layout,
    ) -> None:
        self._rows, self._keys = self._members(rows, length), self._members(keys, length)
        self._sites = tuple(dict.fromkeys(head.site for head in layout))
        self._sums: dict[Site, Array] = {}

    def observe(self, rows: Rows) -> None:
        """Take in one block."""
        like = rows.weights[0]
        on = arrays.of(like)
        double = on.float64
        if on.largest_float(like) != double:
            like = like.cpu()
        weights = on.cast(like, double)  # [H, r, s]
        count, width = weights.shape[1:]
        mine = slice(rows.key_start, rows.key_start + width), slice(rows.start, rows.start + count)
        keys = on.asarray(self._keys[mine[0]], double, like)  # [s, K]
        queries = on.asarray(self._rows[mine[1]], double, like)  # [r, R]
        allowed = on.full((1, count, width), 1, double, like)
        if rows.allowed is not None:
            shape = (1, rows.allowed.shape[1], count, width)
            allowed = on.cast(
                on.xp.broadcast_to(arrays.converted(rows.allowed, like), shape)[0], double
            )
        reached = allowed @ keys  # [H or 1, r, K]
        seen = on.cast(reached > 0, double)
        chance = reached / allowed.sum(2)[..., None].clip(1)
        given = weights @ keys * seen
        parts = (given, chance, given / reached.clip(1), seen)
        shape = (len(weights), *given.shape[1:])
        sums = on.xp.stack([queries.T @ on.xp.broadcast_to(part, shape) for part in parts])
        before = self._sums.get(rows.site)  # [4, H, R, K]
        self._sums[rows.site] = sums if before is None else before + sums

    def result(self) -> SpanSums:
        """The sums of all heads."""
        whole = np.concatenate([to_numpy(self._sums[site]) for site in self._sites], 1)
        values, chances, per_token, rows = whole
        return SpanSums(values, chances, per_token, rows.round().astype(np.int64))

    def _members(self, groups: Sequence[Sequence[int]], length: int) -> Floats:
        """[T, groups], 1 where a position is in a group."""
        members = np.zeros((length, len(groups)))
        for number, places in enumerate(groups):
            members[list(places), number] = 1
        return members


def by_name(groups: Mapping[str, Sequence[int]], names: Sequence[str]) -> list[Sequence[int]]:
    """Groups in the order of some names; none of the text's positions where it lacks one."""
    return [groups.get(name, ()) for name in names]
