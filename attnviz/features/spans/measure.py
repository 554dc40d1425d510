"""From texts with named parts to what every head gives to each of them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add

import numpy as np
from numpy.typing import NDArray

from attnviz.core import arrays
from attnviz.core.arrays import Array, Floats, to_numpy
from attnviz.core.capture import Capture
from attnviz.core.heads import Layout, Site
from attnviz.core.media import Picture
from attnviz.core.prompt import Inputs
from attnviz.core.source import Rows, Source
from attnviz.core.spans import ELSEWHERE, EVERY, LAST, Span, elsewhere
from attnviz.core.tokens import Tokens
from attnviz.features.spans.result import WORDS, Gaze, HeadGaze, NamedSpan, SpanShare, SpanWeights
from attnviz.scoring.observe import blocks, observe
from attnviz.statistics.clusters import LEVEL, ClusterSums, merge_copies
from attnviz.statistics.ratios import Ratios, ratios


@dataclass(frozen=True, eq=False, slots=True)
class SpanSums:
    """Sums over the rows that may attend to any key of a group, [N, R, K]."""

    values: Floats  # of the weight on the group
    chances: Floats  # of the group's share of the keys that the row may attend to
    per_token: Floats  # of the weight on the group, divided by its keys that the row may attend to
    rows: NDArray[np.int64]  # how many rows

    def block(self, rows: slice, keys: slice) -> SpanSums:
        """Return the sums from some groups of rows to some groups of keys."""
        window = np.s_[:, rows, keys]
        return SpanSums(
            self.values[window], self.chances[window], self.per_token[window], self.rows[window]
        )


class SpanObserver:
    """An observer of one text."""

    def __init__(
        self, rows: Sequence[Sequence[int]], keys: Sequence[Sequence[int]], length: int
    ) -> None:
        self._rows, self._keys = self._members(rows, length), self._members(keys, length)
        self._sums: dict[Site, Array] = {}

    def observe(self, rows: Rows) -> None:
        """Take in one block."""
        weights = arrays.exact(rows.weights[0])  # [H, r, s]
        lib = arrays.of(weights)
        double = lib.float64
        count, width = weights.shape[1:]
        mine = slice(rows.key_start, rows.key_start + width), slice(rows.start, rows.start + count)
        keys = lib.asarray(self._keys[mine[0]], double, weights)  # [s, K]
        queries = lib.asarray(self._rows[mine[1]], double, weights)  # [r, R]
        allowed = lib.cast(arrays.converted(rows.mask[0], weights), double)  # [H or 1, r, s]
        reached = allowed @ keys  # [H or 1, r, K]
        reachable = lib.cast(reached > 0, double)
        chance = reached / allowed.sum(2)[..., None].clip(1)
        mass = weights @ keys * reachable
        parts = (mass, chance, mass / reached.clip(1), reachable)
        shape = (len(weights), *mass.shape[1:])
        sums = lib.xp.stack([queries.T @ lib.xp.broadcast_to(part, shape) for part in parts])
        total = self._sums.get(rows.site)  # [4, H, R, K]
        self._sums[rows.site] = sums if total is None else total + sums

    def result(self) -> SpanSums:
        """Return the sums of all heads."""
        sums = np.concatenate([to_numpy(self._sums[site]) for site in sorted(self._sums)], 1)
        values, chances, per_token, rows = sums
        return SpanSums(values, chances, per_token, rows.round().astype(np.int64))

    def _members(self, groups: Sequence[Sequence[int]], length: int) -> Floats:
        """[T, groups], 1 where a position is in a group."""
        members = np.zeros((length, len(groups)))
        for number, places in enumerate(groups):
            members[list(places), number] = 1
        return members


def by_name(groups: Mapping[str, Sequence[int]], names: Sequence[str]) -> list[Sequence[int]]:
    """Return groups in the order of some names; none of the text's positions where it lacks one."""
    return [groups.get(name, ()) for name in names]


Groups = Sequence[Sequence[int]]  # positions of every group
_TOLD = 4  # notes of many texts
_SHOWN = 200  # characters of a span that are kept


def shortened(notes: Iterable[str]) -> list[str]:
    """Tell of many texts each thing once, and of the same kind of thing the first few."""
    different = list(dict.fromkeys(notes))
    if len(different) <= _TOLD:
        return different
    return [*different[: _TOLD - 1], f"{len(different) - _TOLD + 1} more notes of this kind."]


def groups_of(tokens: Tokens) -> dict[str, tuple[int, ...]]:
    """Positions by the name of each span, and those in none."""
    groups = {span.name: span.positions for span in tokens.spans}
    return {**groups, ELSEWHERE: elsewhere(tokens.spans, len(tokens)).positions}


