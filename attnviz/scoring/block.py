"""What a score sees: some query rows of one layer, and what is known about their tokens.

:class:`Place` is computed once for a block of rows, :class:`Block` holds the weights themselves and
whatever several scores share.
Notation in shapes: H heads, r query rows, s keys of the block; A is H, or 1 where all heads share
a mask.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.scoring.axes import Axes, Columns

LOCAL_WINDOW = 2
"""How far the ``local`` score reaches on either side of the query."""

_FEW_COLUMNS = 8
"""Up to so many key columns are read one by one; more are a matrix-vector product."""


class Pairs(NamedTuple):
    """Target keys that differ from row to row: their rows, and their places in a flat [r * s]."""

    rows: Tensor
    flat: Tensor


class Place:
    """Where a block stands: its rows and keys, and which of them may meet.

    Args:
        axes: the tokens.
        start: position of the first query.
        key_start: position of the first key.
        allowed: bool [A, r, s], the keys each query may attend to.
        scratch: flat memory to work in, of the dtype and on the device of the weights.
        learned_sink: part of each row goes to a learned sink that is no key; it counts as one more
            choice.

    Attributes:
        choices: [A, r], how many keys each query may attend to.
    """

    def __init__(
        self,
        axes: Axes,
        start: int,
        key_start: int,
        allowed: Tensor,
        scratch: Tensor,
        *,
        learned_sink: bool = False,
    ) -> None:
        self.axes, self.start, self.key_start = axes, start, key_start
        self.allowed = allowed
        self.rows, self.keys = allowed.shape[-2:]
        self.scratch, self.learned_sink = scratch, learned_sink
        self.choices = self.ones().sum(-1)

    def memory(self, shape: torch.Size) -> Tensor:
        """Memory of that shape, in ``scratch`` if it fits; what was there is lost."""
        size = math.prod(shape)
        if size > self.scratch.numel():
            return self.scratch.new_empty(shape)
        return self.scratch[:size].view(shape)

    def ones(self) -> Tensor:
        """[A, r, s], 1 where a query may attend to a key; in ``scratch`` if it fits there."""
        return self.memory(self.allowed.shape).copy_(self.allowed)

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
    def gap(self) -> Tensor:
        """[s], how far each key lies outside the queries' range of positions, else 0."""
        before = self.start - self.key_positions
        after = -before - (self.rows - 1)
        return torch.maximum(before, after).clamp(min=0).to(self.scratch.dtype)

    @cached_property
    def near(self) -> tuple[Tensor, Tensor]:
        """Columns [r, 2w+1] of the keys i-w..i+w, and 1 where that key can be a target, else 0."""
        offsets = torch.arange(-LOCAL_WINDOW, LOCAL_WINDOW + 1, device=self.scratch.device)
        columns = self.positions[:, None] + offsets - self.key_start
        inside = (columns >= 0) & (columns < self.keys)
        columns = columns.clamp(0, self.keys - 1).long()
        plain = self.axes.plain[self._slice][columns]
        return columns, torch.where(inside, plain, 0)

    def of_heads(self, heads: slice) -> Place:
        """The same place for some of the heads."""
        if self.allowed.shape[0] == 1:
            return self
        allowed = self.allowed[heads]
        return Place(
            self.axes,
            self.start,
            self.key_start,
            allowed,
            self.scratch,
            learned_sink=self.learned_sink,
        )

    @property
    def repeats(self) -> bool:
        """Whether any token occurs again, in a sequence where that means something."""
        return self.axes.repeats is not None and self.axes.repeats.any

    @cached_property
    def duplicate(self) -> Pairs:
        """Earlier keys of the same token, at least two positions back."""
        return self._targets(0)

    @cached_property
    def induction(self) -> Pairs:
        """Keys right after an earlier same token, at least two positions back."""
        return self._targets(1)

    def columns(self, columns: Columns) -> tuple[list[int], Tensor]:
        """Some keys as columns of the block: their numbers, and ones in a vector [s]."""
        inside = columns.within(self.key_start, self.key_start + self.keys)
        return [position - self.key_start for position in inside], columns.ones[self._slice]

    def queries(self, flags: Tensor) -> Tensor:
        """The block's part [r] of a vector over all queries."""
        return flags[self.start : self.start + self.rows]

    @property
    def _slice(self) -> slice:
        return slice(self.key_start, self.key_start + self.keys)

    def _range(self, start: int, count: int) -> Tensor:
        return torch.arange(start, start + count, device=self.scratch.device, dtype=torch.int32)

    def _targets(self, after: int) -> Pairs:
        """The keys so many positions after an earlier same token."""
        rows, keys = self._same
        keys = keys + after
        columns = keys - self.key_start
        fits = (keys <= rows + self.start - 2) & (columns >= 0) & (columns < self.keys)
        rows, columns, keys = rows[fits], columns[fits], keys[fits]
        plain = self.axes.plain[keys] > 0
        rows, columns = rows[plain], columns[plain]
        return Pairs(rows, rows * self.keys + columns)

    @cached_property
    def _same(self) -> tuple[Tensor, Tensor]:
        assert self.axes.repeats is not None
        return self.axes.repeats.pairs(self.start, self.start + self.rows)


