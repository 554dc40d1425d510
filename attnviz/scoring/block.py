"""What a score sees: some query rows of one layer, and what is known about their tokens.

:class:`Region` is computed once for a block of rows, :class:`Block` holds the weights themselves
and whatever several scores share.
Notation in shapes: B items, H heads, r query rows, s keys of the block; A is H, or 1 where all
heads share a mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from attnviz.core import arrays
from attnviz.core.arrays import Array, Integers
from attnviz.scoring.axes import Axes

LOCAL_WINDOW = 2
"""How far the ``local`` score reaches on either side of the query."""

SINK_REST = 0.1
"""The weight that a row must leave off the sink for ``*_no_sink`` scores to be defined there."""

_SINK, _SEPARATOR, _PUNCTUATION, _GAP = range(4)
"""The columns that every row of an item shares."""


class Pairs(NamedTuple):
    """Target keys that differ from row to row, as columns of a block: int64 [n] each.

    ``lines`` are the rows of all items, one item after the other.
    """

    items: Array
    rows: Array
    keys: Array
    lines: Array


class Expected(NamedTuple):
    """What chance gives every score in some rows."""

    chances: Array  # [B, A, n, r]
    possible: Array  # bool [B, A, n, r], whether a row can count for a score at all


class Region:
    """Where a block stands: its items, rows and keys, and which of them may meet.

    Equal blocks of different layers may share one, with all that was worked out in it.

    ``allowed``: bool [B, A, r, s], the keys each query may attend to.

    Attributes:
        choices: [B, A, r], how many keys each query may attend to.
        expected: what chance gives here, once somebody has worked it out.
        given: the mask that ``allowed`` was made of, as the layer handed it out.
    """

    given: Array | None = None

    def __init__(
        self,
        axes: Axes,
        items: slice,
        start: int,
        key_start: int,
        allowed: Array,
        scratch: Array,
        *,
        learned_sink: bool = False,
    ) -> None:
        self.axes, self.items = axes, items
        self.start, self.key_start = start, key_start
        self.allowed = allowed
        self.rows, self.keys = allowed.shape[-2:]
        self.scratch, self.learned_sink = scratch, learned_sink
        self.lib = arrays.of(scratch)
        self.choices = self.ones().sum(-1)
        self.expected: Expected | None = None

    def memory(self, shape: Sequence[int]) -> Array:
        """Memory of that shape, in ``scratch`` if it fits; what was there is lost."""
        size = math.prod(shape)
        if size > len(self.scratch):
            return self.lib.empty(shape, self.scratch.dtype, self.scratch)
        return self.scratch[:size].reshape(tuple(shape))

    def ones(self) -> Array:
        """[B, A, r, s], 1 where a query may attend to a key; in ``scratch`` if it fits there."""
        memory = self.memory(self.allowed.shape)
        memory[...] = self.allowed
        return memory

    @cached_property
    def reached(self) -> Array:
        """[B, A, 2, s], how many queries may attend to a key, and what uniform attention gives it.

        What was in ``scratch`` is lost.
        """
        lib = self.lib
        real = lib.xp.broadcast_to(self.queries(self.axes.real)[:, None], self.choices.shape)
        real = lib.cast(real, self.scratch.dtype)
        rows: Array = lib.xp.stack([real, real / self.choices.clip(1)], 2)
        return rows @ self.ones()

    def queries(self, flags: Array) -> Array:
        """Return the block's part [B, r] of something over all queries of the batch."""
        return flags[self.items, self.start : self.start + self.rows]

    def of_keys(self, values: Array) -> Array:
        """Return the block's part [B, ..., s] of something over all keys of the batch."""
        return values[self.items, ..., self.key_start : self.key_start + self.keys]

    @cached_property
    def countable(self) -> Array:
        """Bool [B, A, r]: rows whose query is no special token and has a choice."""
        return self.queries(self.axes.counts)[:, None] & (self.choices >= 2)

    @cached_property
    def positions(self) -> Array:
        """Int32 [r], the queries' positions."""
        return self._range(self.start, self.rows)

    @cached_property
    def key_positions(self) -> Array:
        """Int32 [s]."""
        return self._range(self.key_start, self.keys)

    @cached_property
    def tile(self) -> tuple[int, int]:
        """Which of the block's keys stand at the positions of its queries, as a range."""
        first = min(max(self.start - self.key_start, 0), self.keys)
        return first, min(max(self.start + self.rows - self.key_start, first), self.keys)

    @cached_property
    def columns(self) -> Array:
        """[B, 4, s]: 1 for the keys of each kind; last, how far a key lies outside the queries."""
        ahead = self.start - self.key_positions
        behind = -ahead - (self.rows - 1)
        xp = self.lib.xp
        gap = self.lib.cast(xp.maximum(ahead, behind).clip(0), self.scratch.dtype)
        shared = self.of_keys(self.axes.columns)
        gap = xp.broadcast_to(gap, (len(shared), 1, len(gap)))
        return xp.concatenate([shared, gap], 1)

    @cached_property
    def near(self) -> tuple[Array, Array]:
        """Columns [r, 2w+1] of the keys i-w..i+w; [B, r, 2w+1], 1 where it can be a target."""
        lib = self.lib
        offsets = lib.arange(-LOCAL_WINDOW, LOCAL_WINDOW + 1, lib.int64, self.scratch)
        columns = self.positions[:, None] + offsets - self.key_start
        inside = (columns >= 0) & (columns < self.keys)
        columns = columns.clip(0, self.keys - 1)
        return columns, self.of_keys(self.axes.plain)[:, columns] * inside

    @cached_property
    def apart(self) -> tuple[Array, Array]:
        """[B, r, s], how far keys are that have a place; [B, 1, s], 1 for these."""
        assert self.axes.places is not None
        first = self.axes.places[self.items, self.start : self.start + self.rows]
        second = self.axes.places[self.items, self.key_start : self.key_start + self.keys]
        xp = self.lib.xp
        distance = xp.sqrt(xp.square(first[:, :, None] - second[:, None]).sum(-1))
        located = self.lib.cast(~xp.isnan(second).any(-1), self.scratch.dtype)
        return xp.nan_to_num(distance), located[:, None]

    @cached_property
    def around(self) -> Array:
        """[B, r, s], 1 for patches of near rows and columns that can be a target."""
        assert self.axes.places is not None
        first = self.axes.places[self.items, self.start : self.start + self.rows]
        second = self.axes.places[self.items, self.key_start : self.key_start + self.keys]
        near = (abs(first[:, :, None] - second[:, None]) <= LOCAL_WINDOW).all(-1)
        return near * self.of_keys(self.axes.plain)[:, None]

    @property
    def duplicate(self) -> Pairs:
        """Earlier keys of the same token, at least two positions back."""
        return self._repeated[0]

    @property
    def induction(self) -> Pairs:
        """Keys right after an earlier same token, at least two positions back."""
        return self._repeated[1]

    def _range(self, start: int, count: int) -> Array:
        return self.lib.arange(start, start + count, self.lib.int32, self.scratch)

    @cached_property
    def _repeated(self) -> tuple[Pairs, Pairs]:
        """The keys 0 and 1 positions after an earlier same token."""
        assert self.axes.repeats is not None
        items, rows, keys = self.axes.repeats.pairs(self.items, self.start, self.start + self.rows)
        columns = [self._targets(items, rows, keys + step) for step in (0, 1)]
        pairs = self.lib.together([part for parts in columns for part in parts], self.scratch)
        return Pairs(*pairs[:4]), Pairs(*pairs[4:])

    def _targets(self, items: Integers, rows: Integers, keys: Integers) -> tuple[Integers, ...]:
        """Those of the keys that can be targets, on the host."""
        columns = keys - self.key_start
        fits = (keys <= rows + self.start - 2) & (columns >= 0) & (columns < self.keys)
        items, rows, columns = items[fits], rows[fits], columns[fits]
        plain = self.axes.outside[self.items, self.key_start :][items, columns]
        items, rows, columns = items[plain], rows[plain], columns[plain]
        return items, rows, columns, items * self.rows + rows


