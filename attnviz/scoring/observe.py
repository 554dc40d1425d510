"""Observers: what watches the weights go by.

:class:`Recorder` keeps whole maps, :class:`ScoreObserver` only the running sums of scores, so its
memory is that of one block of rows, whatever the number of layers and the length.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, to_numpy
from attnviz.core.capture import Capture, KeyMask
from attnviz.core.heads import SITE_KINDS, Head, Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.quantities import QUANTITIES, check_scored
from attnviz.core.scores import SINK, HeadScores
from attnviz.core.source import Rows
from attnviz.scoring.axes import Axes
from attnviz.scoring.block import Block, Place
from attnviz.scoring.replay import blocks
from attnviz.scoring.scores import SCORES
from attnviz.scoring.totals import SinkTotals, Sums, Totals, comparable, fold

if TYPE_CHECKING:
    pass

_PART_ELEMENTS = 1 << 19
"""Weights to score at a time, 2 MiB in float32: what scores share stays in a near cache."""

_SHARED_ELEMENTS = 1 << 21
"""Weights of blocks whose places are kept for the layers that follow: of 1,024 tokens those of
layers that see all keys and of layers with windows. Longer texts gain little."""

Watch = Callable[[int, Site, int, Sequence[str], Array], None]
"""Gets the item, the layer, the first row's position, the names of n scores, and their values
[n, H, r] in single rows, NaN where a row does not count."""


class Recorder:
    """Keeps whole attention maps, cut to each item's real length."""

    def __init__(
        self, batch: Sequence[Inputs], wanted: Iterable[Site | Head] | None = None
    ) -> None:
        self._batch = tuple(batch)
        self._wanted: dict[Site, set[int] | None] | None = None if wanted is None else {}
        for place in wanted or ():
            assert self._wanted is not None
            if not isinstance(place, Head):
                self._wanted[place] = None
            elif (some := self._wanted.setdefault(place.site, set())) is not None:
                some.add(place.index)
        self._kept: dict[Site, tuple[int, ...]] = {}
        self._maps: list[dict[Site, NDArray[np.floating[Any]]]] = [{} for _ in self._batch]
        self._allowed: list[dict[Site, NDArray[np.bool_]]] = [{} for _ in self._batch]
        self._unselected: list[dict[Site, NDArray[np.bool_]]] = [{} for _ in self._batch]
        self._sinks: set[Site] = set()
        self._empty: dict[int, int] = defaultdict(int)

    def observe(self, rows: Rows) -> None:
        """Copy one block into the maps of every item."""
        if self._wanted is not None and rows.site not in self._wanted:
            return
        _, heads, count, width = rows.weights.shape
        allowed = to_numpy(_allowed(rows))
        weights_of, some = rows.weights, self._wanted and self._wanted[rows.site]
        if some and len(some) < heads:
            listed = self._kept[rows.site] = tuple(sorted(some))
            heads, weights_of = len(listed), rows.weights[:, listed]
            allowed = allowed[:, listed] if allowed.shape[1] > 1 else allowed
        if rows.sink:
            self._sinks.add(rows.site)
        for number, item in enumerate(self._batch):
            sides = item.sides[rows.site.kind]
            length, key_length = len(sides.queries), len(sides.keys)
            r = max(0, min(count, length - rows.start))
            s = max(0, min(width, key_length - rows.key_start))
            weights = to_numpy(weights_of[number, :, :r, :s])
            maps = self._maps[number]
            if rows.site not in maps:
                maps[rows.site] = np.zeros((heads, length, key_length), weights.dtype)
                shape = (allowed.shape[1], length, key_length)
                self._allowed[number][rows.site] = np.zeros(shape, np.bool_)
            keys = slice(rows.key_start, rows.key_start + s)
            queries = slice(rows.start, rows.start + r)
            maps[rows.site][:, queries, keys] = weights
            seen = allowed[number % len(allowed), :, :r, :s]
            self._allowed[number][rows.site][:, queries, keys] = seen
            if rows.unselected is not None:
                left_out = self._unselected[number].setdefault(
                    rows.site, np.zeros((1, length, key_length), np.bool_)
                )
                shown = to_numpy(rows.unselected)
                left_out[:, queries] = shown[number % len(shown), :1, :r, :key_length]
            self._empty[number] += int((~weights.any(-1)).any(0).sum())

    def maps(self, item: int = 0) -> dict[Site, NDArray[np.floating[Any]]]:
        """The [H, T, S] maps of one item by site, in the layout's order; in the weights' dtype.

        Of sites that :attr:`listed` names, H are the heads that it lists.
        """
        maps = self._maps[item]
        order = sorted(maps, key=lambda site: (SITE_KINDS.index(site.kind), site.layer))
        return {site: maps[site] for site in order}

    @property
    def listed(self) -> dict[Site, tuple[int, ...]]:
        """The heads that were kept, by index, of sites of which some were not."""
        return dict(self._kept)

    def reach(self, item: int = 0) -> dict[Site, KeyMask]:
        """Which keys the queries of one item may attend to, by site; equal layers share one."""
        masks: dict[bytes, KeyMask] = {}
        reaches = {}
        for site in self.maps(item):
            allowed, sink = self._allowed[item][site], site in self._sinks
            left_out = self._unselected[item].get(site)
            key = allowed.tobytes() + bytes([sink, allowed.shape[0] > 1, left_out is not None])
            key += b"" if left_out is None else left_out.tobytes()
            if key not in masks:
                masks[key] = KeyMask.of(allowed, sink=sink, unselected=left_out)
            reaches[site] = masks[key]
        return reaches

    def empty_rows(self, item: int = 0) -> int:
        """Query rows of one item without any allowed key, counted once per layer."""
        return self._empty[item]


