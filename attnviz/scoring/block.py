"""What a score sees: some query rows of one layer, and what is known about their tokens.

:class:`Place` is computed once for a block of rows, :class:`Block` holds the weights themselves and
whatever several scores share.
Notation in shapes: B items, H heads, r query rows, s keys of the block; A is H, or 1 where all
heads share a mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.scoring.axes import Axes

LOCAL_WINDOW = 2
"""How far the ``local`` score reaches on either side of the query."""

SINK_REST = 0.1
"""The weight that a row must leave off the sink for ``*_no_sink`` scores to be defined there."""

_SINK, _SEPARATOR, _PUNCTUATION, _GAP = range(4)
"""The columns that every row of an item shares."""


class Pairs(NamedTuple):
    """Target keys that differ from row to row, as columns of a block: int64 [n] each."""

    items: Tensor
    rows: Tensor
    keys: Tensor


class Expected(NamedTuple):
    """What chance gives every score in some rows.

    Attributes:
        chances: [B, A, n, r].
        possible: bool [B, A, n, r], whether a row can count for a score at all.
    """

    chances: Tensor
    possible: Tensor


class Place:
    """Where a block stands: its items, rows and keys, and which of them may meet.

    Equal blocks of different layers may share one, with all that was worked out in it.

    Args:
        axes: the tokens of the batch.
        items: which of the batch's items the block has.
        start: position of the first query.
        key_start: position of the first key.
        allowed: bool [B, A, r, s], the keys each query may attend to.
        scratch: flat memory to work in, of the dtype and on the device of the weights.
        learned_sink: part of each row goes to a learned sink that is no key; it counts as one more
            choice.

    Attributes:
        choices: [B, A, r], how many keys each query may attend to.
        expected: what chance gives here, once somebody has worked it out.
    """

    def __init__(
        self,
        axes: Axes,
        items: slice,
        start: int,
        key_start: int,
        allowed: Tensor,
        scratch: Tensor,
        *,
        learned_sink: bool = False,
    ) -> None:
        self.axes, self.items = axes, items
        self.start, self.key_start = start, key_start
        self.allowed = allowed
        self.rows, self.keys = allowed.shape[-2:]
        self.scratch, self.learned_sink = scratch, learned_sink
        self.choices = self.ones().sum(-1)
        self.expected: Expected | None = None

    def memory(self, shape: torch.Size) -> Tensor:
        """Memory of that shape, in ``scratch`` if it fits; what was there is lost."""
        size = math.prod(shape)
        if size > self.scratch.numel():
            return self.scratch.new_empty(shape)
        return self.scratch[:size].view(shape)

    def ones(self) -> Tensor:
        """[B, A, r, s], 1 where a query may attend to a key; in ``scratch`` if it fits there."""
        return self.memory(self.allowed.shape).copy_(self.allowed)

    @cached_property
    def reached(self) -> Tensor:
        """[B, A, 2, s], how many queries may attend to a key, and what uniform attention gives it.

        What was in ``scratch`` is lost.
        """
        real = self.queries(self.axes.real)[:, None].expand_as(self.choices)
        rows = torch.stack([real, real / self.choices.clamp(min=1)], dim=2)
        return rows.to(self.scratch.dtype) @ self.ones()

    def queries(self, flags: Tensor) -> Tensor:
        """The block's part [B, r] of something over all queries of the batch."""
        return flags[self.items, self.start : self.start + self.rows]

    def of_keys(self, values: Tensor) -> Tensor:
        """The block's part [B, ..., s] of something over all keys of the batch."""
        return values[self.items, ..., self.key_start : self.key_start + self.keys]

    @cached_property
    def countable(self) -> Tensor:
        """Bool [B, A, r]: rows whose query is no special token and has a choice."""
        return self.queries(self.axes.counts)[:, None] & (self.choices >= 2)

    @cached_property
    def positions(self) -> Tensor:
        """Int32 [r], the queries' positions."""
        return self._range(self.start, self.rows)

    @cached_property
    def key_positions(self) -> Tensor:
        """Int32 [s]."""
        return self._range(self.key_start, self.keys)

    @cached_property
    def tile(self) -> tuple[int, int]:
        """Which of the block's keys stand at the positions of its queries, as a range."""
        first = min(max(self.start - self.key_start, 0), self.keys)
        return first, min(max(self.start + self.rows - self.key_start, first), self.keys)

    @cached_property
    def columns(self) -> Tensor:
        """[B, 4, s]: 1 for the keys of each kind; last, how far a key lies outside the queries."""
        before = self.start - self.key_positions
        after = -before - (self.rows - 1)
        gap = torch.maximum(before, after).clamp(min=0).to(self.scratch.dtype)
        shared = self.of_keys(self.axes.columns)
        return torch.cat([shared, gap.expand(len(shared), 1, -1)], dim=1)

    @cached_property
    def near(self) -> tuple[Tensor, Tensor]:
        """Columns [r, 2w+1] of the keys i-w..i+w; [B, r, 2w+1], 1 where it can be a target."""
        offsets = torch.arange(-LOCAL_WINDOW, LOCAL_WINDOW + 1, device=self.scratch.device)
        columns = self.positions[:, None] + offsets - self.key_start
        inside = (columns >= 0) & (columns < self.keys)
        columns = columns.clamp(0, self.keys - 1).long()
        return columns, self.of_keys(self.axes.plain)[:, columns] * inside

    @cached_property
    def apart(self) -> tuple[Tensor, Tensor]:
        """[B, r, s], how far keys are that have a place; [B, 1, s], 1 for these."""
        assert self.axes.places is not None
        first = self.axes.places[self.items, self.start : self.start + self.rows]
        second = self.axes.places[self.items, self.key_start : self.key_start + self.keys]
        distance = (first[:, :, None] - second[:, None]).square().sum(-1).sqrt()
        placed = (~second.isnan().any(-1)).to(self.scratch.dtype)
        return distance.nan_to_num(), placed[:, None]

    @cached_property
    def around(self) -> Tensor:
        """[B, r, s], 1 for patches of near rows and columns that can be a target."""
        assert self.axes.places is not None
        first = self.axes.places[self.items, self.start : self.start + self.rows]
        second = self.axes.places[self.items, self.key_start : self.key_start + self.keys]
        near = ((first[:, :, None] - second[:, None]).abs() <= LOCAL_WINDOW).all(-1)
        return near * self.of_keys(self.axes.plain)[:, None]

    @property
    def duplicate(self) -> Pairs:
        """Earlier keys of the same token, at least two positions back."""
        return self._repeated[0]

    @property
    def induction(self) -> Pairs:
        """Keys right after an earlier same token, at least two positions back."""
        return self._repeated[1]

    def _range(self, start: int, count: int) -> Tensor:
        return torch.arange(start, start + count, device=self.scratch.device, dtype=torch.int32)

    @cached_property
    def _repeated(self) -> tuple[Pairs, Pairs]:
        """The keys 0 and 1 positions after an earlier same token."""
        assert self.axes.repeats is not None
        items, rows, keys = self.axes.repeats.pairs(self.items, self.start, self.start + self.rows)
        return self._targets(items, rows, keys), self._targets(items, rows, keys + 1)

    def _targets(self, items: Tensor, rows: Tensor, keys: Tensor) -> Pairs:
        """Those of the keys that can be targets."""
        columns = keys - self.key_start
        fits = (keys <= rows + self.start - 2) & (columns >= 0) & (columns < self.keys)
        items, rows, columns = items[fits], rows[fits], columns[fits]
        plain = self.of_keys(self.axes.plain)[items, columns] > 0
        return Pairs(items[plain], rows[plain], columns[plain])


