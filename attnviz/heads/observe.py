"""Observers: what watches the weights go by. :class:`Recorder` keeps whole maps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.records import SITE_KINDS, Head, Inputs, Rows, Site


class Recorder:
    """Keeps whole attention maps, cut to each item's real length.

    Args:
        batch: the items that run, in the order of the batch axis.
        wanted: the sites to keep, or heads (their sites are kept whole); all by default.
    """

    def __init__(
        self, batch: Sequence[Inputs], wanted: Iterable[Site | Head] | None = None
    ) -> None:
        self._batch = tuple(batch)
        self._wanted = (
            None
            if wanted is None
            else frozenset(w.site if isinstance(w, Head) else w for w in wanted)
        )
        self._maps: list[dict[Site, NDArray[np.floating[Any]]]] = [{} for _ in self._batch]
        self._empty: dict[int, int] = defaultdict(int)

    def observe(self, rows: Rows) -> None:
        """Copy one block into the maps of every item."""
        if self._wanted is not None and rows.site not in self._wanted:
            return
        _, heads, count, width = rows.weights.shape
        for number, item in enumerate(self._batch):
            sides = item.sides[rows.site.kind]
            length, key_length = len(sides.queries), len(sides.keys)
            r = max(0, min(count, length - rows.start))
            s = max(0, min(width, key_length - rows.key_start))
            weights = rows.weights[number, :, :r, :s].cpu().numpy()
            maps = self._maps[number]
            if rows.site not in maps:
                maps[rows.site] = np.zeros((heads, length, key_length), weights.dtype)
            keys = slice(rows.key_start, rows.key_start + s)
            maps[rows.site][:, rows.start : rows.start + r, keys] = weights
            self._empty[number] += int((~weights.any(-1)).any(0).sum())

    def maps(self, item: int = 0) -> dict[Site, NDArray[np.floating[Any]]]:
        """The [H, T, S] maps of one item by site, in the layout's order; in the weights' dtype."""
        maps = self._maps[item]
        order = sorted(maps, key=lambda site: (SITE_KINDS.index(site.kind), site.layer))
        return {site: maps[site] for site in order}

    def empty_rows(self, item: int = 0) -> int:
        """Query rows of one item without any allowed key, counted once per layer."""
        return self._empty[item]