class Block:
    """Attention weights of some query rows, with what several scores share computed once.

    Args:
        weights: [H, r, s], rows of a distribution over keys, or zero.
        place: where they stand.
        logits: what softmax was taken of, finite, or None.
    """

    def __init__(self, weights: Tensor, place: Place, logits: Tensor | None = None) -> None:
        self.weights, self.place, self.logits = weights, place, logits

    def parts(self) -> Iterator[Block]:
        """The same block, a few heads at a time: as many weights as fit into its memory."""
        step = max(1, self.place.scratch.numel() // max(1, self.weights[0].numel()))
        for first in range(0, len(self.weights), step):
            heads = slice(first, first + step)
            logits = None if self.logits is None else self.logits[heads]
            yield Block(self.weights[heads], self.place.of_heads(heads), logits)

    @cached_property
    def top(self) -> Tensor:
        """[H, r], the largest weight."""
        return self.weights.amax(-1)

    @cached_property
    def entropy(self) -> Tensor:
        """[H, r], -Σ w log₂ w in bits; what a learned sink takes is one more w."""
        if self.place.learned_sink:
            return self._entropy_of_keys + self._entropy_of_sink
        return self._entropy_of_keys

    @property
    def choices(self) -> Tensor:
        """[A, r], between how many things the weight of a row can be divided."""
        return self.place.choices + self.place.learned_sink

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
        """[H, r], Σ w |i - j|."""
        place = self.place
        first, last = place.tile
        behind = torch.arange(place.rows, device=self.weights.device, dtype=self.weights.dtype)
        inside = (place.positions[:, None] - place.key_positions[first:last]).abs()
        near = self.weights[..., first:last] * inside
        # no differences of large numbers: outside the tile, |i - j| is the way to its edge and on
        far = self.weights @ place.gap
        left = self.weights[..., :first].sum(-1) * behind
        right = self.weights[..., last:].sum(-1) * behind.flip(0)
        return near.sum(-1) + far + left + right

    @cached_property
    def sink(self) -> Tensor:
        """[H, r], the weight on position 0 and special tokens."""
        return self.on_columns(self.place.axes.sink)

    @cached_property
    def duplicate(self) -> Tensor:
        """[H, r], the weight on earlier keys of the same token."""
        return self.on_pairs(self.place.duplicate)

    @cached_property
    def induction(self) -> Tensor:
        """[H, r], the weight on keys right after an earlier same token."""
        return self.on_pairs(self.place.induction)

    @cached_property
    def near(self) -> Tensor:
        """[H, r, 2w+1], the weight on each key within the local window that can be a target."""
        columns, plain = self.place.near
        return self.weights.gather(2, columns.expand(self.weights.shape[0], -1, -1)) * plain

    def on_pairs(self, pairs: Pairs) -> Tensor:
        """[H, r], the weight on targets that differ from row to row."""
        found = self.weights.flatten(1).index_select(1, pairs.flat)
        return torch.zeros_like(self.weights[..., 0]).index_add_(1, pairs.rows, found)

    def on_columns(self, columns: Columns) -> Tensor:
        """[H, r], the weight on the same keys in every row."""
        numbers, ones = self.place.columns(columns)
        if len(numbers) == 1:
            return self.weights[..., numbers[0]]
        if len(numbers) > _FEW_COLUMNS:
            return self.weights @ ones
        return self.weights[..., numbers].sum(-1)


class Uniform(Block):
    """Uniform attention over the allowed keys, [A, r, s]: what chance is.

    Its weights live in the place's memory, until that is used for something else.
    """

    def __init__(self, place: Place) -> None:
        share = 1 / place.choices.clamp(min=1)
        super().__init__(place.ones().mul_(share[..., None]), place)
        self.top = share
        self.entropy = self.choices.clamp(min=1).log2()
