"""Running sums of scores in one layer, for every item of a batch apart."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, Floats, to_numpy
from attnviz.core.heads import Head, Layout
from attnviz.core.scores import HeadScores, Role, Score
from attnviz.scoring.block import SINK_REST, Block, Expected, Region, Uniform
from attnviz.scoring.roles import MIN_ROWS, ROLES, assign
from attnviz.scoring.scores import SCORES, ScoreDef

_ALL = 1 - 1e-6
"""Above it, uniform attention puts all of its weight on the targets, up to rounding."""
_TIE = 1e-6
"""Keys whose weights differ by less than this share are equal; the sink is the first of them."""


class RowScores(NamedTuple):
    """Scores of single rows, before it is decided which rows count."""

    raw: Array  # [B, H, f, r], of every function
    rest: Array  # [B, H, r], the weight off the sink; 1 where no score asks for it


class Measured(NamedTuple):
    """What a block of rows gave."""

    values: Array  # [B, H, n, r], the scores of the single rows
    defined: Array  # bool, whether they count
    # what is added to :class:`Totals`: of empty rows [B, layers], of the others in the order of its
    # attributes; where the weights are
    pieces: list[Array]


class Indices(NamedTuple):
    """What tells the scores of a layer apart, as arrays."""

    functions: Array  # int64 [n], the function of each score
    targets: Array  # int64 [m], the functions of those that can be compared
    on_targets: Array  # bool [n]


_INDICES: dict[tuple[object, ...], Indices] = {}
"""By what they say and where they are: a device keeps them for the passes that follow."""


class Totals:
    """The sums of one layer's scores over query rows, in float64.

    Attributes:
        values, chances: [B, H, n], see :class:`~attnviz.scoring.totals.Sums` for all of them.
        rows: int64 [B, H, n].
        shares: [B, H, n, m].
        counted: int64 [B, H].
        empty: int64 [B], rows without any weight in some head.
    """

    def __init__(self, scores: Sequence[ScoreDef], items: int, heads: int) -> None:
        self._scores = tuple(scores)
        callables = [score.function for score in scores if score.function is not None]
        functions = list(dict.fromkeys(callables))
        self._functions: list[Callable[[Block], Array]] = functions
        self._function_of = [functions.index(function) for function in callables]
        targets = [score for score in scores if score.comparable]
        self._targets = [functions.index(t.function) for t in targets if t.function is not None]
        self._sink_targets = [n for n, t in enumerate(targets) if t.asks_sink]
        self._off_sink = [n for n, score in enumerate(scores) if score.off_sink]
        self._on_targets = [score.on_targets for score in scores]
        self.values = np.zeros((items, heads, len(scores)))
        self.chances = np.zeros_like(self.values)
        self.rows = np.zeros(self.values.shape, np.int64)
        self.shares = np.zeros((*self.values.shape, len(targets)))
        self.counted = np.zeros((items, heads), np.int64)
        self.empty = np.zeros(items, np.int64)
        self._known: Indices | None = None
        self.walks = any(score.crossed for score in scores)
        self._given: Array | None = None

    def measured(self, block: Block, layers: int = 1) -> Measured:
        """Measure one block of rows, of the heads of so many layers alike."""
        region = block.region
        if self.walks:
            block.earlier = self._earlier(block)
        parts = list(block.parts())
        blocks = [self._values(part) for part in parts]
        raw = arrays.joined([part.raw for part in blocks], 1)
        remaining = arrays.joined([part.rest for part in blocks], 1)
        present = arrays.joined([part.top for part in parts], 1) > 0
        expected = region.expected
        if block.uniform:
            expected = self._judged(region, raw[:, -1:], remaining[:, -1:])
            raw, remaining, present = raw[:, :-1], remaining[:, :-1], present[:, :-1]
        elif expected is None:
            expected = region.expected = self._judged(region, *self._values(Uniform(region)))
        chances, possible = expected
        real = region.queries(region.axes.real)
        eligible = present & region.countable
        values = self._scored(raw, remaining)
        defined = eligible[:, :, None] & possible
        enough = remaining >= SINK_REST
        for number in self._off_sink:
            defined[:, :, number] &= enough
        absent = ~present & real[:, None]
        pieces = [
            absent.reshape(len(absent), layers, -1, absent.shape[-1]).any(2).sum(-1),
            eligible.sum(-1),
            defined.sum(-1),
            _total(values, defined),
            _total(chances, defined),
            self._shares(raw, remaining, eligible, defined),
        ]
        if self.walks:
            received = arrays.joined([part.off_sink.sum(2) for part in parts], 1)
            self._earlier(block)[..., region.key_start : region.key_start + region.keys] += received
        return Measured(values, defined, pieces)

    def take(self, items: slice, pieces: Sequence[NDArray[np.floating]], layer: int = 0) -> None:
        """Add what was measured of some items, this layer's among several alike."""
        heads = slice(layer * self.values.shape[1], (layer + 1) * self.values.shape[1])
        empty, countable, rows, values, chances, shares = pieces
        self.empty[items] += empty[:, layer].astype(np.int64)
        self.counted[items] += countable[:, heads].astype(np.int64)
        self.rows[items] += rows[:, heads].astype(np.int64)
        self.values[items] += values[:, heads]
        self.chances[items] += chances[:, heads]
        shares = shares[:, heads].astype(np.float64)
        for target in self._sink_targets:
            for number in self._off_sink:
                shares[:, :, number, target] = 0
        self.shares[items] += shares

    def _earlier(self, block: Block) -> Array:
        """[B, H, S], what earlier rows of the block's items gave to every key, off the sink."""
        region = block.region
        if self._given is None:
            items, heads, keys = len(self.values), self.values.shape[1], region.axes.keys.shape[1]
            weights = block.weights
            self._given = region.lib.zeros((items, heads, keys), weights.dtype, weights)
        assert self._given is not None
        return self._given[region.items]

    def _values(self, block: Block) -> RowScores:
        rows = [function(block) for function in self._functions]
        raw = block.xp.stack(rows, 2) if rows else block.top[:, :, None][:, :, :0]
        remaining = 1 - block.sink if self._off_sink else block.xp.ones_like(block.top)
        return RowScores(raw, remaining)

    def _scored(self, raw: Array, remaining: Array) -> Array:
        """[B, H, n, r], every score; without meaning where too little is left off the sink."""
        scored = raw[:, :, self._indices(raw).functions]
        divisor = remaining.clip(SINK_REST)
        for number in self._off_sink:
            scored[:, :, number] /= divisor
        return scored

    def _indices(self, like: Array) -> Indices:
        """Where the scores stand, beside the weights."""
        if self._known is None:
            lib, numbers = arrays.of(like), (self._function_of, self._targets, self._on_targets)
            key = (str(numbers), lib.__name__, str(getattr(like, "device", "")))
            if key not in _INDICES:
                types = (np.int64, np.int64, np.bool_)
                parts: list[NDArray[Any]] = [
                    np.array(x, kind) for x, kind in zip(numbers, types, strict=True)
                ]
                _INDICES[key] = Indices(*lib.together(parts, like))
            self._known = _INDICES[key]
        return self._known

    def _judged(self, region: Region, raw: Array, remaining: Array) -> Expected:
        """Give what uniform attention gives; a row counts where that is some of it, but not all."""
        chances = self._scored(raw, remaining)
        for number, score in enumerate(self._scores):
            if score.chance is not None:
                chances[:, :, number] = score.chance(Uniform(region))
        partial = (chances > 0) & (chances < _ALL)
        possible = partial | ~self._indices(raw).on_targets[:, None]
        for number in self._off_sink:
            possible[:, :, number] &= remaining >= SINK_REST
        for number, score in enumerate(self._scores):
            if score.unless is not None:
                possible[:, :, number] &= ~score.unless(region)[..., None, :]
        return Expected(chances, possible)

    def _shares(self, raw: Array, remaining: Array, eligible: Array, defined: Array) -> Array:
        """[B, H, n, m], over the rows of each score, the weight on the targets of every other."""
        lib, indices = arrays.of(raw), self._indices(raw)
        divided = lib.cast(defined & indices.on_targets[:, None], raw.dtype)
        divisor = remaining.clip(SINK_REST)
        for number in self._off_sink:
            divided[:, :, number] /= divisor
        weights = lib.xp.where(eligible[:, :, None], raw[:, :, indices.targets], 0)
        return divided @ weights.swapaxes(-1, -2)


