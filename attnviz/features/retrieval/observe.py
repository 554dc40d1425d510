"""What a pass over prompts with needles shows of every head, block by block.

Notation in shapes: H heads of a layer, N heads of the model, K tokens of a needle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.heads import Layout, Site
from attnviz.core.source import Rows

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class WatchedRows:
    """What is looked at in one prompt.

    Attributes:
        steps: the rows from which a token was generated, in their order.
        question: rows of the question, first and end.
        document: keys of the needle, first and end.
    """

    steps: Sequence[int]
    question: tuple[int, int]
    document: tuple[int, int]


@dataclass(frozen=True, eq=False, slots=True)
class SeenRows:
    """What was seen in one prompt.

    Attributes:
        top: [N, steps], the key with the largest weight, the first of several.
        weight: [N, K], mean weight from the rows of the question to each token of the needle.
        chance: [N], the needle's mean share of the keys that these rows may attend to.
    """

    top: Integers
    weight: Floats
    chance: Floats


class NeedleObserver:
    """An observer of a batch of prompts."""

    def __init__(self, watched: Sequence[WatchedRows], layout: Layout) -> None:
        self._watched, self._layout = watched, layout
        self._top: dict[tuple[Site, int], Integers] = {}  # [H, steps]
        self._sums: dict[tuple[Site, int], Floats] = {}  # [H, K + 1], the last is chance

    def observe(self, rows: Rows) -> None:
        """Take in one block."""
        for item, watched in enumerate(self._watched):
            self._step(rows, item, watched)
            self._question(rows, item, watched)

    def result(self, item: int) -> SeenRows:
        """What was seen in one prompt of the batch."""
        sites = tuple(dict.fromkeys(head.site for head in self._layout))
        top = np.concatenate([self._top[site, item] for site in sites])
        first, end = self._watched[item].question
        weights = np.concatenate([self._sums[site, item] for site in sites]) / max(1, end - first)
        return SeenRows(top, weights[:, :-1], weights[:, -1])

    def _step(self, rows: Rows, item: int, watched: WatchedRows) -> None:
        weights = rows.weights[item]  # [H, r, s]
        count = weights.shape[1]
        strongest = self._top.setdefault(
            (rows.site, item), np.full((len(weights), len(watched.steps)), -1)
        )
        for number, row in enumerate(watched.steps):
            if rows.start <= row < rows.start + count:
                keys = arrays.to_numpy(weights[:, row - rows.start].argmax(-1))
                strongest[:, number] = keys + rows.key_start

    def _question(self, rows: Rows, item: int, watched: WatchedRows) -> None:
        weights = rows.weights[item]
        heads, count, width = weights.shape
        first, end = watched.document
        sums = self._sums.setdefault((rows.site, item), np.zeros((heads, end - first + 1)))
        some = slice(
            max(watched.question[0] - rows.start, 0), max(watched.question[1] - rows.start, 0)
        )
        left, right = max(first, rows.key_start), min(end, rows.key_start + width)
        if not weights[:, some].shape[1] or left >= right:
            return
        keys = slice(left - rows.key_start, right - rows.key_start)
        sums[:, left - first : right - first] += arrays.doubles(weights[:, some, keys]).sum(1)
        if rows.allowed is None:
            sums[:, -1] += weights[:, some].shape[1] * (right - left) / width
            return
        allowed = rows.allowed[item if len(rows.allowed) > 1 else 0]
        whole = np.broadcast_to(arrays.to_numpy(allowed), (len(allowed), count, width))
        mask = whole[:, some].astype(np.float64)
        share = mask[..., keys].sum(-1) / mask.sum(-1).clip(1)  # [1 or H, q]
        sums[:, -1] += share.sum(-1)