def watched(source: Source, inputs: Inputs, rows: Groups, keys: Groups) -> SpanSums:
    """Return the sums of one text, from groups of rows to groups of keys."""
    observer = SpanObserver(rows, keys, len(inputs.tokens))
    observe(source, [inputs], observer)
    return observer.result()


def replayed(capture: Capture, rows: Groups, keys: Groups) -> SpanSums:
    """Return the same of stored maps."""
    observer = SpanObserver(rows, keys, len(capture.inputs.tokens))
    for block in blocks(capture):
        observer.observe(block)
    return observer.result()


@dataclass(frozen=True, eq=False, slots=True)
class Joint:
    """All heads and spans judged as one family, [N, K - 1]."""

    shares: Ratios  # of the weight
    excess: Ratios  # of the same less chance, against 0

    def of(self, cell: tuple[int, int]) -> tuple[float | None, float | None, bool | None]:
        """Both ends of a share's interval and whether it differs from chance; None: not known."""
        if cell[1] >= self.shares.value.shape[1]:
            return None, None, None
        low, high = float(self.shares.joint_low[cell]), float(self.shares.joint_high[cell])
        p = float(self.excess.adjusted[cell])
        sure = None if np.isnan(p) else p <= 1 - LEVEL
        if np.isnan(low):
            return None, None, sure
        return max(low, 0.0), min(high, 1.0), sure


@dataclass
class Measuring:
    """Adds up texts, one at a time."""

    layout: Layout  # the N heads
    names: tuple[str, ...]  # of the K spans, the tokens in none last
    rows: str  # ``last``, ``all`` or the name of a span
    _texts: list[tuple[SpanSums, dict[str, tuple[int, ...]], Tokens]] = field(default_factory=list)

    def row_groups(self, tokens: Tokens) -> list[Sequence[int]]:
        """Those of each span, and in the end those that were asked for."""
        groups = groups_of(tokens)
        chosen = {LAST: (len(tokens) - 1,), EVERY: tuple(range(len(tokens)))}
        return [*by_name(groups, self.names), {**groups, **chosen}.get(self.rows, ())]

    def key_groups(self, tokens: Tokens) -> list[Sequence[int]]:
        """Those of each span."""
        return by_name(groups_of(tokens), self.names)

    def add(self, sums: SpanSums, tokens: Tokens) -> None:
        """Add a text: sums over :meth:`row_groups`, [N, K + 1, K]."""
        self._texts.append((sums, groups_of(tokens), tokens))

    def spans(self) -> tuple[NamedSpan, ...]:
        """Return what each span is."""
        named = []
        for name in self.names:
            held = [(groups[name], tokens) for _, groups, tokens in self._texts if groups.get(name)]
            text = "" if not held else held[0][1].shown(name, held[0][0])
            mean = sum(len(places) for places, _ in held) / len(held) if held else 0.0
            named.append(NamedSpan(name, len(held), mean, text[:_SHOWN]))
        return tuple(named)

    def heads(self) -> tuple[SpanWeights, ...]:
        """Return what every head gives to each span."""
        values, chances, tokens, rows = (
            reduce(add, (getattr(sums, name) for sums, _, _ in self._texts))
            for name in ("values", "chances", "per_token", "rows")
        )  # [N, K + 1, K]
        # texts of the same words with other spans are not independent
        by_text = [(sums.values[:, -1], sums.rows[:, -1]) for sums, _, _ in self._texts]
        groups = merge_copies(self._names, *(np.array(part) for part in zip(*by_text, strict=True)))
        half = ClusterSums.of(*groups).half()
        joint = self._joint()
        with np.errstate(invalid="ignore", divide="ignore"):
            means, uniform, per_token = values / rows, chances / rows, tokens / rows

        def share(head: int, span: int) -> SpanShare:
            """Of the rows that were asked for, which are the last group."""
            last = head, -1, span
            if not rows[last]:
                return SpanShare(None, None, None, None, 0)
            mean, chance, width = float(means[last]), float(uniform[last]), float(half[head, span])
            sure = not np.isnan(width)
            return SpanShare(
                mean,
                chance,
                mean / chance if chance > 0 else None,
                float(per_token[last]),
                int(rows[last]),
                max(mean - width, 0.0) if sure else None,
                min(mean + width, 1.0) if sure else None,
                *(joint.of((head, span)) if joint is not None else ()),
            )

        weights = []
        for number, head in enumerate(self.layout):
            shares = tuple(share(number, span) for span in range(len(self.names)))
            matrix = tuple(
                tuple(None if np.isnan(mean) else float(mean) for mean in line)
                for line in means[number, :-1]
            )
            weights.append(SpanWeights(head, shares, matrix))
        return tuple(weights)

    @property
    def _names(self) -> list[str]:
        """What tells texts apart."""
        return [str(tokens.identity) for _, _, tokens in self._texts]

    def _joint(self) -> Joint | None:
        """Return what holds for all heads and spans at once; None for a single text."""
        if len(self._texts) < 2:
            return None
        # the tokens in no span are what the others leave
        values, chances, rows = (
            np.array([getattr(sums, name)[:, -1, :-1] for sums, _, _ in self._texts])
            for name in ("values", "chances", "rows")
        )
        shares, excess = (
            ratios(a, rows, self._names, size=values, few=True) for a in (values, values - chances)
        )
        return Joint(shares, excess)


