"""What a user's score sees: some query rows of one text in one layer.

attnviz scores batches of texts, a few heads at a time; a :class:`ScoreBlock` is the part of that
which one text has, without padding. Notation in shapes: H heads, r query rows, s keys of the block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from attnviz.core import arrays
from attnviz.core.arrays import Array
from attnviz.core.tokens import Tokens
from attnviz.errors import UsageError
from attnviz.scoring import plugins
from attnviz.scoring.block import Block, Place, Uniform


@dataclass(frozen=True, eq=False)
class ScoreBlock:
    """Attention weights of some query rows of one text, and the tokens that they are between.

    A text comes in several blocks, and a block need not hold all keys: those that none of its rows
    may attend to are left out at both ends. So a position is found by ``positions`` and
    ``key_positions``, never by a row's or a column's number.

    Attributes:
        weights: [H, r, s], float32 or float64; rows sum to 1, or to less where part went to a
            learned sink that is no key, or to 0 where a row has no key. Not to be changed. For the
            chance of a score they are those of uniform attention over the allowed keys; H is 1
            where all heads share a mask.
        allowed: bool [H or 1, r, s], the keys that each query may attend to.
        start: position of the first query row in its text, from 0.
        key_start: position of the first key.
        queries: all tokens of the queries' sequence, with ids, special tokens, words and spans.
        keys: all tokens of the keys' sequence; the same as ``queries`` but for cross-attention.
    """

    weights: Tensor
    allowed: Tensor
    start: int
    key_start: int
    queries: Tokens
    keys: Tokens

    @cached_property
    def positions(self) -> Tensor:
        """Int64 [r], the positions of the query rows."""
        rows = self.weights.shape[1]
        return torch.arange(self.start, self.start + rows, device=self.weights.device)

    @cached_property
    def key_positions(self) -> Tensor:
        """Int64 [s], the positions of the keys."""
        count = self.weights.shape[2]
        return torch.arange(self.key_start, self.key_start + count, device=self.weights.device)

    @property
    def query_texts(self) -> tuple[str, ...]:
        """The readable texts of the r query tokens, as ``" keys"`` or ``"##ing"``."""
        return self.queries.texts[self.start : self.start + self.weights.shape[1]]

    @property
    def key_texts(self) -> tuple[str, ...]:
        """The readable texts of the s key tokens."""
        return self.keys.texts[self.key_start : self.key_start + self.weights.shape[2]]

    def on(self, targets: Tensor | Sequence[bool]) -> Tensor:
        """[H, r], the weight on some keys.

        Args:
            targets: bool [s], or [r, s] where they differ from row to row.
        """
        mask = torch.as_tensor(targets, dtype=torch.bool, device=self.weights.device)
        return (self.weights * mask).sum(-1)


@dataclass(frozen=True, slots=True)
class UserCall:
    """A user's function of a block of one text, guarded: a score, its chance or its rows."""

    guarded: plugins.Guarded  # the function, with what messages call it
    shared: bool = False  # whether one value a row may stand for all heads

    def __call__(self, block: Block) -> Tensor:
        """[B, H, r], the values of a block of several texts; 0 after the end of a text."""
        values = torch.zeros_like(arrays.to_torch(block.weights[..., 0]))
        for item, text in texts_of(block):
            heads, rows, _ = text.weights.shape
            value = self._values(text, torch.Size((heads, rows)))
            values[item, :, :rows] = value.to(values.dtype)
        return arrays.converted(values, block.weights)

    def leave_out(self, place: Place) -> Tensor:
        """Bool [B, r], the rows that a score leaves out: not those the function takes."""
        block = Uniform(place)
        items, _, rows, _ = block.weights.shape
        device = arrays.to_torch(block.weights).device
        left = torch.ones(items, rows, dtype=torch.bool, device=device)
        for item, text in texts_of(block):
            count = text.weights.shape[1]
            left[item, :count] = ~self._values(text, torch.Size((count,))).bool()
        return arrays.converted(left, block.weights)

    def _values(self, block: ScoreBlock, shape: torch.Size) -> Tensor:
        """Give the function's values for a block, in that shape; UsageError for any other."""
        sizes = list(block.weights.shape)

        def read(value: Any) -> tuple[Tensor, Tensor]:
            tensor = torch.as_tensor(value, device=block.weights.device)
            return tensor, tensor.detach().expand(shape)

        value, values = self.guarded(block, given=f", given a block of {sizes} weights,", read=read)
        if value.ndim not in (0, len(shape)) and not self.shared:
            raise UsageError(
                f"the {self.guarded.named} gives values of shape {list(value.shape)} for a block "
                f"of {sizes} weights; it must give {list(shape)}"
            )
        return values  # type: ignore[no-any-return]


def constant_chance(value: float, block: Block) -> Tensor:
    """[B, A, r], a chance that is the same for every row."""
    chance: Array = block.xp.full_like(block.weights[..., 0], value)
    return chance


def texts_of(block: Block) -> Iterator[tuple[int, ScoreBlock]]:
    """The texts of a block, each without padding, with its place in the batch."""
    place = block.place
    allowed = place.allowed if place.allowed.shape[1] == 1 else place.allowed[:, block.heads]
    weights, allowed = arrays.to_torch(block.weights), arrays.to_torch(allowed)
    first = place.items.start or 0
    for item in range(len(block.weights)):
        length, width = place.axes.lengths[first + item]
        rows = min(place.rows, length - place.start)
        keys = min(place.keys, width - place.key_start)
        if rows > 0 and keys > 0:
            sides = place.axes.sides[first + item]
            yield (
                item,
                ScoreBlock(
                    weights[item, :, :rows, :keys],
                    allowed[item, :, :rows, :keys],
                    place.start,
                    place.key_start,
                    sides.queries,
                    sides.keys,
                ),
            )