class Block:
    """Attention weights of some query rows, with what several scores share computed once.

    Args:
        weights: [B, H, r, s], rows of a distribution over keys, or zero.
        place: where they stand.
        logits: what softmax was taken of, finite, or None.
        heads: which of the layer's heads these are; all by default.
        earlier: [B, H, S], what the rows before the block gave to every key of the layer, off the
            sink; None where they are like those of the block.
    """

    def __init__(
        self,
        weights: Tensor,
        place: Place,
        logits: Tensor | None = None,
        heads: slice = slice(None),
        earlier: Tensor | None = None,
    ) -> None:
        self.weights, self.place, self.logits, self.heads = weights, place, logits, heads
        self.earlier = earlier

    def parts(self) -> Iterator[Block]:
        """The same block, a few heads at a time: as many weights as fit into its memory."""
        step = max(1, self.place.scratch.numel() // max(1, self.weights[:, 0].numel()))
        for first in range(0, self.weights.shape[1], step):
            heads = slice(first, first + step)
            logits = None if self.logits is None else self.logits[:, heads]
            earlier = None if self.earlier is None else self.earlier[:, heads]
            yield Block(self.weights[:, heads], self.place, logits, heads, earlier)

    @cached_property
    def top(self) -> Tensor:
        """[B, H, r], the largest weight."""
        return self.weights.amax(-1)

    @cached_property
    def entropy(self) -> Tensor:
        """[B, H, r], -Σ w log₂ w in bits; what a learned sink takes is one more w."""
        if self.place.learned_sink:
            return self._entropy_of_keys + self._entropy_of_sink
        return self._entropy_of_keys

    @property
    def choices(self) -> Tensor:
        """[B, A, r], between how many things the weight of a row can be divided."""
        choices = self.place.choices + self.place.learned_sink
        return choices if choices.shape[1] == 1 else choices[:, self.heads]

    @property
    def _entropy_of_sink(self) -> Tensor:
        rest = (1 - self.weights.sum(-1)).clamp(min=torch.finfo(self.weights.dtype).tiny)
        return -rest.log2() * rest

    @property
    def _entropy_of_keys(self) -> Tensor:
        if self.logits is None:
            tiny = torch.finfo(self.weights.dtype).tiny
            logs = torch.add(self.weights, tiny, out=self.place.memory(self.weights.shape)).log2_()
            return -logs.mul_(self.weights).sum(-1).clamp(max=0)
        # with z the logits and their largest belonging to the largest weight t:
        # log w = z - max z + log t, hence -Σ w log w = Σ w (max z - z) - Σ w · log t
        peaks = self.logits.amax(-1, keepdim=True)
        below = torch.sub(peaks, self.logits, out=self.place.memory(self.weights.shape)).mul_(
            self.weights
        )
        total = self.weights.sum(-1) if self.place.learned_sink else 1
        return (below.sum(-1) - total * self.top.log()).clamp(min=0) / math.log(2)

    @cached_property
    def distance(self) -> Tensor:
        """[B, H, r], Σ w |i - j|; or Σ w d / Σ w over the keys that have a place."""
        place = self.place
        if place.axes.places is not None:
            apart, placed = (part[:, None] for part in place.apart)
            there = (self.weights * placed).sum(-1)
            tiny = torch.finfo(self.weights.dtype).tiny
            return (self.weights * apart).sum(-1) / there.clamp(min=tiny)
        first, last = place.tile
        behind = torch.arange(place.rows, device=self.weights.device, dtype=self.weights.dtype)
        inside = (place.positions[:, None] - place.key_positions[first:last]).abs()
        near = self.weights[..., first:last] * inside
        # no differences of large numbers: outside the tile, |i - j| is the way to its edge and on
        left = self.weights[..., :first].sum(-1) * behind
        right = self.weights[..., last:].sum(-1) * behind.flip(0)
        return near.sum(-1) + self._columns[:, _GAP] + left + right

    @property
    def first(self) -> Tensor:
        """[B, H, r], the weight on position 0."""
        return self.weights[..., 0] if self.place.key_start == 0 else self.nothing

    @property
    def sink(self) -> Tensor:
        """[B, H, r], the weight on position 0 and special tokens."""
        return self._columns[:, _SINK]

    @property
    def separator(self) -> Tensor:
        """[B, H, r], the weight on tokens that end a segment, but for position 0."""
        return self._columns[:, _SEPARATOR]

    @property
    def punctuation(self) -> Tensor:
        """[B, H, r], the weight on punctuation outside the sink."""
        return self._columns[:, _PUNCTUATION]

    @cached_property
    def near(self) -> Tensor:
        """[B, H, r, 2w+1], the weight on each key of the local window that can be a target."""
        columns, plain = self.place.near
        items, heads = self.weights.shape[:2]
        return self.weights.gather(3, columns.expand(items, heads, -1, -1)) * plain[:, None]

    @property
    def around(self) -> Tensor:
        """[B, H, r], the weight within the local window, of rows and columns for patches."""
        if self.place.axes.space == "patches":
            return (self.weights * self.place.around[:, None]).sum(-1)
        return self.near.sum(-1)

    @property
    def registers(self) -> Tensor:
        """[B, H, r], the weight on register tokens."""
        flags = self.place.of_keys(self.place.axes.registers)
        return (self.weights * flags[:, None, None]).sum(-1)

    @property
    def off_sink(self) -> Tensor:
        """[B, H, r, s], what each row gives off the sink, rescaled to 1; 0 for some rows.

        These are special tokens, and rows that leave less than :data:`SINK_REST` off the sink.
        """
        place = self.place
        plain = self.weights * place.of_keys(place.axes.plain)[:, None, None]
        rest = (1 - self.sink)[..., None]
        counts = place.queries(place.axes.counts)[:, None, :, None]
        return plain / rest.clamp(min=SINK_REST) * (counts & (rest >= SINK_REST))

    @property
    def forward(self) -> Tensor:
        """[B, H, r], the chance that a key of a row comes after one of a random earlier row.

        Keys are drawn from the weights off the sink, ties count half, and so do rows before which
        there is none.
        """
        own = self.off_sink
        if self.earlier is None:
            return 0.5 * own.sum(-1)
        start = self.place.key_start
        before = self.earlier[:, :, None, start : start + self.place.keys] + own.cumsum(2) - own
        left = self.earlier[..., :start].sum(-1)[..., None, None]
        below = left + before.cumsum(-1) - before / 2
        rows = own.sum(-1)
        total = self.earlier.sum(-1)[..., None] + rows.cumsum(-1) - rows
        passed = (own * below).sum(-1) / total.clamp(min=0.5)
        return passed.where(total >= 0.5, 0.5 * rows)

    @property
    def nothing(self) -> Tensor:
        """[B, H, r], no weight."""
        return torch.zeros_like(self.weights[..., 0])

    def on(self, pairs: Pairs) -> Tensor:
        """[B, H, r], the weight on targets that differ from row to row."""
        items, heads, rows, _ = self.weights.shape
        weights = self.weights[pairs.items, :, pairs.rows, pairs.keys]  # [n, H]
        summed = weights.new_zeros(items * rows, heads)
        summed.index_add_(0, pairs.items * rows + pairs.rows, weights)
        return summed.view(items, rows, heads).transpose(1, 2)

    @cached_property
    def _columns(self) -> Tensor:
        """[B, 4, H, r], the weights times the columns that all rows share."""
        items, heads, rows, _ = self.weights.shape
        # few rows times many columns: many times faster than the other way round
        product = self.place.columns @ self.weights.flatten(1, 2).mT
        return product.view(items, -1, heads, rows)


class Uniform(Block):
    """Uniform attention over the allowed keys, [B, A, r, s]: what chance is.

    Its weights live in the place's memory, until that is used for something else.
    """

    def __init__(self, place: Place) -> None:
        share = 1 / place.choices.clamp(min=1)
        super().__init__(place.ones().mul_(share[..., None]), place)
        self.top = share
        self.entropy = self.choices.clamp(min=1).log2()
