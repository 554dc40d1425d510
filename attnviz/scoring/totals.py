"""Running sums of scores over one item's rows in one layer, made once for all scores."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from attnviz.scoring.block import Block, Uniform
from attnviz.scoring.scores import SINK_REST, ScoreDef
from attnviz.scoring.sums import comparable

_ALL = 1 - 1e-6
"""Above it, uniform attention puts all of its weight on the targets, up to rounding."""


class Totals:
    """The sums of one layer's scores over query rows, in float64.

    Args:
        scores: the scores to compute, n of them; m are shares that can be compared.
        heads: the number of heads H.

    Attributes:
        sums: [2, n, H], of values and of chances.
        rows: int64 [n, H].
        shares: [n, m, H], see :class:`~attnviz.scoring.sums.Sums`.
        counted: int64 [H].
        empty_rows: rows without any weight in some head.
    """

    def __init__(self, scores: tuple[ScoreDef, ...], heads: int) -> None:
        self._scores = scores
        names = [score.name for score in scores]
        self._targets = [names.index(name) for name in comparable(names)]
        self._on_targets = torch.tensor([score.on_targets for score in scores])[:, None, None]
        self._off_sink = torch.tensor([score.off_sink for score in scores])[:, None, None]
        is_sink = [names[i] in ("first", "separator") for i in self._targets]
        self._is_sink = torch.tensor(is_sink, dtype=torch.bool)[:, None]
        self.sums = torch.zeros(2, len(scores), heads, dtype=torch.float64)
        self.rows = torch.zeros(len(scores), heads, dtype=torch.int64)
        self.shares = torch.zeros(len(scores), len(self._targets), heads, dtype=torch.float64)
        self.counted = torch.zeros(heads, dtype=torch.int64)
        self.empty_rows = 0

    def add(self, block: Block) -> Tensor:
        """Take in one block of rows.

        Returns:
            [n, H, r], the scores of the single rows, NaN where a row does not count.
        """
        place = block.place
        uniform = Uniform(place)
        chances = torch.stack([score.function(uniform) for score in self._scores])
        parts = list(block.parts())
        values = torch.cat(
            [torch.stack([score.function(part) for score in self._scores]) for part in parts], dim=1
        )
        present = torch.cat([part.top for part in parts]) > 0
        rest = torch.cat([1 - part.sink for part in parts])
        self.empty_rows += int((~present).any(0).sum())
        counted = present & place.queries(place.axes.counts) & (place.choices >= 2)
        possible = ~self._on_targets.to(values.device) | ((chances > 0) & (chances < _ALL))
        defined = counted & possible & ~values.isnan() & ~chances.isnan()
        both = torch.stack([values, chances.expand_as(values)]).where(defined, 0)
        self.sums += both.cpu().double().sum(-1)
        self.rows += defined.sum(-1).cpu()
        self.counted += counted.sum(-1).cpu()
        # over the rows of each score, the weight on the targets of every other
        kept = torch.where(self._off_sink.to(values.device), 1 / rest.clamp(min=SINK_REST), 1)
        kept = (kept * (defined & self._on_targets.to(values.device))).cpu().double()
        weight = values[self._targets].nan_to_num(0.0).cpu().double()
        shares = torch.einsum("nhr,mhr->nmh", kept, weight)
        self.shares += shares.masked_fill(self._off_sink & self._is_sink, 0.0)
        return values.where(defined, math.nan)
