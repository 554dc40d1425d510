"""Running sums of scores in one layer, for every item of a batch apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from attnviz.scoring.block import SINK_REST, Block, Expected, Place, Uniform
from attnviz.scoring.scores import ScoreDef

_ALL = 1 - 1e-6
"""Above it, uniform attention puts all of its weight on the targets, up to rounding."""
_TIE = 1e-6
"""Keys whose weights differ by less than this share are equal; the sink is the first of them."""


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
        scores: the scores to compute, n of them, each with a function; m are shares that can be
            compared.
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
        known = [score.function for score in scores if score.function is not None]
        functions = list(dict.fromkeys(known))
        self._functions: list[Callable[[Block], Tensor]] = functions
        self._places = torch.tensor([functions.index(function) for function in known])
        targets = [score for score in scores if score.comparable]
        self._targets = torch.tensor(
            [functions.index(t.function) for t in targets if t.function is not None]
        ).long()
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
        if place.expected is None:
            place.expected = self._expected(place)
        chances, possible = place.expected
        if self._walks:
            block.earlier = self._earlier(block)
        parts = list(block.parts())
        blocks = [self._values(part) for part in parts]
        raw = _joined([part.raw for part in blocks])
        rest = _joined([part.rest for part in blocks])
        present = _joined([part.top for part in parts]) > 0
        real = place.queries(place.axes.real)
        counted = present & place.countable
        values = self._scored(raw, rest)
        defined = counted[:, :, None] & possible
        enough = rest >= SINK_REST
        for number in self._off_sink:
            defined[:, :, number] &= enough
        items = place.items
        # ``self.rows[items] += x`` would copy every sum onto itself once more
        self.empty[items].add_((~present & real[:, None]).any(1).sum(-1).cpu())
        self.counted[items].add_(counted.sum(-1).cpu())
        self.rows[items].add_(defined.sum(-1).cpu())
        self.values[items].add_(_total(values, defined))
        self.chances[items].add_(_total(chances, defined))
        self.shares[items].add_(self._shares(raw, rest, counted, defined))
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
        scored = raw.index_select(2, self._places.to(raw.device))
        divisor = rest.clamp(min=SINK_REST)
        for number in self._off_sink:
            scored[:, :, number] /= divisor
        return scored

    def _expected(self, place: Place) -> Expected:
        """What uniform attention gives; a row counts where that is some of it, but not all."""
        uniform = Uniform(place)
        raw, rest = self._values(uniform)
        chances = self._scored(raw, rest)
        for number, score in enumerate(self._scores):
            if score.chance is not None:
                chances[:, :, number] = score.chance(uniform)
        some = (chances > 0) & (chances < _ALL)
        possible = some | ~self._on_targets.to(some.device)[:, None]
        for number in self._off_sink:
            possible[:, :, number] &= rest >= SINK_REST
        for number, score in enumerate(self._scores):
            if score.unless is not None:
                possible[:, :, number] &= ~score.unless(place)[..., None, :]
        return Expected(chances, possible)

    def _shares(self, raw: Tensor, rest: Tensor, counted: Tensor, defined: Tensor) -> Tensor:
        """[B, H, n, m], over the rows of each score, the weight on the targets of every other."""
        kept = (defined & self._on_targets.to(raw.device)[:, None]).to(raw.dtype)
        divisor = rest.clamp(min=SINK_REST)
        for number in self._off_sink:
            kept[:, :, number] /= divisor
        on = raw.index_select(2, self._targets.to(raw.device)).where(counted[:, :, None], 0)
        shares = (kept @ on.mT).cpu().double()
        for target in self._sink_targets:
            for number in self._off_sink:
                shares[:, :, number, target] = 0
        return shares


@dataclass(frozen=True, eq=False, slots=True)
class SinkPlaces:
    """The sinks of one layer's heads, for every item of a batch.

    Attributes:
        positions: int64 [B, H], of the sink; -1 for a head without any weight.
        values: [B, H], the sum of the weights on it; ``chances`` the same of uniform attention.
        chances: see ``values``.
        rows: int64 [B, H], how many queries may attend to it.
    """

    positions: NDArray[np.int64]
    values: NDArray[np.float64]
    chances: NDArray[np.float64]
    rows: NDArray[np.int64]


class SinkTotals:
    """Sums of a layer's weights over its rows, key by key; of the sinks alone when all went by.

    Where a head's sink is shows only with the last row, and no more than one layer is kept whole.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._weight: Tensor | None = None
        self._reached: Tensor | None = None
        self._last: SinkPlaces | None = None

    def add(self, block: Block) -> None:
        """Take in the rows of some items."""
        place, weights = block.place, block.weights
        keys = slice(place.key_start, place.key_start + place.keys)
        reached = place.reached
        if self._weight is None or self._reached is None:
            items, width = place.axes.keys.shape
            # MPS has no float64
            dtype = torch.float32 if weights.device.type == "mps" else torch.float64
            self._weight = weights.new_zeros((items, weights.shape[1], width), dtype=dtype)
            self._reached = reached.new_zeros((items, reached.shape[1], 2, width), dtype=dtype)
        if reached.shape[1] > self._reached.shape[1]:
            self._reached = self._reached.expand(-1, reached.shape[1], -1, -1).clone()
        real = place.queries(place.axes.real)[:, None, None].to(weights.dtype)
        self._weight[place.items, :, keys] += (real @ weights)[:, :, 0]
        self._reached[place.items, ..., keys] += reached

    def seen(self, rows: int, all_: int) -> None:
        """So many rows more of all have been added; nothing but sinks is kept after the last."""
        self._seen += rows
        if self._seen >= all_ and self._weight is not None:
            self._last = self._sinks()
            self._weight = self._reached = None

    @property
    def sinks(self) -> SinkPlaces | None:
        """The sinks among the rows so far; None where there were none."""
        return self._sinks() if self._weight is not None else self._last

    def _sinks(self) -> SinkPlaces:
        assert self._weight is not None
        assert self._reached is not None
        most = self._weight.amax(-1, keepdim=True)
        # argmax of flags finds the first
        at = (self._weight >= most * (1 - _TIE)).to(torch.int8).argmax(-1)
        values = self._weight.gather(-1, at[..., None])[..., 0]
        reached = self._reached.expand(-1, values.shape[1], -1, -1)
        places = at[..., None, None].expand(-1, -1, 2, 1)
        counted = reached.gather(-1, places)[..., 0].cpu().double().numpy()
        some = (values > 0).cpu().numpy()
        return SinkPlaces(
            np.where(some, at.cpu().numpy(), -1),
            values.cpu().double().numpy() * some,
            counted[..., 1] * some,
            np.rint(counted[..., 0]).astype(np.int64) * some,
        )


def _joined(parts: Sequence[Tensor]) -> Tensor:
    """Parts of the heads side by side; no copy of a single one."""
    return parts[0] if len(parts) == 1 else torch.cat(tuple(parts), dim=1)


def _total(values: Tensor, defined: Tensor) -> Tensor:
    """[B, H, n], the sums over rows."""
    return values.where(defined, 0).cpu().sum(-1, dtype=torch.float64)