@dataclass(frozen=True, eq=False, slots=True)
class SinkPlaces:
    """The sinks of some heads, for every item of a batch."""

    positions: NDArray[np.int64]  # int64 [B, H], of the sink; -1 for a head without any weight
    # [B, H], the sum of the weights on it; ``chances`` the same of uniform attention
    values: NDArray[np.float64]
    chances: NDArray[np.float64]
    rows: NDArray[np.int64]  # int64 [B, H], how many queries may attend to it

    @classmethod
    def of(cls, pieces: Sequence[NDArray[np.floating]], heads: slice) -> SinkPlaces:
        """Those of some heads: positions and values [B, H], and what may reach them [B, H, 2]."""
        positions, values, reach = (part[:, heads].astype(np.float64) for part in pieces)
        present = values > 0
        return cls(
            np.where(present, positions, -1).astype(np.int64),
            values * present,
            reach[..., 1] * present,
            np.rint(reach[..., 0]).astype(np.int64) * present,
        )


class SinkTotals:
    """Sums of weights over rows, key by key; of the sinks alone when all went by.

    Where a head's sink is shows only with the last row, and no more than one layer is kept whole.
    """

    def __init__(self) -> None:
        self._seen = 0
        self._weight: Array | None = None
        self._reached: Array | None = None
        self.pieces: list[Array] = []

    def add(self, block: Block) -> None:
        """Take in the rows of some items."""
        region, weights = block.region, block.weights
        keys = slice(region.key_start, region.key_start + region.keys)
        reached = region.reached
        if self._weight is None or self._reached is None:
            items, width = region.axes.keys.shape
            lib = region.lib
            dtype = lib.largest_float(weights)
            heads = weights.shape[1] - block.uniform
            self._weight = lib.zeros((items, heads, width), dtype, weights)
            self._reached = lib.zeros((items, reached.shape[1], 2, width), dtype, weights)
        if reached.shape[1] > self._reached.shape[1]:
            self._reached = block.xp.concatenate([self._reached] * reached.shape[1], 1)
        real = region.lib.cast(region.queries(region.axes.real)[:, None, None], weights.dtype)
        self._weight[region.items, :, keys] += (real @ weights)[:, : self._weight.shape[1], 0]
        self._reached[region.items, ..., keys] += reached

    def seen(self, rows: int, total: int) -> None:
        """So many rows more of all have been added; nothing but sinks is kept after the last."""
        self._seen += rows
        if self._seen >= total and self._weight is not None:
            self.pieces = self.found()
            self._weight = self._reached = None

    def found(self) -> list[Array]:
        """Give the sinks among the rows so far, as :meth:`SinkPlaces.of` takes them, if any."""
        if self._weight is None:
            return self.pieces
        assert self._reached is not None
        lib = arrays.of(self._weight)
        largest = lib.xp.amax(self._weight, -1)[..., None]
        # argmax of flags finds the first
        positions = lib.cast(self._weight >= largest * (1 - _TIE), lib.int32).argmax(-1)[..., None]
        values = lib.at_indices(self._weight, positions)[..., 0]
        _, heads, _ = self._weight.shape
        items, _, _, width = self._reached.shape
        reached = lib.xp.broadcast_to(self._reached, (items, heads, 2, width))
        places = lib.xp.broadcast_to(positions[..., None], (items, heads, 2, 1))
        return [positions[..., 0], values, lib.at_indices(reached, places)[..., 0]]


