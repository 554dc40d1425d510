"""Observers: what watches the weights go by.

:class:`Recorder` keeps whole maps, :class:`ScoreObserver` only the running sums of scores, so its
memory is that of one block of rows, whatever the number of layers and the length.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.passes import Rows
from attnviz.records import (
    SITE_KINDS,
    Capture,
    Head,
    HeadScores,
    Inputs,
    Layout,
    Reach,
    Site,
    SiteKind,
)
from attnviz.scoring.axes import Axes
from attnviz.scoring.block import Block, Place
from attnviz.scoring.scores import SCORES
from attnviz.scoring.stored import blocks
from attnviz.scoring.sums import Sums, comparable, fold
from attnviz.scoring.totals import Totals

_PART_ELEMENTS = 1 << 19
"""Weights to score at a time, 2 MiB in float32: what scores share stays in a near cache."""

Watch = Callable[[int, Site, int, Sequence[str], Tensor], None]
"""Gets the item, the layer, the first row's position, the names of n scores, and their values
[n, H, r] in single rows, NaN where a row does not count."""


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
        self._allowed: list[dict[Site, NDArray[np.bool_]]] = [{} for _ in self._batch]
        self._sinks: set[Site] = set()
        self._empty: dict[int, int] = defaultdict(int)

    def observe(self, rows: Rows) -> None:
        """Copy one block into the maps of every item."""
        if self._wanted is not None and rows.site not in self._wanted:
            return
        _, heads, count, width = rows.weights.shape
        allowed = _allowed(rows).cpu().numpy()
        if rows.sink:
            self._sinks.add(rows.site)
        for number, item in enumerate(self._batch):
            sides = item.sides[rows.site.kind]
            length, key_length = len(sides.queries), len(sides.keys)
            r = max(0, min(count, length - rows.start))
            s = max(0, min(width, key_length - rows.key_start))
            weights = rows.weights[number, :, :r, :s].cpu().numpy()
            maps = self._maps[number]
            if rows.site not in maps:
                maps[rows.site] = np.zeros((heads, length, key_length), weights.dtype)
                shape = (allowed.shape[1], length, key_length)
                self._allowed[number][rows.site] = np.zeros(shape, np.bool_)
            keys = slice(rows.key_start, rows.key_start + s)
            queries = slice(rows.start, rows.start + r)
            maps[rows.site][:, queries, keys] = weights
            one = allowed[number % len(allowed), :, :r, :s]
            self._allowed[number][rows.site][:, queries, keys] = one
            self._empty[number] += int((~weights.any(-1)).any(0).sum())

    def maps(self, item: int = 0) -> dict[Site, NDArray[np.floating[Any]]]:
        """The [H, T, S] maps of one item by site, in the layout's order; in the weights' dtype."""
        maps = self._maps[item]
        order = sorted(maps, key=lambda site: (SITE_KINDS.index(site.kind), site.layer))
        return {site: maps[site] for site in order}

    def reach(self, item: int = 0) -> dict[Site, Reach]:
        """Which keys the queries of one item may attend to, by site; equal layers share one."""
        found: dict[bytes, Reach] = {}
        reaches = {}
        for site in self.maps(item):
            allowed, sink = self._allowed[item][site], site in self._sinks
            key = allowed.tobytes() + bytes([sink, allowed.shape[0] > 1])
            if key not in found:
                found[key] = Reach.of(allowed, sink=sink)
            reaches[site] = found[key]
        return reaches

    def empty_rows(self, item: int = 0) -> int:
        """Query rows of one item without any allowed key, counted once per layer."""
        return self._empty[item]


class ScoreObserver:
    """Scores every head on the fly.

    Args:
        batch: the items that run, in the order of the batch axis.
        layout: the heads of the model.
        names: the scores to compute, of :data:`~attnviz.scoring.scores.SCORES`; all by default.
        watch: shown the scores of single rows as they go by.
    """

    def __init__(
        self,
        batch: Sequence[Inputs],
        layout: Layout,
        names: Sequence[str] | None = None,
        watch: Watch | None = None,
    ) -> None:
        self._batch, self._watch = tuple(batch), watch
        self._layout = layout
        self._names = tuple(SCORES if names is None else names)
        self._totals: dict[Site, list[Totals]] = {}
        self._axes: dict[tuple[int, SiteKind], Axes] = {}
        self._scratch: Tensor | None = None

    @property
    def empty_rows(self) -> int:
        """Query rows of all items without any weight, counted once per layer."""
        return self.total().empty

    def observe(self, rows: Rows) -> None:
        """Add one block of rows to the sums; changes nothing in it."""
        items = self._totals.get(rows.site)
        if items is None:
            scores = tuple(SCORES[name] for name in self._scored(rows.site))
            items = [Totals(scores, rows.weights.shape[1]) for _ in self._batch]
            self._totals[rows.site] = items
        scratch = self._memory(rows)
        for number, totals in enumerate(items):
            block = self._block(rows, number, scratch)
            if block is not None:
                values = totals.add(block)
                if self._watch is not None:
                    self._watch(number, rows.site, rows.start, self._scored(rows.site), values)

    def sums(self, item: int) -> Sums:
        """The sums over one item's rows, for every head of the layout."""
        out = Sums.zero(len(self._layout), self._names)
        first, empty = 0, 0
        for site in self._layout.sites:
            heads = slice(first, first + self._layout.heads[site.kind][site.layer])
            first = heads.stop
            if site not in self._totals:
                continue
            found, names = self._totals[site][item], self._scored(site)
            places = [self._names.index(name) for name in names]
            targets = [out.targets.index(name) for name in comparable(names)]
            out.values[heads, places], out.chances[heads, places] = found.sums.numpy().mT
            out.rows[heads, places] = found.rows.numpy().T
            shares = found.shares.numpy().transpose(2, 0, 1)
            out.shares[heads, np.array(places)[:, None], targets] = shares
            out.counted[heads] = found.counted.numpy()
            empty += found.empty_rows
        return replace(out, empty=empty)

    def total(self) -> Sums:
        """The sums over all items' rows, added in the order of the batch."""
        items = (self.sums(number) for number in range(len(self._batch)))
        return fold(items, Sums.zero(len(self._layout), self._names))

    def result(self) -> tuple[HeadScores, ...]:
        """The scores and roles of every head whose layer went by, in the layout's order."""
        total = self.total()
        found = []
        for number, head in enumerate(self._layout):
            if head.site in self._totals:
                found.append(HeadScores(head, total.scores(number), total.roles(number)))
        return tuple(found)

    def _scored(self, site: Site) -> tuple[str, ...]:
        """The scores that mean something there."""
        ordered = site.kind != "cross"
        return tuple(name for name in self._names if ordered or not SCORES[name].ordered)

    def _memory(self, rows: Rows) -> Tensor:
        """Memory to score in, the same for every block: for one of all keys, or a part of it."""
        keys = max(len(item.sides[rows.site.kind].keys) for item in self._batch)
        size = min(_PART_ELEMENTS, math.prod(rows.weights.shape[1:3]) * keys)
        kept = self._scratch
        if kept is None or kept.numel() < size or kept.dtype != rows.weights.dtype:
            kept = self._scratch = rows.weights.new_empty(size)
        return kept

    def _block(self, rows: Rows, number: int, scratch: Tensor) -> Block | None:
        """One item's part of the block, without padding; None if nothing is left."""
        sides = self._batch[number].sides[rows.site.kind]
        r = min(rows.weights.shape[2], len(sides.queries) - rows.start)
        s = min(rows.weights.shape[3], len(sides.keys) - rows.key_start)
        if r <= 0 or s <= 0:
            return None
        weights = rows.weights[number, :, :r, :s]
        key = (number, rows.site.kind)
        if key not in self._axes:
            self._axes[key] = Axes(sides, rows.site.kind, weights)
        allowed = _allowed(rows)
        allowed = allowed[number % len(allowed), :, :r, :s]
        place = Place(
            self._axes[key], rows.start, rows.key_start, allowed, scratch, learned_sink=rows.sink
        )
        logits = None if rows.logits is None else rows.logits[number, :, :r, :s]
        return Block(weights, place, logits)


def _allowed(rows: Rows) -> Tensor:
    """Bool [B or 1, H or 1, r, s]: the keys of a block that each query may attend to."""
    if rows.allowed is None:
        shape = rows.weights.shape[2:]
        return torch.ones((), dtype=torch.bool, device=rows.weights.device).expand(1, 1, *shape)
    allowed = rows.allowed[(None,) * (4 - rows.allowed.ndim)]
    return allowed.expand(-1, -1, *rows.weights.shape[2:])


def score_capture(capture: Capture, names: Sequence[str] | None = None) -> ScoreObserver:
    """Score stored maps; ``result()`` of the observer returned has the layers that were stored.

    Args:
        capture: maps of some or all layers. Where it does not say which keys were allowed, that is
            inferred from the maps, see :func:`~attnviz.scoring.stored.allowed_keys`.
        names: the scores to compute; all by default.
    """
    observer = ScoreObserver([capture.inputs], capture.layout, names)
    for rows in blocks(capture):
        observer.observe(rows)
    return observer
