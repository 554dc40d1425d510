"""Running sums of scores in one layer, for every item of a batch apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from attnviz.scoring.block import SINK_REST, Block, Place, Uniform
from attnviz.scoring.scores import ScoreDef
from attnviz.scoring.sums import comparable

_ALL = 1 - 1e-6
"""Above it, uniform attention puts all of its weight on the targets, up to rounding."""


class RowScores(NamedTuple):
    """Scores of single rows, before it is decided which rows count.

    Attributes:
        raw: [B, H, f, r], of every function.
        rest: [B, H, r], the weight off the sink; 1 where no score asks for it.
    """

    raw: Tensor
    rest: Tensor


class Totals:
    """The sums of one layer's scores over query rows, in float64.

    Args:
        scores: the scores to compute, n of them; m are shares that can be compared.
        items: the number of items B.
        heads: the number of heads H.

    Attributes:
        values, chances: [B, H, n], see :class:`~attnviz.scoring.sums.Sums` for all of them.
        rows: int64 [B, H, n].
        shares: [B, H, n, m].
        counted: int64 [B, H].
        empty: int64 [B], rows without any weight in some head.
    """

    def __init__(self, scores: Sequence[ScoreDef], items: int, heads: int) -> None:
        self._scores = tuple(scores)
        functions = list(dict.fromkeys(score.function for score in scores))
        self._functions: list[Callable[[Block], Tensor]] = functions
        self._places = [functions.index(score.function) for score in scores]
        names = [score.name for score in scores]
        targets = [scores[names.index(name)] for name in comparable(names)]
        self._targets = [functions.index(target.function) for target in targets]
        self._sink_targets = [place for place, t in enumerate(targets) if t.asks_sink]
        self._off_sink = [place for place, score in enumerate(scores) if score.off_sink]
        self._on_targets = torch.tensor([score.on_targets for score in scores], dtype=torch.bool)
        self.values = torch.zeros(items, heads, len(scores), dtype=torch.float64)
        self.chances = torch.zeros_like(self.values)
        self.rows = torch.zeros(items, heads, len(scores), dtype=torch.int64)
        self.shares = self.values.new_zeros(items, heads, len(scores), len(targets))
        self.counted = torch.zeros(items, heads, dtype=torch.int64)
        self.empty = torch.zeros(items, dtype=torch.int64)
        self._walks = any(score.crossed for score in scores)
        self._given: Tensor | None = None

    def add(self, block: Block) -> tuple[Tensor, Tensor]:
        """Take in one block of rows.

        Returns:
            [B, H, n, r], the scores of the single rows, and whether they count.
        """
        place = block.place
        uniform = self._values(Uniform(place))
        if self._walks:
            block.earlier = self._earlier(block)
        parts = list(block.parts())
        found = [self._values(part) for part in parts]
        raw = torch.cat([part.raw for part in found], dim=1)
        rest = torch.cat([part.rest for part in found], dim=1)
        present = torch.cat([part.top for part in parts], dim=1) > 0
        real = place.queries(place.axes.real)
        counted = present & place.queries(place.axes.counts)[:, None] & (place.choices >= 2)
        values, chances = self._scored(raw, rest), self._scored(*uniform)
        defined = counted[:, :, None] & self._possible(chances, uniform.rest, place)
        defined[:, :, self._off_sink] &= (rest >= SINK_REST)[:, :, None]
        items = place.items
        self.empty[items] += (~present & real[:, None]).any(1).sum(-1).cpu()
        self.counted[items] += counted.sum(-1).cpu()
        self.rows[items] += defined.sum(-1).cpu()
        self.values[items] += _total(values, defined)
        self.chances[items] += _total(chances.expand_as(values), defined)
        self.shares[items] += self._shares(raw.where(counted[:, :, None], 0), rest, defined)
        if self._walks:
            given = torch.cat([part.off_sink.sum(2) for part in parts], dim=1)
            self._earlier(block)[..., place.key_start : place.key_start + place.keys] += given
        return values, defined

    def _earlier(self, block: Block) -> Tensor:
        """[B, H, S], what earlier rows of the block's items gave to every key, off the sink."""
        place = block.place
        if self._given is None:
            items, heads, keys = len(self.values), self.values.shape[1], place.axes.keys.shape[1]
            self._given = block.weights.new_zeros(items, heads, keys)
        return self._given[place.items]

    def _values(self, block: Block) -> RowScores:
        raw = torch.stack([function(block) for function in self._functions], dim=2)
        return RowScores(raw, 1 - block.sink if self._off_sink else torch.ones_like(block.top))

    def _scored(self, raw: Tensor, rest: Tensor) -> Tensor:
        """[B, H, n, r], every score; without meaning where too little is left off the sink."""
        scored = raw[:, :, self._places]
        if self._off_sink:
            scored[:, :, self._off_sink] /= rest.clamp(min=SINK_REST)[:, :, None]
        return scored

    def _possible(self, chances: Tensor, rest: Tensor, place: Place) -> Tensor:
        """Bool [B, A, n, r]: uniform attention would put some, but not all, on the targets."""
        some = (chances > 0) & (chances < _ALL)
        possible = some | ~self._on_targets.to(some.device)[:, None]
        possible[:, :, self._off_sink] &= (rest >= SINK_REST)[:, :, None]
        for number, score in enumerate(self._scores):
            if score.unless is not None:
                possible[:, :, number] &= ~score.unless(place)[..., None, :]
        return possible

    def _shares(self, raw: Tensor, rest: Tensor, defined: Tensor) -> Tensor:
        """[B, H, n, m], over the rows of each score, the weight on the targets of every other."""
        kept = defined.cpu().double()
        kept *= self._on_targets[:, None]
        kept[:, :, self._off_sink] /= rest.cpu().double().clamp(min=SINK_REST)[:, :, None]
        shares = kept @ raw[:, :, self._targets].cpu().double().mT
        for target in self._sink_targets:
            shares[:, :, self._off_sink, target] = 0
        return shares


def _total(values: Tensor, defined: Tensor) -> Tensor:
    """[B, H, n], the sums over rows."""
    return values.where(defined, 0).cpu().double().sum(-1)