def _total(values: Array, defined: Array) -> Array:
    """[B, H, n], the sums over rows, in float64 where there is that."""
    lib = arrays.of(values)
    masked = lib.xp.where(defined, values, 0)
    if lib.on_cpu(values):
        masked = arrays.array(to_numpy(masked))
    return masked.sum(-1, dtype=arrays.of(masked).largest_float(values))


Counts = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class Sums:
    """Sums over query rows, one for each head and score."""

    names: tuple[str, ...]  # the n scores
    # those m of them that are the weight on some target keys, and can be compared
    targets: tuple[str, ...]
    values: Floats  # float64 [H, n], of the score
    chances: Floats  # float64 [H, n], of the score of uniform attention, over the same rows
    rows: Counts  # int64 [H, n], how many rows counted
    # float64 [H, n, m], over the rows of each score that is in ``targets`` or is the ``_no_sink``
    # of one, of the weight on the targets of every other (off the sink: over the weight that the
    # sink leaves). Zero for other scores.
    shares: Floats
    counted: Counts  # int64 [H], rows that could count for any score
    empty: int = 0  # query rows without any weight, counted once per layer

    @classmethod
    def zero(cls, heads: int, names: Sequence[str] | None = None) -> Sums:
        """Make sums over no rows."""
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
        """Return the sums over the rows of both; ValueError where heads or scores differ."""
        if self.names != other.names or self.values.shape != other.values.shape:
            raise ValueError(f"sums of {_described(self)} and of {_described(other)} do not add up")
        summed = ("values", "chances", "rows", "shares", "counted", "empty")
        return replace(
            self, **{name: getattr(self, name) + getattr(other, name) for name in summed}
        )

    def scores(self, head: int) -> dict[str, Score]:
        """Return the means of one head, by the name of the score."""
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
        """Return the roles of one head, see :func:`~attnviz.scoring.roles.assign`."""
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
    """Return a score from its sums over so many rows."""
    if rows == 0:
        return Score(None, None, None, 0)
    mean, uniform = value / rows, chance / rows
    return Score(mean, uniform, mean / uniform if uniform > 0 else None, rows)


def _described(sums: Sums) -> str:
    return f"{len(sums.values)} heads × {len(sums.names)} scores"
