"""What the rows of a text add up to, head by head and score by score: all of it adds.

A :class:`Sums` says everything that means, chances, roles and intervals are made of, in numbers
that can be added: rows of one text, of a batch, of a corpus that ran on several machines. Adding
float64 in the order of the texts gives the same bits for every way of sharing the work out.
Notation in shapes: H heads of a model in the order of its layout, n scores, m shares.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from attnviz.core.heads import Head, Layout
from attnviz.core.scores import HeadScores, Role, Score
from attnviz.scoring.roles import MIN_ROWS, ROLES, assign
from attnviz.scoring.scores import SCORES

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Sums:
    """Sums over query rows, one for each head and score.

    Attributes:
        names: the n scores.
        targets: those m of them that are the weight on some target keys, and can be compared.
        values: float64 [H, n], of the score.
        chances: float64 [H, n], of the score of uniform attention, over the same rows.
        rows: int64 [H, n], how many rows counted.
        shares: float64 [H, n, m], over the rows of each score that is in ``targets`` or is the
            ``_no_sink`` of one, of the weight on the targets of every other (off the sink: over
            the weight that the sink leaves). Zero for other scores.
        counted: int64 [H], rows that could count for any score.
        empty: query rows without any weight, counted once per layer.
    """

    names: tuple[str, ...]
    targets: tuple[str, ...]
    values: Floats
    chances: Floats
    rows: Counts
    shares: Floats
    counted: Counts
    empty: int = 0

    @classmethod
    def zero(cls, heads: int, names: Sequence[str] | None = None) -> Sums:
        """Sums over no rows."""
        names = tuple(SCORES if names is None else names)
        targets = comparable(names)
        shape = (heads, len(names))
        return cls(
            names,
            targets,
            np.zeros(shape),
            np.zeros(shape),
            np.zeros(shape, np.int64),
            np.zeros((*shape, len(targets))),
            np.zeros(heads, np.int64),
        )

    def __add__(self, other: Sums) -> Sums:
        """The sums over the rows of both; ValueError where heads or scores differ."""
        if self.names != other.names or self.values.shape != other.values.shape:
            raise ValueError(f"sums of {_described(self)} and of {_described(other)} do not add up")
        return Sums(
            self.names,
            self.targets,
            self.values + other.values,
            self.chances + other.chances,
            self.rows + other.rows,
            self.shares + other.shares,
            self.counted + other.counted,
            self.empty + other.empty,
        )

    def scores(self, head: int) -> dict[str, Score]:
        """The means of one head, by the name of the score."""
        columns = (self.values[head], self.chances[head], self.rows[head])
        numbers = zip(*(column.tolist() for column in columns), strict=True)
        return dict(zip(self.names, (_score(*three) for three in numbers), strict=True))

    def of(self, layout: Layout) -> tuple[HeadScores, ...]:
        """Every head of a model with its scores and roles."""
        return tuple(self.head(head, number) for number, head in enumerate(layout))

    def head(self, head: Head, number: int, sink: int | None = None) -> HeadScores:
        """One head with its scores and roles."""
        scores = self.scores(number)
        return HeadScores(head, scores, self._roles(number, scores), sink)

    def may_act(self) -> NDArray[np.bool_]:
        """[H], whether some score reaches what a role takes that is no place to rest.

        Only such heads can have one; so rivals and conditions need not be looked at for others.
        """
        rows = np.maximum(self.rows, 1)
        means, uniform = self.values / rows, self.chances / rows
        lifts = np.divide(means, uniform, out=np.zeros_like(means), where=uniform > 0)
        reached = np.zeros(len(self.values), np.bool_)
        for role in ROLES.values():
            for evidence in () if role.rests else role.evidence:
                if evidence.score in self.names:
                    n = self.names.index(evidence.score)
                    enough = (means[:, n] >= evidence.mean) & (lifts[:, n] >= evidence.lift)
                    reached |= enough & (self.rows[:, n] >= MIN_ROWS)
        return reached

    def roles(self, head: int, unsure: Collection[str] = ()) -> tuple[Role, ...]:
        """The roles of one head, see :func:`~attnviz.scoring.roles.assign`."""
        return self._roles(head, {n: s for n, s in self.scores(head).items() if n not in unsure})

    def _roles(self, head: int, scores: Mapping[str, Score]) -> tuple[Role, ...]:
        """Those that these scores of a head support."""
        rows = np.maximum(self.rows[head], 1)[:, None]  # [n, 1]
        means = (self.shares[head] / rows).tolist()
        shares = {
            name: dict(zip(self.targets, mean, strict=True))
            for name, mean in zip(self.names, means, strict=True)
            if SCORES[name].on_targets
        }
        return assign(scores, shares, int(self.counted[head]))


def comparable(names: Iterable[str]) -> tuple[str, ...]:
    """Those scores that are the weight on some target keys, as a share of all."""
    return tuple(name for name in names if SCORES[name].comparable)


def fold(parts: Iterable[Sums], start: Sums) -> Sums:
    """All of them added, in their order."""
    return reduce(add, parts, start)


def _score(value: float, chance: float, rows: int) -> Score:
    """A score from its sums over so many rows."""
    if rows == 0:
        return Score(None, None, None, 0)
    mean, uniform = value / rows, chance / rows
    return Score(mean, uniform, mean / uniform if uniform > 0 else None, rows)


def _described(sums: Sums) -> str:
    return f"{len(sums.values)} heads × {len(sums.names)} scores"
