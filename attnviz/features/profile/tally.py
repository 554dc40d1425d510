"""What texts add up to, beside the sums of clusters: where weight goes, examples, likeness.

Everything here adds up to the same bits in any order: sums are whole numbers, and what is kept of
many is decided by hashes.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, Integers, Reals, fetched, to_numpy
from attnviz.core.heads import Head, Layout, Site, SiteKind
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows
from attnviz.features.profile.likeness import Divergences, sample_size
from attnviz.features.profile.sampled.sums import HeadSums
from attnviz.features.profile.tasks import mixed
from attnviz.scoring.axes import KINDS, kinds
from attnviz.scoring.roles import ROLES, SINK_LENGTH, SINK_THRESHOLD
from attnviz.scoring.scores import SCORES
from attnviz.scoring.totals import Sums, comparable
from attnviz.statistics.histogram import Exact

FARTHEST = 32  # distances beyond it are counted together
DISTANCES = 2 * FARTHEST + 3  # farther back than -32, then -32 to +32, then farther ahead


@dataclass(frozen=True, eq=False, slots=True)
class Passed:
    """What passed in one layer for one item, beside what uniform attention would have sent."""

    keys: NDArray[np.float64]  # float64 [H, S], weight on each key, summed over the rows
    # float64 [H, DISTANCES], by position of the key less that of the query; zero in cross-attention
    distances: NDArray[np.float64]
    # uniform_keys, uniform_distances: float64 [S] and [DISTANCES], the mean over heads of the same
    # under uniform attention over the allowed keys
    uniform_keys: NDArray[np.float64]
    uniform_distances: NDArray[np.float64]


class Passing:
    """Watches a batch."""

    def __init__(self, batch: Sequence[Inputs], layout: Layout) -> None:
        self._batch, self._layout = tuple(batch), layout
        self._counts: dict[SiteKind, Array] = {}
        self._totals: dict[Site, Passed] = {}  # of all items, [B, H, ...] and [B, 1, ...]
        self._real: dict[tuple[SiteKind, int, int], Array] = {}

    def observe(self, rows: Rows) -> None:
        """Add one block of rows; changes nothing in it."""
        weights, site = rows.weights, rows.site
        _, _, r, s = weights.shape
        counts = self._counted(site.kind, weights)[:, None, rows.start : rows.start + r]
        uniform = arrays.of(weights).cast(self._allowed(rows), weights.dtype)  # [B, A, r, s]
        choices = uniform.sum(-1)
        counts = counts & (choices >= 2)  # [B, A, r]
        uniform = uniform * (counts / choices.clip(1))[..., None]
        on_cpu = arrays.of(weights).on_cpu(weights)
        selected = weights if on_cpu and counts.all() else weights * counts[..., None]
        keys = slice(rows.key_start, rows.key_start + s)
        total = self._sums(site, weights)
        sums = [selected.sum(2), uniform.sum(2)]
        if site.kind != "cross":
            sums += [_diagonals(selected), _diagonals(uniform)]
        by_key, uniform_by_key, *diagonals = fetched(sums)
        total.keys[..., keys] += by_key
        total.uniform_keys[..., keys] += _mean(uniform_by_key)
        if diagonals:
            reach = rows.start + r - 1 - rows.key_start
            total.distances[:] += _binned(diagonals[0], reach)
            total.uniform_distances[:] += _mean(_binned(diagonals[1], reach))

    def passed(self, item: int) -> dict[Site, Passed]:
        """Return what went by for one item, by site in the layout's order."""
        passed = {}
        for site in self._layout.sites:
            if site in self._totals:
                length = len(self._batch[item].sides[site.kind].keys)
                total = self._totals[site]
                passed[site] = Passed(
                    total.keys[item, :, :length],
                    total.distances[item],
                    total.uniform_keys[item, 0, :length],
                    total.uniform_distances[item, 0],
                )
        return passed

    def _counted(self, kind: SiteKind, like: Array) -> Array:
        """Bool [B, T], False for special tokens and padding."""
        if kind not in self._counts:
            queries = [item.sides[kind].queries for item in self._batch]
            counts = np.zeros((len(queries), max(map(len, queries))), np.bool_)
            for row, tokens in zip(counts, queries, strict=True):
                row[: len(tokens)] = ~np.array(tokens.special)
            self._counts[kind] = arrays.converted(arrays.array(counts), like)
        return self._counts[kind]

    def _allowed(self, rows: Rows) -> Array:
        """Bool [B, A, r, s], without padding."""
        keys = (rows.site.kind, rows.key_start, rows.weights.shape[3])
        if keys not in self._real:
            lengths = [len(item.sides[rows.site.kind].keys) for item in self._batch]
            in_text = np.arange(keys[1], keys[1] + keys[2]) < np.array(lengths)[:, None]
            self._real[keys] = arrays.converted(arrays.array(in_text), rows.weights)[:, None, None]
        return rows.mask & self._real[keys]

    def _sums(self, site: Site, like: Array) -> Passed:
        """Return the sums of a layer, those of uniform attention among them, in float64."""
        if site not in self._totals:
            keys = max(len(item.sides[site.kind].keys) for item in self._batch)
            shapes = [(*like.shape[:2], size) for size in (keys, DISTANCES)]
            shapes += [(len(like), 1, size) for size in (keys, DISTANCES)]
            self._totals[site] = Passed(*map(np.zeros, shapes))
        return self._totals[site]


