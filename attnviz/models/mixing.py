"""How much the positions of each layer mix, by weights and by what is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.contributions import Writes, mixing_ratios
from attnviz.core import arrays
from attnviz.core.arrays import Array, to_numpy
from attnviz.core.heads import Site
from attnviz.core.prompt import Inputs
from attnviz.core.quantities import Quantity
from attnviz.core.scores import Mixing
from attnviz.core.source import Rows, Source


class MixingObserver:
    """Adds up the mixing ratios of self-attention layers."""

    def __init__(self, source: Source, what: Quantity, batch: Sequence[Inputs]) -> None:
        self._source, self._what, self._batch = source, what, tuple(batch)
        self._sums: dict[Site, list[NDArray[Any]]] = {}

    @np.errstate(divide="ignore", invalid="ignore")  # rows at which nothing arrives
    def observe(self, rows: Rows) -> None:
        """Add one block of rows."""
        site = rows.site
        if site.kind == "cross":
            return
        norm = self._source.sublayer(site).norm if self._what.norm else None
        projection = self._source.output(site)
        writes = Writes.of(rows, projection, residual=self._what.residual, norm=norm)
        heads, layer = mixing_ratios(writes)
        looks = self._looks(rows, writes)
        present = self._counted(rows)[:, None]  # [B, 1, r]
        parts = [looks, looks.mean(1)[:, None], heads, layer[:, None]]
        ratios = np.concatenate([to_numpy(part) for part in parts], 1)
        known = present & np.isfinite(ratios)  # [B, 2 H + 2, r]
        total = np.where(known, ratios, 0).sum((0, 2), dtype=np.float64)
        sums = [total, known.sum((0, 2)), present.sum()]
        before = self._sums.get(site, [np.zeros_like(part) for part in sums])
        self._sums[site] = [a + b for a, b in zip(before, sums, strict=True)]

    def result(self) -> tuple[Mixing, ...]:
        """The means, in the order of the layers."""
        mixings = []
        for site, (sums, counts, rows) in self._sums.items():
            pairs = zip(sums.tolist(), counts.tolist(), strict=True)
            means = [total / count if count else None for total, count in pairs]
            heads = len(means) // 2 - 1
            weights, norms = means[:heads], means[heads + 1 : -1]
            mixing = Mixing(site, int(rows), tuple(weights), tuple(norms), means[heads], means[-1])
            mixings.append(mixing)
        return tuple(mixings)

    def _looks(self, rows: Rows, writes: Writes) -> Array:
        """[B, H, r], the share of each row's weight on other keys than its own."""
        total = rows.weights.sum(-1)
        on = arrays.of(total)
        own: Array = on.xp.zeros_like(total)
        if writes.diagonal is not None:
            some, columns = writes.diagonal
            places = on.arange(some.start, some.stop, on.int64, columns)
            own[:, :, some] = rows.weights[:, :, places, columns]
        return 1 - own / total

    def _counted(self, rows: Rows) -> NDArray[np.bool_]:
        """Bool [B, r]: real queries with two keys or more to attend to."""
        lengths = np.array([len(item.sides[rows.site.kind].queries) for item in self._batch])
        _, _, r, s = rows.weights.shape
        real: NDArray[np.bool_] = np.arange(rows.start, rows.start + r) < lengths[:, None]
        if rows.allowed is None:
            return real & (s >= 2)
        allowed = to_numpy(rows.allowed[(None,) * (4 - rows.allowed.ndim)])
        choices = np.broadcast_to(allowed, (*allowed.shape[:2], r, s)).sum(-1)
        several: NDArray[np.bool_] = choices.max(1) >= 2
        return real & several