class Block:
    """Attention weights of some query rows, with what several scores share computed once.

    ``weights`` [B, H, r, s], rows of a distribution over keys, or zero; ``earlier`` [B, H, S], what
    the rows before the block gave to every key of the layer, off the sink; None where they are like
    those of the block; ``openness`` [B, H, r], how far the gate on a head's output is open; None
    where there is none; ``uniform``: whether a last head beside the others is uniform attention.
    """

    def __init__(
        self,
        weights: Array,
        region: Region,
        logits: Array | None = None,
        heads: slice = slice(None),
        earlier: Array | None = None,
        openness: Array | None = None,
        *,
        uniform: bool = False,
    ) -> None:
        self.weights, self.region, self.logits, self.heads = weights, region, logits, heads
        self.earlier, self.openness, self.uniform = earlier, openness, uniform
        self.xp = region.lib.xp

    def parts(self) -> Iterator[Block]:
        """Yield the same block, a few heads at a time: as many weights as fit into its memory."""
        if not self.region.lib.on_cpu(self.weights):
            yield self
            return
        items, _, rows, keys = self.weights.shape
        step = max(1, len(self.region.scratch) // max(1, items * rows * keys))
        for first in range(0, self.weights.shape[1], step):
            heads = slice(first, first + step)
            logits = None if self.logits is None else self.logits[:, heads]
            earlier = None if self.earlier is None else self.earlier[:, heads]
            openness = None if self.openness is None else self.openness[:, heads]
            yield Block(self.weights[:, heads], self.region, logits, heads, earlier, openness)

    @cached_property
    def top(self) -> Array:
        """[B, H, r], the largest weight."""
        return self.xp.amax(self.weights, -1)

    @cached_property
    def entropy(self) -> Array:
        """[B, H, r], -Σ w log₂ w in bits; what a learned sink takes is one more w."""
        if self.region.learned_sink:
            return self._entropy_of_keys + self._entropy_of_sink
        return self._entropy_of_keys

    @property
    def choices(self) -> Array:
        """[B, A, r], between how many things the weight of a row can be divided."""
        choices = self.region.choices + self.region.learned_sink
        return choices if choices.shape[1] == 1 else choices[:, self.heads]

    @property
    def _entropy_of_sink(self) -> Array:
        remaining = (1 - self.weights.sum(-1)).clip(self.xp.finfo(self.weights.dtype).tiny)
        return -self.xp.log2(remaining) * remaining

    @property
    def _entropy_of_keys(self) -> Array:
        xp = self.xp
        if self.logits is None:
            memory = self.region.memory(self.weights.shape)
            logs = xp.add(self.weights, xp.finfo(self.weights.dtype).tiny, out=memory)
            xp.log2(logs, out=logs)
            logs *= self.weights
            return -logs.sum(-1).clip(None, 0)
        # with z the logits and their largest belonging to the largest weight t:
        # log w = z - max z + log t, hence -Σ w log w = Σ w (max z - z) - Σ w · log t
        peaks = xp.amax(self.logits, -1)[..., None]
        below = xp.subtract(peaks, self.logits, out=self.region.memory(self.weights.shape))
        below *= self.weights
        total = self.weights.sum(-1) if self.region.learned_sink else 1
        return (below.sum(-1) - total * xp.log(self.top)).clip(0) / math.log(2)

    @cached_property
    def distance(self) -> Array:
        """[B, H, r], Σ w |i - j|; or Σ w d / Σ w over the keys that have a place."""
        region = self.region
        if region.axes.places is not None:
            far, located = (part[:, None] for part in region.apart)
            mass = (self.weights * located).sum(-1)
            tiny = self.xp.finfo(self.weights.dtype).tiny
            return (self.weights * far).sum(-1) / mass.clip(tiny)
        first, last = region.tile
        behind = region.lib.arange(0, region.rows, self.weights.dtype, self.weights)
        inside = abs(region.positions[:, None] - region.key_positions[first:last])
        inside = region.lib.cast(inside, self.weights.dtype)
        near = self.weights[..., first:last] * inside
        # no differences of large numbers: outside the tile, |i - j| is the way to its edge and on
        below = self.weights[..., :first].sum(-1) * behind
        above = self.weights[..., last:].sum(-1) * self.xp.flip(behind, (0,))
        return near.sum(-1) + self._columns[:, _GAP] + below + above

    @property
    def first(self) -> Array:
        """[B, H, r], the weight on position 0."""
        return self.weights[..., 0] if self.region.key_start == 0 else self.nothing

    @property
    def sink(self) -> Array:
        """[B, H, r], the weight on position 0 and special tokens."""
        return self._columns[:, _SINK]

    @property
    def separator(self) -> Array:
        """[B, H, r], the weight on tokens that end a segment, but for position 0."""
        return self._columns[:, _SEPARATOR]

    @property
    def punctuation(self) -> Array:
        """[B, H, r], the weight on punctuation outside the sink."""
        return self._columns[:, _PUNCTUATION]

    @cached_property
    def near(self) -> Array:
        """[B, H, r, 2w+1], the weight on each key of the local window that can be a target."""
        columns, plain = self.region.near
        return self.region.lib.columns_of_rows(self.weights, columns) * plain[:, None]

    @property
    def around(self) -> Array:
        """[B, H, r], the weight within the local window, of rows and columns for patches."""
        if self.region.axes.space == "patches":
            return (self.weights * self.region.around[:, None]).sum(-1)
        return self.near.sum(-1)

    @property
    def registers(self) -> Array:
        """[B, H, r], the weight on register tokens."""
        flags = self.region.of_keys(self.region.axes.registers)
        return (self.weights * flags[:, None, None]).sum(-1)

    @property
    def off_sink(self) -> Array:
        """[B, H, r, s], what each row gives off the sink, rescaled to 1; 0 for some rows.

        These are special tokens, and rows that leave less than :data:`SINK_REST` off the sink.
        """
        region = self.region
        plain = self.weights * region.of_keys(region.axes.plain)[:, None, None]
        remaining = (1 - self.sink)[..., None]
        counts = region.queries(region.axes.counts)[:, None, :, None]
        return plain / remaining.clip(SINK_REST) * (counts & (remaining >= SINK_REST))

    @property
    def forward(self) -> Array:
        """[B, H, r], the chance that a key of a row comes after one of a random earlier row.

        Keys are drawn from the weights off the sink, ties count half, and so do rows before which
        there is none.
        """
        w = self.off_sink
        if self.earlier is None:
            return 0.5 * w.sum(-1)
        start = self.region.key_start
        earlier = self.earlier[:, :, None, start : start + self.region.keys] + w.cumsum(2) - w
        outside = self.earlier[..., :start].sum(-1)[..., None, None]
        below = outside + earlier.cumsum(-1) - earlier / 2
        rows = w.sum(-1)
        total = self.earlier.sum(-1)[..., None] + rows.cumsum(-1) - rows
        passed = (w * below).sum(-1) / total.clip(0.5)
        return self.xp.where(total >= 0.5, passed, 0.5 * rows)

    @property
    def gate(self) -> Array:
        """[B, H, r], how far the gate is open; without one ½, as of a gate that reads 0."""
        return self.nothing + 0.5 if self.openness is None else self.openness

    @property
    def nothing(self) -> Array:
        """[B, H, r], no weight."""
        return self.xp.zeros_like(self.weights[..., 0])

    def on(self, pairs: Pairs) -> Array:
        """[B, H, r], the weight on targets that differ from row to row."""
        items, heads, rows, _ = self.weights.shape
        weights = self.weights[pairs.items, :, pairs.rows, pairs.keys]  # [n, H]
        sums = self.region.lib.sum_by_row(weights, pairs.lines, items * rows)
        return sums.reshape(items, rows, heads).swapaxes(1, 2)

    @cached_property
    def _columns(self) -> Array:
        """[B, 4, H, r], the weights times the columns that all rows share."""
        items, heads, rows, _ = self.weights.shape
        # few rows times many columns: many times faster than the other way round
        stacked = self.weights.reshape(items, heads * rows, -1)
        product = self.region.columns @ stacked.swapaxes(1, 2)
        return product.reshape(items, -1, heads, rows)


class Uniform(Block):
    """Uniform attention over the allowed keys, [B, A, r, s]: what chance is.

    Its weights live in the region's memory, until that is used for something else.
    """

    def __init__(self, region: Region) -> None:
        share = 1 / region.choices.clip(1)
        weights = region.ones()
        weights *= share[..., None]
        super().__init__(weights, region)
        self.top = share
        self.entropy = self.xp.log2(self.choices.clip(1))
