"""Observers: what watches the weights go by.

:class:`Recorder` keeps whole maps, :class:`ScoreObserver` only the running sums of scores, so its
memory is that of one block of rows, whatever the number of layers and the length.

One pass of a text, for what watches it: whole maps, scores, or how far it has come.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.attention.blocks import not_numbers
from attnviz.core import arrays
from attnviz.core.arrays import Array, fetched, to_numpy
from attnviz.core.capture import Capture, KeyMask, seen_keys
from attnviz.core.heads import SITE_KINDS, Head, Layout, Site, SiteKind
from attnviz.core.prompt import Inputs, padded
from attnviz.core.quantities import QUANTITIES, check_scored
from attnviz.core.scores import SINK, HeadScores
from attnviz.core.settings import Progress
from attnviz.core.source import ForwardRequest, Observer, Rows, Source
from attnviz.core.threads import run_passes
from attnviz.scoring.axes import Axes
from attnviz.scoring.block import Block, Region, Uniform
from attnviz.scoring.scores import SCORES
from attnviz.scoring.totals import SinkPlaces, SinkTotals, Sums, Totals, comparable, fold

_BLOCK_ELEMENTS = 1 << 20


def allowed_in(weights: NDArray[np.floating[Any]], reach: KeyMask | None) -> NDArray[np.bool_]:
    """Tell which keys each query of a layer may attend to, bool [H or 1, T, S].

    Where no mask is known, by the weights [H, T, S] themselves: the zeros that all heads share are
    the mask, whether causal, a window, padding, documents side by side, a tree or any other.
    """
    if reach is None:
        return seen_keys(weights)[None]
    return reach.allowed(*weights.shape[1:])


def allowed_keys(capture: Capture, head: Head) -> NDArray[np.bool_]:
    """Tell which keys each query of a head that is held may attend to, bool [T, S]."""
    allowed = allowed_in(np.asarray(capture.maps[head.site]), capture.reach.get(head.site))
    return allowed[capture.place(head) if len(allowed) > 1 else 0]


def unselected_in(reach: KeyMask | None) -> NDArray[np.bool_] | None:
    """Give the keys that a layer's indexer did not select, bool [T, S]; None where none selects."""
    return None if reach is None or reach.unselected is None else reach.unselected[0]