class ScoreObserver:
    """Scores every head on the fly."""

    def __init__(
        self,
        batch: Sequence[Inputs],
        layout: Layout,
        names: Sequence[str] | None = None,
        watch: Watch | None = None,
        listed: Mapping[Site, Sequence[int]] = MappingProxyType({}),
    ) -> None:
        self._batch, self._watch, self._kept = tuple(batch), watch, listed
        self._layout = layout
        self._names = tuple(SCORES if names is None else names)
        self._totals: dict[Site, Totals] = {}
        self._sinks: dict[Site, SinkTotals] = {}
        self._axes: dict[SiteKind, Axes] = {}
        self._known: dict[tuple[str, ...], tuple[NDArray[np.intp], NDArray[np.intp]]] = {}
        self._gated: set[Site] = set()
        self._scratch: Array | None = None
        self._places: dict[tuple[SiteKind, bool, int, int, int, int, int], list[Place]] = {}
        self._shared = 0

    @property
    def empty_rows(self) -> int:
        """Query rows of all items without any weight, counted once per layer."""
        return self.total().empty

    @np.errstate(divide="ignore", invalid="ignore")  # of rows that do not count
    def observe(self, rows: Rows) -> None:
        """Add one block of rows to the sums; changes nothing in it."""
        site = rows.site
        if site.kind not in self._axes:
            sides = [item.sides[site.kind] for item in self._batch]
            self._axes[site.kind] = Axes(sides, site.kind, rows.weights)
        if rows.openness is not None:
            self._gated.add(site)
        if site not in self._totals:
            scores = [SCORES[name] for name in self._scored(site)]
            self._totals[site] = Totals(scores, len(self._batch), rows.weights.shape[1])
            self._sinks[site] = SinkTotals()
        size = math.prod(rows.weights.shape[1:])
        step = max(1, _PART_ELEMENTS // max(1, size))
        for first in range(0, len(self._batch), step):
            items = slice(first, min(first + step, len(self._batch)))
            block = self._block(rows, items)
            if block is not None:
                if SINK in self._names:
                    self._sinks[site].add(block)
                values, defined = self._totals[site].add(block)
                if self._watch is not None:
                    self._show(self._watch, rows, items, block.xp.where(defined, values, math.nan))
        longest = max(queries for queries, _ in self._axes[site.kind].lengths)
        self._sinks[site].seen(rows.weights.shape[2], longest)

    def sums(self, item: int) -> Sums:
        """The sums over one item's rows, for every head of the layout."""
        out = Sums.zero(len(self._layout), self._names)
        first, empty = 0, 0
        for site in self._layout.sites:
            heads = np.arange(first, first + self._layout.heads[site.kind][site.layer])
            first += len(heads)
            if site not in self._totals:
                continue
            heads = heads[list(self._kept[site])] if site in self._kept else heads
            total, (scores, targets) = self._totals[site], self._columns(site)
            out.values[heads[:, None], scores] = total.values[item]
            out.chances[heads[:, None], scores] = total.chances[item]
            out.rows[heads[:, None], scores] = total.rows[item]
            cells = heads[:, None, None], scores[:, None], targets
            out.shares[cells] = total.shares[item]
            out.counted[heads] = total.counted[item]
            empty += int(total.empty[item])
            if (sinks := self._sinks[site].sinks) is not None:
                column = self._names.index(SINK)
                out.values[heads, column] = sinks.values[item]
                out.chances[heads, column] = sinks.chances[item]
                out.rows[heads, column] = sinks.rows[item]
        return replace(out, empty=empty)

    def sinks(self, item: int) -> NDArray[np.int64]:
        """[H], the position of every head's sink on one item; -1 where that is not known."""
        out = np.full(len(self._layout), -1, np.int64)
        first = 0
        for site in self._layout.sites:
            heads = np.arange(first, first + self._layout.heads[site.kind][site.layer])
            first += len(heads)
            if site in self._sinks and (sinks := self._sinks[site].sinks) is not None:
                heads = heads[list(self._kept[site])] if site in self._kept else heads
                out[heads] = sinks.positions[item]
        return out

    def total(self) -> Sums:
        """The sums over all items' rows, added in the order of the batch."""
        items = (self.sums(number) for number in range(len(self._batch)))
        return fold(items, Sums.zero(len(self._layout), self._names))

    def result(self) -> tuple[HeadScores, ...]:
        """The scores and roles of every head that went by, in the layout's order."""
        total = self.total()
        sinks = self.sinks(0).tolist() if len(self._batch) == 1 else [-1] * len(self._layout)
        scores = []
        for number, head in enumerate(self._layout):
            some = self._kept.get(head.site)
            if head.site in self._totals and (some is None or head.index in some):
                sink = sinks[number] if sinks[number] >= 0 else None
                scores.append(total.head(head, number, sink))
        return tuple(scores)

    def _scored(self, site: Site) -> tuple[str, ...]:
        """The scores of rows that mean something there."""
        axes, gated = self._axes[site.kind], site in self._gated
        return tuple(
            name
            for name in self._names
            if SCORES[name].function is not None
            and SCORES[name].means_something(ordered=axes.ordered, space=axes.space, gated=gated)
        )

    def _columns(self, site: Site) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Where these scores and those that are compared with them stand among all."""
        names = self._scored(site)
        if names not in self._known:
            all_ = comparable(self._names)
            self._known[names] = (
                np.array([self._names.index(name) for name in names], np.intp),
                np.array([all_.index(name) for name in comparable(names)], np.intp),
            )
        return self._known[names]

    def _block(self, rows: Rows, items: slice) -> Block | None:
        """Some items' part of the block, without common padding; None if nothing is left."""
        axes = self._axes[rows.site.kind]
        queries, keys = (max(ends) for ends in zip(*axes.lengths[items], strict=True))
        r = min(rows.weights.shape[2], queries - rows.start)
        s = min(rows.weights.shape[3], keys - rows.key_start)
        if r <= 0 or s <= 0:
            return None
        weights = rows.weights[items, :, :r, :s]
        logits = None if rows.logits is None else rows.logits[items, :, :r, :s]
        openness = None if rows.openness is None else rows.openness[items, :, :r]
        place = self._place(rows, items, r, s, keys)
        return Block(weights, place, logits, openness=openness)

    def _place(self, rows: Rows, items: slice, r: int, s: int, keys: int) -> Place:
        """Where the block stands; the same as in an earlier layer where nothing is different."""
        axes = self._axes[rows.site.kind]
        allowed = _allowed(rows)
        allowed = allowed[items if len(allowed) > 1 else slice(None), :, :r, :s]
        on = arrays.of(allowed)
        allowed = on.xp.broadcast_to(allowed, (items.stop - items.start, *allowed.shape[1:]))
        if (
            min(k for _, k in axes.lengths[items]) < rows.key_start + s
        ):  # keys that an item does not have
            there = axes.keys[items, None, None, rows.key_start : rows.key_start + s]
            allowed = allowed & there
        memory = self._memory(rows, keys)
        gated = rows.site in self._gated
        name = (rows.site.kind, gated, items.start, rows.start, r, rows.key_start, s)
        known = self._places.setdefault(name, [])
        for cached in known:
            same = cached.learned_sink == rows.sink and cached.scratch is memory
            if same and on.equal(cached.allowed, allowed):
                return cached
        place = Place(
            axes, items, rows.start, rows.key_start, allowed, memory, learned_sink=rows.sink
        )
        size = math.prod(allowed.shape)
        if self._shared + size <= _SHARED_ELEMENTS:
            place.allowed = on.copied(allowed)
            known.append(place)
            self._shared += size
        return place

    def _memory(self, rows: Rows, keys: int) -> Array:
        """Memory to score in, the same for every block: for one of all keys, or a part of it."""
        items, heads, count, _ = rows.weights.shape
        size = min(_PART_ELEMENTS, items * heads * count * keys)
        scratch = self._scratch
        weights = rows.weights
        if scratch is None or len(scratch) < size or scratch.dtype != weights.dtype:
            scratch = self._scratch = arrays.of(weights).empty((size,), weights.dtype, weights)
        assert scratch is not None
        return scratch

    def _show(self, watch: Watch, rows: Rows, items: slice, values: Array) -> None:
        """Let somebody see the scores of single rows, item by item."""
        lengths = self._axes[rows.site.kind].lengths
        for item, item_values in zip(range(items.start, items.stop), values, strict=True):
            own = item_values[:, :, : max(0, lengths[item][0] - rows.start)].swapaxes(0, 1)
            if own.shape[-1]:
                watch(item, rows.site, rows.start, self._scored(rows.site), own)


def _allowed(rows: Rows) -> Array:
    """Bool [B or 1, H or 1, r, s]: the keys of a block that each query may attend to."""
    if rows.allowed is None:
        on = arrays.of(rows.weights)
        everywhere = on.full((1, 1, 1, 1), True, on.bool_, rows.weights)
    else:
        everywhere = rows.allowed[(None,) * (4 - rows.allowed.ndim)]
    shape = (*everywhere.shape[:2], *rows.weights.shape[2:])
    allowed: Array = arrays.of(everywhere).xp.broadcast_to(everywhere, shape)
    return allowed


def score_capture(capture: Capture, names: Sequence[str] | None = None) -> ScoreObserver:
    """Score stored maps; ``result()`` of the observer returned has the heads that were stored."""
    check_scored(capture.quantity, capture.layout)
    observer = ScoreObserver([capture.inputs], capture.layout, names, listed=capture.kept)
    signed = QUANTITIES[capture.quantity].states
    for rows in blocks(capture):
        observer.observe(replace(rows, weights=sizes(rows.weights)) if signed else rows)
    return observer


def sizes(coefficients: Array) -> Array:
    """Of maps with signs, each row's sizes divided by their sum, as scores take them."""
    xp = arrays.of(coefficients).xp
    absolute: Array = abs(coefficients)
    total = absolute.sum(-1)[..., None]
    shares: Array = absolute / xp.where(total > 0, total, 1)
    return shares
