"""Running sums of scores: means, chance, lift and counts, made once for all scores."""

from __future__ import annotations

import torch

from attnviz.records import Score
from attnviz.scoring.block import Block, Uniform
from attnviz.scoring.scores import ScoreDef

_ALL = 1 - 1e-6
"""Above it, uniform attention puts all of its weight on the targets, up to rounding."""


class Totals:
    """The sums of one layer's scores over query rows, in float64.

    Args:
        scores: the scores to compute.
        heads: the number of heads H.
    """

    def __init__(self, scores: tuple[ScoreDef, ...], heads: int) -> None:
        self._scores = scores
        self._sums = torch.zeros(2, len(scores), heads, dtype=torch.float64)
        self._rows = torch.zeros(len(scores), heads, dtype=torch.int64)
        self._any_chance = torch.tensor([not score.on_targets for score in scores])[:, None, None]
        self.empty_rows = 0

    def add(self, block: Block) -> None:
        """Take in one block of rows."""
        place = block.place
        uniform = Uniform(place)
        chances = torch.stack([score.function(uniform) for score in self._scores])
        parts = list(block.parts())
        values = torch.cat(
            [torch.stack([score.function(part) for score in self._scores]) for part in parts], dim=1
        )
        present = torch.cat([part.top for part in parts]) > 0
        self.empty_rows += int((~present).any(0).sum())
        counted = present & place.queries(place.axes.counts) & (place.choices >= 2)
        possible = self._any_chance.to(values.device) | ((chances > 0) & (chances < _ALL))
        defined = counted & possible & ~values.isnan() & ~chances.isnan()
        both = torch.stack([values, chances.expand_as(values)]).where(defined, 0)
        self._sums += both.cpu().double().sum(-1)
        self._rows += defined.sum(-1).cpu()

    def scores(self, head: int) -> dict[str, Score]:
        """The means of one head, by the name of the score."""
        values, chances = self._sums[:, :, head].tolist()
        rows = self._rows[:, head].tolist()
        names = (score.name for score in self._scores)
        return dict(zip(names, map(_score, values, chances, rows), strict=True))


def _score(value: float, chance: float, rows: int) -> Score:
    """A score from its sums over so many rows."""
    if rows == 0:
        return Score(None, None, None, 0)
    mean, uniform = value / rows, chance / rows
    return Score(mean, uniform, mean / uniform if uniform > 0 else None, rows)
