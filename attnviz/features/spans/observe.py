"""Sums of attention weights from groups of rows to groups of keys, block by block.

Notation in shapes: H heads of a layer, N heads of the model, R groups of rows, K groups of keys,
T tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

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
        some = np.s_[:, :, :keys]
        return SpanSums(
            self.values[some], self.chances[some], self.per_token[some], self.rows[some]
        )


class SpanObserver:
    """An observer of one text.

    Args:
        rows: the positions of each group of rows, R groups.
        keys: the same of keys, K groups; they may overlap.
        length: T.
        layout: the N heads.
        device: where the weights are.
    """

    def __init__(
        self,
        rows: Sequence[Sequence[int]],
        keys: Sequence[Sequence[int]],
        length: int,
        layout: Layout,
        device: str = "cpu",
    ) -> None:
        self._device = "cpu" if device.startswith("mps") else device  # it has no float64
        self._rows, self._keys = self._members(rows, length), self._members(keys, length)
        self._sites = tuple(dict.fromkeys(head.site for head in layout))
        self._sums: dict[Site, Tensor] = {}

    def observe(self, rows: Rows) -> None:
        """Take in one block."""
        weights = rows.weights[0].to(self._device).double()  # [H, r, s]
        count, width = weights.shape[1:]
        keys = self._keys[rows.key_start : rows.key_start + width]  # [s, K]
        queries = self._rows[rows.start : rows.start + count]  # [r, R]
        if rows.allowed is None:
            allowed = torch.ones(1, count, width, dtype=torch.float64, device=self._device)
        else:
            mask = rows.allowed.to(self._device).expand(1, rows.allowed.shape[1], count, width)
            allowed = mask[0].double()
        reached = allowed @ keys  # [H or 1, r, K]
        seen = (reached > 0).double()
        chance = reached / allowed.sum(2, keepdim=True).clamp(min=1)
        given = weights @ keys * seen
        parts = (given, chance, given / reached.clamp(min=1), seen)
        sums = torch.stack(
            [queries.T @ part.expand(len(weights), -1, -1) for part in parts]
        )  # [4, H, R, K]
        before = self._sums.get(rows.site)
        self._sums[rows.site] = sums if before is None else before + sums

    def result(self) -> SpanSums:
        """The sums of all heads."""
        whole = torch.cat([self._sums[site] for site in self._sites], 1).cpu().numpy()
        values, chances, per_token, rows = whole
        return SpanSums(values, chances, per_token, rows.round().astype(np.int64))

    def _members(self, groups: Sequence[Sequence[int]], length: int) -> Tensor:
        """[T, groups], 1 where a position is in a group."""
        members = torch.zeros(length, len(groups), dtype=torch.float64)
        for number, places in enumerate(groups):
            members[list(places), number] = 1
        return members.to(self._device)


def by_name(groups: Mapping[str, Sequence[int]], names: Sequence[str]) -> list[Sequence[int]]:
    """Groups in the order of some names; none of the text's positions where it lacks one."""
    return [groups.get(name, ()) for name in names]