def blocks(capture: Capture) -> Iterator[Rows]:
    """Give stored maps in blocks of rows, as :func:`~attnviz.attention.layers.attend` gives them.

    Norms come with each row divided by its sum.
    """
    for site, maps in capture.maps.items():
        weights = np.ascontiguousarray(maps, np.promote_types(maps.dtype, "f4"))
        reach = capture.reach.get(site)
        allowed = allowed_in(maps, reach)
        weights = np.where(allowed.any(-1, keepdims=True), weights, 0)  # a module's may be NaN
        sink = reach is not None and reach.sink
        if capture.quantity != "weights":  # scores compare with chance
            sums = weights.sum(-1, keepdims=True)
            weights = weights / np.where(sums > 0, sums, 1)
        heads, length, key_length = weights.shape
        step = max(1, _BLOCK_ELEMENTS // (heads * key_length))
        for start in range(0, length, step):
            rows = slice(start, start + step)
            part, mask = arrays.array(weights[None, :, rows]), arrays.array(allowed[None, :, rows])
            yield Rows(site, start, 0, part, mask, sink=sink)


_PART_ELEMENTS = 1 << 19
"""Weights to score at a time, 2 MiB in float32: what scores share stays in a near cache."""

_HELD_ELEMENTS = 1 << 25
"""Weights of layers that wait to be scored together on a GPU, at most and by its free memory."""

_SHARED_ELEMENTS = 1 << 21
"""Weights of blocks whose regions are kept for the layers that follow: of 1,024 tokens those of
layers that see all keys and of layers with windows. Longer texts gain little."""

Watch = Callable[[int, Site, int, Sequence[str], NDArray[Any]], None]
"""Gets the item, the layer, the first row's position, the names of n scores, and their values
[n, H, r] in single rows, NaN where a row does not count."""


class Recorder:
    """Keeps whole attention maps, cut to each item's real length."""

    def __init__(
        self, batch: Sequence[Inputs], requested: Iterable[Site | Head] | None = None
    ) -> None:
        self._batch = tuple(batch)
        self._requested: dict[Site, set[int] | None] | None = None if requested is None else {}
        for item in requested or ():
            assert self._requested is not None
            if not isinstance(item, Head):
                self._requested[item] = None
            elif (indices := self._requested.setdefault(item.site, set())) is not None:
                indices.add(item.index)
        self._kept: dict[Site, tuple[int, ...]] = {}
        self._maps: list[dict[Site, NDArray[np.floating[Any]]]] = [{} for _ in self._batch]
        self._allowed: list[dict[Site, NDArray[np.bool_]]] = [{} for _ in self._batch]
        self._unselected: list[dict[Site, NDArray[np.bool_]]] = [{} for _ in self._batch]
        self._sinks: set[Site] = set()
        # where the last block's queries may look, on the host: often the next layer's too
        self._mask: tuple[Array | None, NDArray[np.bool_]] | None = None
        self._empty: dict[int, int] = defaultdict(int)

    def observe(self, rows: Rows) -> None:
        """Copy one block into the maps of every item."""
        if self._requested is not None and rows.site not in self._requested:
            return
        _, heads, count, width = rows.weights.shape
        last = self._mask
        if last is None or last[0] is not rows.allowed or last[1].shape[2:] != (count, width):
            last = self._mask = rows.allowed, to_numpy(rows.mask)
        allowed = last[1]
        weights_of, indices = rows.weights, self._requested and self._requested[rows.site]
        if indices and len(indices) < heads:
            listed = self._kept[rows.site] = tuple(sorted(indices))
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
            mask = allowed[number % len(allowed), :, :r, :s]
            self._allowed[number][rows.site][:, queries, keys] = mask
            if rows.unselected is not None:
                left_out = self._unselected[number].setdefault(
                    rows.site, np.zeros((1, length, key_length), np.bool_)
                )
                unselected = to_numpy(rows.unselected)
                left_out[:, queries] = unselected[number % len(unselected), :1, :r, :key_length]
            self._empty[number] += int((~weights.any(-1)).any(0).sum())

    def maps(self, item: int = 0) -> dict[Site, NDArray[np.floating[Any]]]:
        """Get the [H, T, S] maps of one item by site, in the layout's order; in the weights' dtype.

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
    """Scores every head on the fly.

    On a GPU, where starting a kernel may take longer than what it does, layers whose rows stand
    alike wait for each other and are scored in one block, uniform attention beside them as one more
    head; what is measured stays there until somebody asks.
    """

    checks_numbers = True

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
        self._sinks: dict[tuple[Site, ...], SinkTotals] = {}
        self._places_of_sinks: dict[Site, SinkPlaces] = {}
        self._waiting: list[Rows] = []
        self._measured: list[tuple[tuple[Any, ...], list[Array]]] = []
        self._axes: dict[SiteKind, Axes] = {}
        self._known: dict[tuple[str, ...], tuple[NDArray[np.intp], NDArray[np.intp]]] = {}
        self._gated: set[Site] = set()
        self._scratch: Array | None = None
        self._regions: dict[tuple[SiteKind, bool, int, int, int, int, int], list[Region]] = {}
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
        if arrays.of(rows.weights).on_cpu(rows.weights):
            step = max(1, _PART_ELEMENTS // max(1, math.prod(rows.weights.shape[1:])))
            self._score([rows], step)
            return
        if not (self._waiting and self._joins(rows)):
            self._score_waiting()
        self._waiting.append(replace(rows, logits=None, values=None, terms=None))

    def _joins(self, rows: Rows) -> bool:
        """Whether a layer can be scored in one block with those that wait."""
        first, longest = self._waiting[0], self._longest(rows)
        size = (1 + len(self._waiting)) * math.prod(rows.weights.shape)
        return (
            rows.allowed is first.allowed
            and (rows.start, rows.key_start, rows.sink) == (0, first.key_start, first.sink)
            and first.start == 0
            and longest <= rows.weights.shape[2]
            and rows.mask.shape[1] == 1  # else a head's mask would be another layer's too
            and (rows.site.kind, rows.weights.shape) == (first.site.kind, first.weights.shape)
            and rows.openness is None
            and first.openness is None
            and not self._totals[rows.site].walks
            and not any(SCORES[name].user for name in self._names)
            and size <= arrays.of(rows.weights).at_once(rows.weights, _HELD_ELEMENTS)
        )

    def _longest(self, rows: Rows) -> int:
        return max(queries for queries, _ in self._axes[rows.site.kind].lengths)

    def _score_waiting(self) -> None:
        layers, self._waiting = self._waiting, []
        if layers:
            self._score(layers, len(self._batch))

    def _score(self, layers: Sequence[Rows], step: int) -> None:
        """Measure layers whose rows stand alike, so many items at a time."""
        rows, sites = layers[0], tuple(layer.site for layer in layers)
        sinks, totals = self._sinks.setdefault(sites, SinkTotals()), self._totals[rows.site]
        for first in range(0, len(self._batch), step):
            items = slice(first, min(first + step, len(self._batch)))
            block = self._block(layers, items)
            if block is not None:
                if SINK in self._names:
                    sinks.add(block)
                measured = totals.measured(block, len(layers))
                pieces = measured.pieces
                if not arrays.of(block.weights).on_cpu(block.weights):
                    # first columns of all weights: finite where these are numbers
                    column = block.weights[:, : pieces[1].shape[1], :, 0]
                    shaped = column.reshape(len(column), len(sites), -1, column.shape[-1])
                    pieces = [*pieces, shaped.sum((0, 2, 3))]
                self._keep(pieces, sites, items)
                if self._watch is not None:
                    values = block.xp.where(measured.defined, measured.values, math.nan)
                    self._keep([values], sites, items, rows.start)
        sinks.seen(rows.weights.shape[2], self._longest(rows))
        self._keep(sinks.pieces, sites)

    def _keep(self, pieces: list[Array], *of: Any) -> None:
        """Have :meth:`_take` take what was measured, if anything: later, on a GPU."""
        if pieces:
            self._measured.append((of, pieces))
            if arrays.of(pieces[0]).on_cpu(pieces[0]):
                self._fetch()

    def _fetch(self) -> None:
        """Take all that was kept; the host waits once."""
        kept_pieces, self._measured = self._measured, []
        numbers = iter(fetched([piece for _, pieces in kept_pieces for piece in pieces]))
        for of, pieces in kept_pieces:
            self._take([next(numbers) for _ in pieces], *of)

    def _take(
        self,
        pieces: Sequence[NDArray[Any]],
        sites: tuple[Site, ...],
        items: slice | None = None,
        start: int | None = None,
    ) -> None:
        """Add up what was measured of some items or the places of sinks, or show single rows."""
        for layer, site in enumerate(sites):
            if items is not None and start is not None:
                of_layer = np.array_split(pieces[0], len(sites), 1)[layer]
                self._show(site, start, items, of_layer)
            elif items is not None:
                if not all(math.isfinite(columns[layer]) for columns in pieces[6:]):
                    raise not_numbers(site)
                self._totals[site].take(items, pieces[:6], layer)
            else:
                heads = pieces[0].shape[1] // len(sites)
                layer_heads = slice(layer * heads, (layer + 1) * heads)
                self._places_of_sinks[site] = SinkPlaces.of(pieces, layer_heads)

    def _settle(self) -> None:
        """Score what waits, and fetch what was measured: the host waits once."""
        self._score_waiting()
        for sites, sinks in self._sinks.items():
            if not sinks.pieces:
                self._keep(sinks.found(), sites)
        self._fetch()

    def sums(self, item: int) -> Sums:
        """Return the sums over one item's rows, for every head of the layout."""
        self._settle()
        out, empty = Sums.zero(len(self._layout), self._names), 0
        for site, heads in self._heads():
            total, (scores, targets) = self._totals[site], self._columns(site)
            out.values[heads[:, None], scores] = total.values[item]
            out.chances[heads[:, None], scores] = total.chances[item]
            out.rows[heads[:, None], scores] = total.rows[item]
            cells = heads[:, None, None], scores[:, None], targets
            out.shares[cells] = total.shares[item]
            out.counted[heads] = total.counted[item]
            empty += int(total.empty[item])
            if (sinks := self._places_of_sinks.get(site)) is not None:
                column = self._names.index(SINK)
                out.values[heads, column] = sinks.values[item]
                out.chances[heads, column] = sinks.chances[item]
                out.rows[heads, column] = sinks.rows[item]
        return replace(out, empty=empty)

    def sinks(self, item: int) -> NDArray[np.int64]:
        """[H], the position of every head's sink on one item; -1 where that is not known."""
        self._settle()
        out = np.full(len(self._layout), -1, np.int64)
        for site, heads in self._heads():
            if (sinks := self._places_of_sinks.get(site)) is not None:
                out[heads] = sinks.positions[item]
        return out

    def _heads(self) -> Iterator[tuple[Site, NDArray[np.intp]]]:
        """Yield the layers that went by, with the numbers of their heads in the layout."""
        first = 0
        for site in self._layout.sites:
            heads = np.arange(first, first + self._layout.heads[site.kind][site.layer])
            first += len(heads)
            if site in self._totals:
                yield site, heads[list(self._kept[site])] if site in self._kept else heads

    def total(self) -> Sums:
        """Return the sums over all items' rows, added in the order of the batch."""
        items = (self.sums(number) for number in range(len(self._batch)))
        return fold(items, Sums.zero(len(self._layout), self._names))

    def result(self) -> tuple[HeadScores, ...]:
        """Return the scores and roles of every head that went by, in the layout's order."""
        total = self.total()
        sinks = self.sinks(0).tolist() if len(self._batch) == 1 else [-1] * len(self._layout)
        scores = []
        for number, head in enumerate(self._layout):
            indices = self._kept.get(head.site)
            if head.site in self._totals and (indices is None or head.index in indices):
                sink = sinks[number] if sinks[number] >= 0 else None
                scores.append(total.head(head, number, sink))
        return tuple(scores)

    def _scored(self, site: Site) -> tuple[str, ...]:
        """Return the scores of rows that mean something there."""
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
            targets = comparable(self._names)
            self._known[names] = (
                np.array([self._names.index(name) for name in names], np.intp),
                np.array([targets.index(name) for name in comparable(names)], np.intp),
            )
        return self._known[names]

    def _block(self, layers: Sequence[Rows], items: slice) -> Block | None:
        """Return some items' part of a block, without common padding; None if nothing is left."""
        rows = layers[0]
        axes = self._axes[rows.site.kind]
        queries, keys = (max(ends) for ends in zip(*axes.lengths[items], strict=True))
        r = min(rows.weights.shape[2], queries - rows.start)
        s = min(rows.weights.shape[3], keys - rows.key_start)
        if r <= 0 or s <= 0:
            return None
        parts = [layer.weights[items, :, :r, :s] for layer in layers]
        weights = parts[0]
        logits = None if rows.logits is None else rows.logits[items, :, :r, :s]
        openness = None if rows.openness is None else rows.openness[items, :, :r]
        region = self._region(rows, items, r, s, keys)
        beside = not (rows.sink or rows.openness is not None or self._totals[rows.site].walks)
        beside &= region.allowed.shape[1] == 1 and not arrays.of(weights).on_cpu(weights)
        if beside and not any(SCORES[name].user for name in self._names):
            weights = arrays.of(weights).xp.concatenate([*parts, Uniform(region).weights], 1)
            return Block(weights, region, uniform=True)
        if len(parts) > 1:
            weights = arrays.of(weights).xp.concatenate(parts, 1)
        return Block(weights, region, logits, openness=openness)

    def _region(self, rows: Rows, items: slice, r: int, s: int, keys: int) -> Region:
        """Where the block stands; the same as in an earlier layer where nothing is different."""
        axes = self._axes[rows.site.kind]
        allowed = rows.mask
        allowed = allowed[items if len(allowed) > 1 else slice(None), :, :r, :s]
        lib = arrays.of(allowed)
        allowed = lib.xp.broadcast_to(allowed, (items.stop - items.start, *allowed.shape[1:]))
        if (
            min(k for _, k in axes.lengths[items]) < rows.key_start + s
        ):  # keys that an item does not have
            present = axes.keys[items, None, None, rows.key_start : rows.key_start + s]
            allowed = allowed & present
        memory, on_cpu = self._memory(rows, keys), lib.on_cpu(allowed)
        gated = rows.site in self._gated
        name = (rows.site.kind, gated, items.start, rows.start, r, rows.key_start, s)
        regions = self._regions.setdefault(name, [])
        for cached in regions:
            alike = cached.learned_sink == rows.sink and cached.scratch is memory
            if alike and (lib.equal(cached.allowed, allowed) if on_cpu
                         else cached.given is rows.allowed):  # fmt: skip
                return cached
        region = Region(
            axes, items, rows.start, rows.key_start, allowed, memory, learned_sink=rows.sink
        )
        size, region.given = math.prod(allowed.shape), rows.allowed
        limit = _SHARED_ELEMENTS if on_cpu else lib.at_once(allowed, _HELD_ELEMENTS)
        if self._shared + size <= limit:
            region.allowed = lib.copied(allowed) if on_cpu else allowed
            regions.append(region)
            self._shared += size
        return region

    def _memory(self, rows: Rows, keys: int) -> Array:
        """Memory to score in, the same for every block: for one of all keys, or a part of it."""
        items, heads, count, _ = rows.weights.shape
        scratch, weights = self._scratch, rows.weights
        on_cpu = arrays.of(weights).on_cpu(weights)
        size = min(_PART_ELEMENTS, items * heads * count * keys) if on_cpu else 0
        if scratch is None or len(scratch) < size or scratch.dtype != weights.dtype:
            scratch = self._scratch = arrays.of(weights).empty((size,), weights.dtype, weights)
        assert scratch is not None
        return scratch

    def _show(self, site: Site, start: int, items: slice, values: NDArray[Any]) -> None:
        """Let somebody see the scores of single rows, item by item."""
        assert self._watch is not None
        lengths = self._axes[site.kind].lengths
        for item, item_values in zip(range(items.start, items.stop), values, strict=True):
            counting = item_values[:, :, : max(0, lengths[item][0] - start)].swapaxes(0, 1)
            if counting.shape[-1]:
                self._watch(item, site, start, self._scored(site), counting)


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
    return absolute / xp.where(total > 0, total, 1)


def observe(
    source: Source, batch: Sequence[Inputs], *observers: Observer, terms: bool = False
) -> None:
    """Run a batch for what observers see of it: the pass ends when the last layer has attended."""
    source.forward(batch, observers, ForwardRequest(hidden=False, terms=terms))


class ProgressObserver:
    """Watches how far a batch has come."""

    checks_numbers = True  # no look is taken at them

    def __init__(
        self, batch: Sequence[Inputs], layout: Layout, tell: Callable[[float], None]
    ) -> None:
        self._tell, self._done = tell, 0
        self._all = sum(
            max(len(inputs.sides[site.kind].queries) for inputs in batch) for site in layout.sites
        )

    def observe(self, rows: Rows) -> None:
        """Count the rows of a block."""
        self._done += rows.weights.shape[2]
        self._tell(self._done / self._all)


def following(
    inputs: Inputs, layout: Layout, progress: Progress | None
) -> tuple[ProgressObserver, ...]:
    """Return what counts the tokens of one text as they go through all layers, if anybody asks."""
    if progress is None:
        return ()
    total = inputs.length
    return (
        ProgressObserver(
            [inputs], layout, lambda share: progress("tokens", round(share * total), total)
        ),
    )


def score_batch(
    source: Source, batch: Sequence[Inputs], names: Sequence[str] | None = None
) -> ScoreObserver:
    """Run texts and score every head; the observer has the result, and the sums over them."""
    observer = ScoreObserver(batch, source.layout, names)
    observe(source, batch, observer)
    return observer


def score_texts(
    source: Source, batches: Sequence[Sequence[Inputs]], tokens: int = 4096
) -> tuple[HeadScores, ...]:
    """Return what every head does on texts that run batch by batch.

    ``tokens``: so many at most of the batches that run at once.
    """

    def sums(batch: Sequence[Inputs]) -> Sums:
        return score_batch(source, batch).total()

    # functions of a user need not bear to be called by several threads
    concurrent = 0 if any(score.user for score in SCORES.values()) else source.concurrent
    largest = max(map(padded, batches), default=0)
    totals = run_passes(sums, batches, concurrent, largest, tokens)
    return sum(totals, Sums.zero(len(source.layout))).of(source.layout)