def _mean(sums: NDArray[Any]) -> NDArray[np.float64]:
    """[B, A, n] -> [B, 1, n] in float64."""
    return sums.mean(1, keepdims=True, dtype=np.float64)


def _diagonals(x: Array) -> Array:
    """[..., r, s] -> [..., r + s - 1], sums along diagonals, the one from the last row first."""
    r, s = x.shape[-2:]
    lib = arrays.of(x)
    padded = lib.padded_keys(lib.xp.flip(x, (-2,)), 0, r).reshape(*x.shape[:-2], r * (r + s))
    return padded[..., : r * (r + s - 1)].reshape(*x.shape[:-2], r, r + s - 1).sum(-2)


def _binned(diagonals: NDArray[Any], reach: int) -> NDArray[np.float64]:
    """[..., n] from distance ``-reach`` on -> [..., DISTANCES] in float64."""
    sums = diagonals.astype(np.float64)
    bins = np.clip(np.arange(sums.shape[-1]) - reach, -FARTHEST - 1, FARTHEST + 1) + FARTHEST + 1
    first = np.flatnonzero(np.diff(bins, prepend=-1))
    out = np.zeros((*sums.shape[:-1], DISTANCES))
    out[..., bins[first]] = np.add.reduceat(sums, first, axis=-1)
    return out


KEPT = 3  # rows of each sort
SORTS = ("best", "random")
LONGEST_TEXT = 500  # characters of a text that are kept

_NONE = -1
_FINE = 14  # bits of a row's value that count; rows that are equal up to that are equally good


def scores_shown() -> tuple[str, ...]:
    """Return what says how well a row shows a role, in the order of the roles."""
    return tuple(role.evidence[0].score for role in ROLES.values())


@dataclass(frozen=True, slots=True)
class ShownText:
    """A text of which a row is an example."""

    number: int  # of the text, from 1
    place: str  # file and line
    text: str  # what ran, cut after :data:`LONGEST_TEXT` characters
    window: int = 0  # which part of a long text it is, from 0
    # the readable texts of the rows that are examples, by kind of site and position
    tokens: dict[tuple[SiteKind, int], str] = field(default_factory=dict)