GazeGroups = list[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Looking:
    """Which rows look at which boxes."""

    boxes: tuple[str, ...]  # names of spans that are boxes
    texts: tuple[str, ...]  # names of the other spans

    @classmethod
    def of(cls, several: Sequence[Tokens]) -> Looking:
        """Of some texts with their spans."""
        spans = [span for tokens in several for span in tokens.spans]
        boxes = dict.fromkeys(span.name for span in spans if span.box is not None)
        names = dict.fromkeys(span.name for span in spans if span.name not in boxes)
        return cls(tuple(boxes), tuple(names))

    def rows(self, tokens: Tokens) -> GazeGroups:
        """Return the words of a text, and each span of it, without any token of a picture."""
        if not self.boxes:
            return []
        pictured = {row for row, position in enumerate(tokens.places) if position}
        words = [n for n in range(len(tokens)) if n not in pictured and not tokens.special[n]]
        spans = {span.name: span.positions for span in tokens.spans}
        groups = [words, *(spans.get(name, ()) for name in self.texts)]
        return [tuple(row for row in group if row not in pictured) for group in groups]

    def keys(self, tokens: Tokens, picture: Picture | None) -> GazeGroups:
        """Of every box its tokens, and those of the picture that it is in."""
        spans = {span.name: span for span in tokens.spans}
        return [group for name in self.boxes for group in _both(spans.get(name), tokens, picture)]

    def gazes(
        self, texts: Sequence[SpanSums], groups: Sequence[str], layout: Layout
    ) -> Iterator[Gaze]:
        """Give what every head gives to each box, from sums over :meth:`rows` and :meth:`keys`."""
        if not self.boxes:
            return
        values, chances, rows = (
            np.sum([getattr(sums, name) for sums in texts], axis=0)
            for name in ("values", "chances", "rows")
        )  # [N, 1 + texts, 2 * boxes]
        for number, box in enumerate(self.boxes):
            for source, name in enumerate((WORDS, *self.texts)):
                on_box, on_picture = 2 * number, 2 * number + 1
                count = rows[:, source, on_picture]
                if not count.any():
                    continue
                of_box, picture = (
                    np.stack([sums.values[:, source, target] for sums in texts])
                    for target in (on_box, on_picture)
                )  # [G, N]
                shares = ratios(of_box, picture, groups, joint=False)
                ends = np.stack([shares.low, shares.high], 1).clip(0, 1)  # [N, 2]
                yield Gaze(
                    box,
                    name,
                    int(count.max()),
                    tuple(
                        _of_head(
                            values[n, source, on_box : on_picture + 1],
                            chances[n, source, on_box : on_picture + 1],
                            int(count[n]),
                            ends[n].tolist(),
                        )
                        for n in range(len(layout))
                    ),
                )


def pictured(picture: Picture | None) -> str:
    """Get what tells the picture of a text from others: texts about one picture belong together."""
    return "" if picture is None else hashlib.sha256(picture.pixels.tobytes()).hexdigest()


def _both(span: Span | None, tokens: Tokens, picture: Picture | None) -> GazeGroups:
    """Return the tokens of a box, and those of its picture; none where a text lacks it."""
    if span is None or span.box is None:
        return [(), ()]
    crops = () if picture is None else picture.crops
    mine = [crop for crop in crops if crop.number == span.box.picture]
    positions = [
        n
        for n, where in enumerate(tokens.places)
        if len(where) == 2 and (not mine or any(c.row <= where[0] < c.row + c.rows for c in mine))
    ]
    return [span.positions, positions]


def _of_head(
    values: Sequence[float], chances: Sequence[float], rows: int, ends: Sequence[float]
) -> HeadGaze:
    """From sums on a box and on its picture, and the ends of the interval, NaN for none."""
    if not rows:
        return HeadGaze(None, None, None, None)
    box, picture = map(float, values)
    chance = float(chances[0] / chances[1])
    share = box / picture if picture > 0 else None
    return HeadGaze(
        share,
        chance,
        None if share is None or not chance else share / chance,
        picture / rows,
        *(None if np.isnan(end) else float(end) for end in ends),
    )
