"""From what every checkpoint gave to a film: curves, roles, formations, their order."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnviz.core.scores import Role
from attnviz.errors import InputError, UsageError
from attnviz.features.film import changes
from attnviz.features.film.changes import Floats, Indices
from attnviz.features.film.kept import MeasuredStep
from attnviz.features.film.result import (
    IN_CONTEXT,
    Event,
    Film,
    Formation,
    HeadFilm,
    Maps,
    Order,
    Shift,
    StepCurve,
)
from attnviz.features.profile.deciding import decide
from attnviz.scoring.roles import ROLES
from attnviz.scoring.scores import SCORES
from attnviz.statistics.clusters import ClusterSums, few_groups
from attnviz.statistics.copies import together
from attnviz.statistics.coverage import word

_DIGITS = 4


def summarize(
    steps: Sequence[MeasuredStep],
    baselines: Mapping[str, float] | None = None,
    *,
    partial: bool = False,
) -> Film:
    """Everything that the checkpoints of a run say.

    Args:
        steps: in their order.
        baselines: losses to compare with, by name.
        partial: whether some of the series are missing.

    Raises:
        UsageError: steps of other models, texts or settings than the first.
    """
    check(steps)
    series = _Series.of(steps)
    heads = series.heads()
    formations = series.formations(heads)
    events, order = series.events(formations)
    first, last = steps[0].header, steps[-1].header
    return Film(
        source=last.info,
        layout=series.layout,
        identity=last.identity,
        texts=len(first.texts) - first.probes,
        seed=int(first.asked.get("seed", 0)),
        partial=partial,
        notes=tuple(series.notes(heads)),
        steps=series.steps,
        names=tuple(one.header.name for one in steps),
        heads=heads,
        clusters=len(series.names) - first.probes,
        tokens=first.tokens,
        loss=series.loss.curve,
        in_context=series.context.curve,
        units={name: SCORES[name].unit for name in series.scores},
        baselines=dict(baselines or {}),
        formations=tuple(item.formation for item in formations),
        events=events,
        order=order,
        questions=series.questions,
        maps=_maps(steps),
        probed=first.probes,
        metric=first.metric,
        files=tuple(first.files),
    )


def check(steps: Sequence[MeasuredStep]) -> None:
    """Refuse what is not one run on the same texts.

    Raises:
        InputError: fewer than two steps; UsageError: what differs.
    """
    if len(steps) < 2:
        raise InputError("a film needs two checkpoints or more; only one was measured so far")
    first = steps[0]
    for one in steps[1:]:
        a, b = first.header, one.header
        for what, mine, theirs in (
            ("heads", a.layout, b.layout),
            ("scores", a.scores, b.scores),
            ("settings", a.asked, b.asked),
            ("texts", a.texts, b.texts),
        ):
            if mine != theirs:
                raise UsageError(
                    f"{b.name} was measured with other {what} than {a.name}; measure both in the "
                    "same way"
                )


@dataclass(frozen=True, eq=False, slots=True)
class _Track:
    """A number of every text at every step: its curve, and what its draws [R, S] say."""

    curve: StepCurve | None
    draws: Floats
    texts: int

    @classmethod
    def of(cls, a: Floats, b: NDArray[Any], weights: Floats) -> _Track:
        """Of sums [S, G] over rows [S, G]."""
        texts = int((b[0] > 0).sum())
        if not texts:
            return cls(None, np.zeros((len(weights), len(a))), 0)
        sums = ClusterSums.of(a.T[:, :, None], b.T[:, :, None])
        curve = StepCurve(_numbers(sums.mean()[:, 0]), _numbers(sums.half()[:, 0]))
        return cls(curve, changes.drawn(a, b, weights), texts)

    def shift(self, start: int, end: int) -> Shift | None:
        """What it did between two steps."""
        if self.curve is None:
            return None
        values = self.curve.mean
        before, after, first, last = values[start], values[end], values[0], values[-1]
        if before is None or after is None or first is None or last is None:
            return None
        low, high = changes.shifted(self.draws, start, end, self.texts)
        whole = last - first
        share = (after - before) / whole if abs(whole) > 1e-9 else None
        return Shift(
            before, after, _number(low), _number(high), None if share is None else _number(share)
        )


@dataclass(frozen=True, eq=False, slots=True)
class _Formed:
    """A formation, and where each draw passed."""

    formation: Formation
    draws: Indices
    texts: int


class _Series:
    """The sums of all steps over G independent texts, and the draws of these.

    Attributes:
        steps: of the checkpoints; ``names`` what tells the texts apart.
        a: [S, G, H, n], sums of scores; ``b`` their numbers of rows.
        decisions: which scores surely reach what roles take, of all steps at once.
    """

    def __init__(self, steps: Sequence[MeasuredStep], names: Sequence[str]) -> None:
        self.measured, self.layout = steps, steps[0].layout
        self.scores = tuple(steps[0].header.scores)
        self.steps = tuple(one.header.step for one in steps)
        self.names = tuple(dict.fromkeys(names))
        both = [together(names, one.values, one.rows) for one in steps]
        self.a = np.stack([a for a, _ in both])
        self.b = np.stack([b for _, b in both])
        self.weights = changes.weights(self.names, int(steps[0].header.asked.get("seed", 0)))
        self.loss = self._track("loss", "predicted", names)
        self.context = self._track("contexts", "windows", names)
        sums = [ClusterSums.of(self.a[s], self.b[s]) for s in range(len(steps))]
        self.mean = np.stack([one.mean() for one in sums])  # [S, H, n]
        self.half = np.stack([one.half() for one in sums])
        rows = np.where(self.b.sum(1) > 0, self.b.sum(1), np.nan)
        self.chance = np.stack([one.chances for one in steps]) / rows
        self.sure, self.questions = self._decided(sums)

    @classmethod
    def of(cls, steps: Sequence[MeasuredStep]) -> _Series:
        """Of the steps of one run."""
        return cls(steps, steps[0].header.texts)

    def heads(self) -> tuple[HeadFilm, ...]:
        """Curves and roles of every head."""
        found = []
        totals = [one.total() for one in self.measured]
        for number, head in enumerate(self.layout):
            name = self.layout.name(head)
            roles = []
            for place, one in enumerate(self.measured):
                unsure = {
                    score
                    for score, sure in zip(self.scores, self.sure[place, number], strict=True)
                    if not sure
                }
                given: list[Role] = list(one.header.roles.get(name, ()))
                given += totals[place].roles(number, unsure)
                roles.append(tuple(role.title for role in given))
            curves = {
                score: StepCurve(
                    _numbers(self.mean[:, number, n]),
                    _numbers(self.half[:, number, n]),
                    _number(float(self.chance[-1, number, n])),
                )
                for n, score in enumerate(self.scores)
                if self.b[:, :, number, n].any()
            }
            found.append(HeadFilm(head, curves, tuple(roles), self._effect(number)))
        return tuple(found)

    def formations(self, heads: Sequence[HeadFilm]) -> list[_Formed]:
        """Of every head for every role that it has at a step, but not at the first."""
        found = []
        for number, one in enumerate(heads):
            titles = dict.fromkeys(title for roles in one.roles for title in roles)
            for title in titles:
                if title in ROLES and title not in one.roles[0]:
                    formed = self._formed(number, one, title)
                    found += [formed] if formed is not None else []
        return sorted(
            found, key=lambda item: (item.formation.step, item.formation.role, item.formation.head)
        )

    def events(self, formed: Sequence[_Formed]) -> tuple[tuple[Event, ...], tuple[Order, ...]]:
        """The first head of every role, the fall of the in-context score; and their order."""
        draws: dict[str, tuple[int, Indices, int]] = {}
        for item in formed:
            role, index = item.formation.role, self.steps.index(item.formation.step)
            # a draw in which a head never rose says nothing of when the role began
            places = np.where(item.draws > 0, item.draws, len(self.steps) - 1)
            if role in draws:
                known, earlier, texts = draws[role]
                index, places = min(known, index), np.minimum(earlier, places)
            else:
                texts = item.texts
            draws[role] = index, places, min(texts, item.texts)
        fallen = self._fallen()
        if fallen is not None:
            draws[IN_CONTEXT] = fallen
        order = sorted(draws, key=lambda name: (draws[name][0], name))
        events = []
        for name in order:
            at = changes.when(*draws[name][:2], self.steps, draws[name][2])
            events.append(Event(name, at.step, at.low, at.high))
        pairs = list(pairwise(order))
        if {"previous", "induction"} <= set(order):
            both = tuple(name for name in order if name in ("previous", "induction"))
            pairs += [both] if both not in pairs else []  # type: ignore[list-item]
        return tuple(events), tuple(self._order(draws, *pair) for pair in pairs)

    def notes(self, heads: Sequence[HeadFilm]) -> list[str]:
        """What the reader must not miss."""
        found = []
        header = self.measured[0].header
        count = len(self.names) - header.probes
        if repeated := len(header.texts) - header.probes - count:
            found.append(f"{repeated:,} texts repeat another one word for word: they count as one.")
        said = few_groups(count) or word("each", count, "texts")
        found += [said] if said else []
        if bad := header.bad:
            found.append(f"{bad:,} texts could not be used.")
        if self.loss.curve is not None and self.context.curve is None:
            found.append(
                "No in-context score: it takes texts of 32 predicted tokens, and a model that "
                "predicts the next token."
            )
        found += header.notes
        return found

    def _formed(self, number: int, head: HeadFilm, role: str) -> _Formed | None:
        for evidence in ROLES[role].evidence:
            if evidence.score not in head.scores:
                continue
            n = self.scores.index(evidence.score)
            curve = self.mean[:, number, n]
            index = int(changes.passed(curve[None])[0])
            if not index:
                continue
            a, b = self.a[:, :, number, n], self.b[:, :, number, n]
            texts = int((b[0] > 0).sum())
            draws = changes.passed(changes.drawn(a, b, self.weights))
            at = changes.when(index, draws, self.steps, texts)
            top = int(np.nanargmax(curve))
            start = self.steps.index(at.low) if at.low is not None else index - 1
            end = self.steps.index(at.high) if at.high is not None else index
            return _Formed(
                Formation(
                    head.head, role, evidence.score, at.step, at.low, at.high,
                    _known(np.nanmin(curve[: top + 1])), _known(curve[top]),
                    self.loss.shift(start, end), self.context.shift(start, end),
                ),
                draws, texts,
            )  # fmt: skip
        return None

    def _fallen(self) -> tuple[int, Indices, int] | None:
        """Where the in-context score passed its middle on the way down; None where it did not."""
        curve = self.context.curve
        if curve is None:
            return None
        values = np.array([math.nan if one is None else one for one in curve.mean])
        index = int(changes.passed(-values[None])[0])
        _, high = changes.shifted(
            self.context.draws, 0, int(np.nanargmin(values)), self.context.texts
        )
        if not index or high is None or high >= 0:
            return None
        return index, changes.passed(-self.context.draws), self.context.texts

    def _order(self, draws: Mapping[str, tuple[int, Indices, int]], first: str, then: str) -> Order:
        (one, mine, some), (other, theirs, others) = draws[first], draws[then]
        low, high, share = changes.apart(mine, theirs, self.steps, min(some, others))
        return Order(first, then, self.steps[other] - self.steps[one], low, high, _number(share))

    def _track(self, sums: str, counts: str, names: Sequence[str]) -> _Track:
        both = [together(names, getattr(one, sums), getattr(one, counts)) for one in self.measured]
        return _Track.of(
            np.stack([a for a, _ in both]), np.stack([b for _, b in both]), self.weights
        )

    def _decided(self, sums: Sequence[ClusterSums]) -> tuple[NDArray[np.bool_], int]:
        """Which scores surely reach what roles take: all heads, scores and steps are one family."""
        shape = (len(self.steps) * len(self.layout), len(SCORES))
        columns = [list(SCORES).index(name) for name in self.scores]

        def wide(values: Floats) -> Floats:
            full = np.full(shape, np.nan)
            full[:, columns] = values.reshape(shape[0], -1)
            return full

        decided = decide(
            wide(self.mean), wide(np.stack([one.error() for one in sums])), wide(self.chance),
            freedom=wide(np.stack([one.freedom() for one in sums])),
        )  # fmt: skip
        return decided.sure[:, columns].reshape(self.mean.shape), decided.questions

    def _effect(self, number: int) -> StepCurve | None:
        if not all(len(one.changes) for one in self.measured):
            return None
        both = np.stack([one.changes[number] for one in self.measured])
        return StepCurve(_numbers(both[:, 0]), _numbers(both[:, 1]))


def _maps(steps: Sequence[MeasuredStep]) -> Maps | None:
    """The maps of all steps, packed."""
    if not all(one.maps.size for one in steps):
        return None
    packed = zlib.compress(np.stack([one.maps for one in steps]).tobytes(), 9)
    return Maps(tuple(steps[0].header.shown), base64.b64encode(packed).decode("ascii"))


def unpacked(film: Film) -> NDArray[np.uint8] | None:
    """The maps of a film, [steps, heads, T, T] in 255ths; None where it has none.

    Raises:
        InputError: they are not what the film says.
    """
    if film.maps is None:
        return None
    t = len(film.maps.tokens)
    shape = (len(film.steps), len(film.heads), t, t)
    try:
        data = zlib.decompress(base64.b64decode(film.maps.data, validate=True))
        return np.frombuffer(data, np.uint8).reshape(shape)
    except (ValueError, zlib.error):
        raise InputError("the maps of this film are damaged; make it again") from None


def _numbers(values: Floats) -> tuple[float | None, ...]:
    return tuple(_number(float(one)) for one in values)


def _number(value: float | None) -> float | None:
    """To the digits that a film keeps; None for what is not known."""
    if value is None or not math.isfinite(value):
        return None
    return round(value, _DIGITS) + 0.0


def _known(value: float) -> float:
    return round(float(value), _DIGITS) + 0.0