class Examples:
    """The examples of H heads and R roles.

    Attributes:
        ranks: int64 [2, R, H, KEPT], the larger the better; -1 where there is none.
    """

    def __init__(self, heads: int, count: int = KEPT) -> None:
        shape = (len(SORTS), len(ROLES), heads, count)
        self.ranks = np.full(shape, _NONE, np.int64)
        self.texts = np.zeros(shape, np.uint64)  # uint64 of the same shape, the keys of the texts
        self.rows = np.zeros(shape, np.int32)  # int32, the positions of the rows
        self.values = np.zeros(shape, np.float32)  # float32, how well they show the role
        self.shown: dict[int, ShownText] = {}  # the texts by their keys

    def merge(self, *others: Examples) -> None:
        """Keep the best of all."""
        everyone = (self, *others)
        for other in others:
            for key, text in other.shown.items():
                mine = self.shown.get(key)
                tokens = {**mine.tokens, **text.tokens} if mine else text.tokens
                self.shown[key] = replace(text, tokens=tokens)
        ranks = np.concatenate([examples.ranks for examples in everyone], axis=-1)
        order = np.argsort(ranks, axis=-1, kind="stable")[..., ::-1][..., :KEPT]
        for name in ("ranks", "texts", "rows", "values"):
            both = np.concatenate([getattr(examples, name) for examples in everyone], axis=-1)
            setattr(self, name, np.take_along_axis(both, order, axis=-1))

    def prune(self) -> None:
        """Forget texts that no example is of any more."""
        keys = set(self.texts[self.ranks != _NONE].tolist())
        self.shown = {key: text for key, text in self.shown.items() if key in keys}

    def renumber(self, offset: int) -> None:
        """Count the texts from ``offset`` on, since others came before them."""
        for key, text in self.shown.items():
            self.shown[key] = replace(text, number=text.number + offset)


class Watching:
    """Finds the examples of a batch; give :meth:`watch` to a score observer.

    A layer's values have one place from the start: a small array for every block would stand
    between the large ones that are freed, and memory would grow by holes.
    """

    def __init__(self, batch: Sequence[Inputs], keys: Sequence[int], layout: Layout) -> None:
        self._batch, self._keys, self._layout = tuple(batch), tuple(keys), layout
        self._shown = scores_shown()
        self._seen: list[dict[Site, Reals]] = [{} for _ in keys]

    def watch(self, item: int, site: Site, start: int, names: Sequence[str], values: Any) -> None:
        """Keep those scores [n, H, r] of some rows that show roles."""
        layer = self._layer(item, site)
        rows = slice(start, start + values.shape[-1])
        for role, name in enumerate(self._shown):  # cross-attention lacks some scores
            if name in names:
                layer[role, :, rows] = values[names.index(name)]

    def _layer(self, item: int, site: Site) -> Reals:
        """[R, H, T] of a layer, NaN where nothing was seen."""
        if site not in self._seen[item]:
            length = len(self._batch[item].sides[site.kind].queries)
            shape = (len(self._shown), self._layout.heads[site.kind][site.layer], length)
            self._seen[item][site] = np.full(shape, np.nan, np.float32)
        return self._seen[item][site]

    def examples(self, item: int, inputs: Inputs, text: ShownText) -> Examples:
        """Return the rows of one item, one for each head and role where there is any."""
        key, first = self._keys[item], 0
        examples = Examples(len(self._layout), 1)
        for kind in self._layout.kinds:
            texts = inputs.sides[kind].queries.texts
            sites = (site for site in self._layout.sites if site.kind == kind)
            values = np.concatenate([self._layer(item, site) for site in sites], axis=1)
            heads = slice(first, first + values.shape[1])
            first = heads.stop
            measured = ~np.isnan(values)
            for sort, order in enumerate(_ranks(values, mixed(key, np.arange(len(texts))))):
                ranks = np.where(measured, order, _NONE)
                rows = ranks.argmax(-1)[..., None]
                examples.ranks[sort, :, heads] = np.take_along_axis(ranks, rows, -1)
                examples.values[sort, :, heads] = np.take_along_axis(values, rows, -1)
                examples.rows[sort, :, heads] = rows
            positions = np.unique(examples.rows[:, :, heads][examples.ranks[:, :, heads] != _NONE])
            text.tokens.update({(kind, row): texts[row] for row in positions.tolist()})
        missing = examples.ranks == _NONE
        examples.texts[...] = key
        for table in (examples.texts, examples.rows, examples.values):
            table[missing] = 0
        if text.tokens:
            examples.shown[key] = text
        return examples


def _ranks(values: Reals, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], ...]:
    """How good each row is of each sort: by its value and then its hash, and by its hash alone."""
    fine = np.nan_to_num(values * ((1 << _FINE) - 1)).round().astype(np.int64)
    best = (fine << (62 - _FINE)) | (hashes >> np.uint64(2 + _FINE)).astype(np.int64)
    return best, np.broadcast_to((hashes >> np.uint64(1)).astype(np.int64), values.shape)


TENTHS = 10
UNIT = 1 << 30  # weights are summed in units of 2⁻³⁰


class WeightFlow:
    """Where the weight of H heads goes; and that of uniform attention, in each of L layers.

    Attributes:
        distances: int64 [H + L, DISTANCES], heads first.
        tenths: int64 [H + L, TENTHS], by the key's place in its text.
        strings: the tokens seen, by their readable texts, each with its row in ``weights``.
    """

    def __init__(self, layout: Layout) -> None:
        self._heads, self._sites = len(layout), layout.sites
        rows = len(layout) + len(layout.sites)
        self.distances = np.zeros((rows, DISTANCES), np.int64)
        self.kinds = np.zeros((rows, len(KINDS)), np.int64)  # int64 [H + L, len(KINDS)]
        self.tenths = np.zeros((rows, TENTHS), np.int64)
        self.strings: dict[str, int] = {}
        self.weights = np.zeros((0, rows), np.int64)  # int64 [at least len(strings), H + L]

    def add(self, inputs: Inputs, passed: Mapping[Site, Passed]) -> None:
        """Add what passed for one text."""
        by_kind = {}
        first = 0
        for number, site in enumerate(self._sites):
            flow = passed.get(site)
            if flow is None:
                continue
            tokens = inputs.sides[site.kind].keys
            if site.kind not in by_kind:
                tenths = np.zeros((TENTHS, len(tokens)))
                tenths[np.arange(len(tokens)) * TENTHS // len(tokens), range(len(tokens))] = 1
                by_kind[site.kind] = kinds(tokens), tenths, self._rows(tokens.texts)
            features, tenths, strings = by_kind[site.kind]
            heads = len(flow.keys)
            for rows, keys, far in (
                (slice(first, first + heads), flow.keys, flow.distances),
                (
                    slice(self._heads + number, self._heads + number + 1),
                    flow.uniform_keys[None],
                    flow.uniform_distances[None],
                ),
            ):
                self.distances[rows] += _units(far)
                self.kinds[rows] += _units(keys @ features.T)
                self.tenths[rows] += _units(keys @ tenths.T)
                np.add.at(self.weights[:, rows], strings, _units(keys.T))
            first += heads

    def merge(self, other: WeightFlow) -> None:
        """Add what passed for other texts."""
        self.distances += other.distances
        self.kinds += other.kinds
        self.tenths += other.tenths
        rows = self._rows(tuple(other.strings))
        self.weights[rows] += other.weights[list(other.strings.values())]

    def _rows(self, texts: tuple[str, ...]) -> list[int]:
        """Return the rows of some strings; there is one for each afterwards."""
        rows = [self.strings.setdefault(text, len(self.strings)) for text in texts]
        missing = len(self.strings) - len(self.weights)
        if missing > 0:
            growth = max(missing, len(self.weights) // 4)
            self.weights = np.pad(self.weights, ((0, growth), (0, 0)))
        return rows


COUNTS = ("texts", "windows", "tokens", "empty", "sink_texts", "sink_squares")
"""Numbers of a :class:`Tally` that add up."""


class Tally:
    """What some texts add up to.

    Attributes:
        texts, windows, tokens: how many; a long text runs in several windows.
        counted: int64 [H], rows that could count for any score.
        empty: query rows without any weight, counted once per layer.
        chances, shares: exact sums [H, n] and [H, n, m], see :class:`~attnviz.scoring.totals.Sums`.
        sinks: int64 [H], texts on which a head is an attention sink, of ``sink_texts`` that have
            enough tokens; ``sink_squares`` sums the squares of how many heads are, text by text.
        rows: of the selected heads; None where none are.
    """

    def __init__(self, layout: Layout, select: Sequence[Head] = ()) -> None:
        heads, n = len(layout), len(SCORES)
        self.texts = self.windows = self.tokens = self.empty = 0
        self.sink_texts = self.sink_squares = 0
        self.counted, self.sinks = np.zeros(heads, np.int64), np.zeros(heads, np.int64)
        self.chances = Exact((heads, n))
        self.shares = Exact((heads, n, len(comparable(SCORES))))
        self.flow = WeightFlow(layout)  # where the weight goes
        self.examples = Examples(heads)  # rows that show roles
        self.alike: list[Divergences] = []  # the sample of texts in which heads are compared
        self.rows = HeadSums(select) if select else None
        self._sample = sample_size(layout)

    def add(self, inputs: Inputs, sums: Sums, passed: Mapping[Site, Passed]) -> None:
        """Add a window of a text."""
        self.windows += 1
        sides = inputs.sides.values()
        sequences = {id(tokens): tokens for s in sides for tokens in (s.queries, s.keys)}
        self.tokens += sum(map(len, sequences.values()))
        self.empty += sums.empty
        self.counted += sums.counted
        self.chances.add(sums.chances[None])
        self.shares.add(sums.shares[None])
        self.flow.add(inputs, passed)

    def add_sinks(self, sinks: NDArray[np.bool_] | None) -> None:
        """Add the heads that are sinks on a text; None where it has too few tokens."""
        if sinks is not None:
            self.sink_texts += 1
            self.sink_squares += int(sinks.sum()) ** 2
            self.sinks += sinks

    def merge(self, other: Tally) -> None:
        """Add what other texts add up to."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.counted += other.counted
        self.sinks += other.sinks
        self.chances.merge(other.chances)
        self.shares.merge(other.shares)
        self.flow.merge(other.flow)
        self.examples.merge(other.examples)
        self.examples.prune()
        self.alike = heapq.nsmallest(self._sample, self.alike + other.alike, key=attrgetter("key"))
        if self.rows is not None and other.rows is not None:
            self.rows.merge(other.rows)


def _units(weights: NDArray[np.float64]) -> Integers:
    return np.rint(weights * UNIT).astype(np.int64)


class FirstTokenSinks:
    """Watches the first token of a batch; see :data:`attnviz.scoring.roles.SINK_LENGTH`."""

    def __init__(self, batch: Sequence[Inputs], layout: Layout) -> None:
        causal = layout.kinds == ("decoder",)
        self._enough = [causal and item.length >= SINK_LENGTH for item in batch]
        self._layout = layout
        self._sums: dict[Site, NDArray[np.float64]] = {}

    def observe(self, rows: Rows) -> None:
        """Add one block of rows; changes nothing in it."""
        if not any(self._enough) or rows.key_start or rows.start >= SINK_LENGTH:
            return
        first = to_numpy(rows.weights[:, :, : SINK_LENGTH - rows.start, 0])
        weights = first.sum(-1, dtype=np.float64)
        sums = self._sums.get(rows.site)
        self._sums[rows.site] = weights if sums is None else sums + weights

    def positions(self, item: int) -> NDArray[np.bool_] | None:
        """Bool [H] in the order of the layout; None for an item with too few tokens."""
        if not self._enough[item]:
            return None
        sums = [self._sums[site][item] for site in self._layout.sites]
        return np.concatenate(sums) / SINK_LENGTH > SINK_THRESHOLD
