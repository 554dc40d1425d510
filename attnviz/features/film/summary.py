"""From what every checkpoint gave to a film: curves, roles, formations, their order."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.trials import repeated
from attnviz.core.arrays import Floats, Integers
from attnviz.core.provenance import own_name
from attnviz.core.result import fingerprint
from attnviz.core.scores import Role
from attnviz.drawing.labels import counted
from attnviz.errors import InputError, UsageError
from attnviz.features.film import result as records
from attnviz.features.film.steps import MeasuredStep, read_folder
from attnviz.features.profile.stability import decide
from attnviz.files import inflated
from attnviz.scoring.roles import ROLES
from attnviz.scoring.scores import SCORES
from attnviz.statistics import clusters
from attnviz.statistics.coverage import word
from attnviz.statistics.simultaneous import REPLICATES, poisson

JITTERED = 6  # from fewer checkpoints nobody can tell a rise from what training does anyway
_MEDIAN = 0.6745  # of the size of a normal variable, in standard deviations


def drawn(a: Floats, b: NDArray[np.integer[Any]], weights: Floats) -> Floats:
    """Take means [R, S] of ``a`` over rows ``b`` [S, G] by draws [R, G]; NaN without a row."""
    rows = weights @ np.asarray(b, np.float64).T
    sums = weights @ a.T
    return sums / np.where(rows > 0, rows, np.nan)


def jitter(curve: Floats) -> float:
    """Return the standard deviation of what a curve [S] does from one checkpoint to the next.

    Second differences of a line are 0, and of independent noise have √6 of its deviation; their
    median is not moved by the few of a rise. 0 from fewer than :data:`JITTERED` checkpoints.
    """
    if len(curve) < JITTERED:
        return 0.0
    bends = np.abs(curve[:-2] - 2 * curve[1:-1] + curve[2:])
    finite = bends[np.isfinite(bends)]
    return float(np.median(finite)) / (_MEDIAN * math.sqrt(6)) if len(finite) else 0.0


def jittered(draws: Floats, curve: Floats, seed: Sequence[int]) -> Floats:
    """Draws [R, S] of a curve [S] as another training of the same kind would give them."""
    if len(curve) < JITTERED:
        return draws
    middle = np.median([curve[:-2], curve[1:-1], curve[2:]], axis=0)
    smooth = np.concatenate([curve[:1], np.where(np.isfinite(middle), middle, curve[1:-1]),
                             curve[-1:]])  # fmt: skip
    noise = np.random.default_rng(list(seed)).normal(0, jitter(curve), draws.shape)
    return draws + (smooth - curve) + noise


def passed(curves: Floats) -> Integers:
    """Where curves [R, S] last passed their middle before their top, 1 to S - 1; 0 for none."""
    values = np.nan_to_num(curves, nan=-math.inf)
    steps = np.arange(values.shape[1])
    top = values.argmax(1)
    until_top = steps <= top[:, None]
    least = np.where(until_top & np.isfinite(values), values, math.inf).min(1)
    middle = (np.where(np.isfinite(least), least, 0.0) + values.max(1)) / 2
    above = values >= middle[:, None]
    rises = above[:, 1:] & ~above[:, :-1] & until_top[:, 1:]
    last = rises.shape[1] - rises[:, ::-1].argmax(1)
    return np.where(rises.any(1), last, 0)


class When(NamedTuple):
    """When something happened; no interval from too few texts."""

    step: int  # the first checkpoint after it
    low: int | None  # the last that surely was before
    high: int | None  # the first that surely was after


def when(index: int, draws: Integers, steps: Sequence[int], texts: int) -> When:
    """Say when something happened, from its places in all draws [R]."""
    if texts < clusters.LEAST:
        return When(steps[index], None, None)
    low, high = _ends(np.maximum(draws - 1, 0), draws)
    return When(steps[index], steps[min(low, index - 1)], steps[max(high, index)])


def apart(
    first: Integers, second: Integers, steps: Sequence[int], texts: int
) -> tuple[int | None, int | None, float | None]:
    """How many steps lie between two events: the interval, and how often they come in this order.

    ``first`` [R], where the first passed in every draw; ``second`` the other.
    """
    if texts < clusters.LEAST:
        return None, None, None
    numbers = np.asarray(steps)
    shortest = numbers[np.maximum(second - 1, 0)] - numbers[first]
    longest = numbers[second] - numbers[np.maximum(first - 1, 0)]
    low, high = _ends(shortest, longest)
    return low, high, float((second > first).mean())


def _ends(lowest: Integers, highest: Integers) -> tuple[int, int]:
    """Return the ends that 95 % of the draws stay within."""
    tail = (1 - clusters.LEVEL) / 2
    low = np.quantile(lowest, tail, method="lower")
    high = np.quantile(highest, 1 - tail, method="higher")
    return int(low), int(high)


def shifted(draws: Floats, start: int, end: int, texts: int) -> tuple[float | None, float | None]:
    """Return the 95 % interval of a curve's change between two steps, from its draws [R, S]."""
    if texts < clusters.LEAST:
        return None, None
    change = draws[:, end] - draws[:, start]
    if np.isnan(change).all():
        return None, None
    tail = (1 - clusters.LEVEL) / 2
    low, high = np.nanquantile(change, (tail, 1 - tail))
    return float(low), float(high)


_DIGITS = 4


@dataclass(frozen=True, eq=False, slots=True)
class StepTrack:
    """A number of every text at every step: its curve, its draws [R, S], and if it is known [S]."""

    curve: records.StepCurve | None
    draws: Floats
    texts: int
    known: NDArray[np.bool_]

    @classmethod
    def of(cls, a: Floats, b: NDArray[Any], weights: Floats, seed: Sequence[int]) -> StepTrack:
        """Of sums [S, G] over rows [S, G]; a step whose sums are no numbers has no rows.

        ``seed`` is of what checkpoints do.
        """
        sound = clusters.summable(a, b)
        a, b = np.where(sound[:, None], a, 0.0), np.where(sound[:, None], b, 0)
        texts = int((b.max(0) > 0).sum())
        if not texts:
            return cls(None, np.zeros((len(weights), len(a))), 0, sound)
        sums = clusters.ClusterSums.of(a.T[:, :, None], b.T[:, :, None])
        curve = records.StepCurve(all_rounded(sums.mean()[:, 0]), all_rounded(sums.half()[:, 0]))
        draws = drawn(a, b, weights)
        return cls(curve, jittered(draws, sums.mean()[:, 0], seed), texts, sound)

    def shift(self, start: int, end: int) -> records.Shift | None:
        """Return what it did between two steps."""
        if self.curve is None:
            return None
        values = self.curve.mean
        old, new, first, last = values[start], values[end], values[0], values[-1]
        if old is None or new is None or first is None or last is None:
            return None
        low, high = shifted(self.draws, start, end, self.texts)
        change = last - first
        ends = shifted(self.draws, 0, len(values) - 1, self.texts)
        share = (new - old) / change if _apart(*ends) and _apart(low, high) else None
        return records.Shift(
            old, new, rounded(low), rounded(high), None if share is None else rounded(share)
        )


def _apart(low: float | None, high: float | None) -> bool:
    """Whether an interval leaves out 0."""
    return low is not None and high is not None and (low > 0 or high < 0)


def all_rounded(values: Floats) -> tuple[float | None, ...]:
    """Numbers to the digits that a film keeps; None for those that are not known."""
    return tuple(rounded(float(number)) for number in values)


def rounded(value: float | None) -> float | None:
    """To the digits that a film keeps; None for what is not known."""
    if value is None or not math.isfinite(value):
        return None
    return round(value, _DIGITS) + 0.0


def shortened(value: float) -> float:
    """Return a number that is known, to the digits that a film keeps."""
    return round(float(value), _DIGITS) + 0.0


def read_steps(folder: Path) -> records.Film:
    """Return the film of the steps in a folder."""
    return summarize(read_folder(folder))


def summarize(
    steps: Sequence[MeasuredStep],
    baselines: Mapping[str, float] | None = None,
    *,
    partial: bool = False,
) -> records.Film:
    """Everything that the checkpoints of a run say."""
    check(steps)
    series = _Series(steps)
    heads = series.heads()
    formations = series.formations(heads)
    events, order = series.events(formations)
    first, last = steps[0].header, steps[-1].header
    texts = first.texts[: len(first.texts) - first.probes]
    return records.Film(
        source=last.info,
        layout=series.layout,
        identity=last.identity,
        texts=len(texts),
        corpus=fingerprint(texts) if len(texts) > 1 else "",
        seed=series.seed,
        partial=partial,
        notes=tuple(series.notes()),
        steps=series.steps,
        names=tuple(step.header.name for step in steps),
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
        files=tuple(map(own_name, first.files)),
    )


def check(steps: Sequence[MeasuredStep]) -> None:
    """Refuse what is not one run on the same texts."""
    if len(steps) < 2:
        raise InputError("a film needs two checkpoints or more; only one was measured so far")
    first = steps[0]
    for step in steps[1:]:
        a, b = first.header, step.header
        for noun, mine, theirs in (
            ("heads", a.layout, b.layout),
            ("scores", a.scores, b.scores),
            ("settings", a.asked, b.asked),
            ("texts", a.texts, b.texts),
        ):
            if mine != theirs:
                raise UsageError(
                    f"{b.name} was measured with other {noun} than {a.name}; measure both in the "
                    "same way"
                )


@dataclass(frozen=True, eq=False, slots=True)
class _Formed:
    """A formation, and where each draw passed."""

    formation: records.Formation
    draws: Integers
    texts: int


class _Series:
    """The sums of all steps over G independent texts, and the draws of these.

    Attributes:
        steps: of the checkpoints; ``names`` what tells the texts apart.
        a: [S, G, H, n], sums of scores; ``b`` their numbers of rows.
        decisions: which scores surely reach what roles take, of all steps at once.
    """

    def __init__(self, steps: Sequence[MeasuredStep]) -> None:
        self.measured, self.layout, names = steps, steps[0].layout, steps[0].header.texts
        self.scores = tuple(steps[0].header.scores)
        self.steps = tuple(step.header.step for step in steps)
        self.names = tuple(dict.fromkeys(names))
        merged = [clusters.merge_copies(names, step.values, step.rows) for step in steps]
        self.a = np.stack([a for a, _ in merged])
        self.b = np.stack([b for _, b in merged])
        self.seed = int(steps[0].header.asked.get("seed", 0))
        # [R, G], how often each draw has each text; of copies of a text, all or none
        self.weights = poisson(self.seed, self.names, REPLICATES)
        self.loss = self._track("loss", "predicted", names, 0)
        self.context = self._track("contexts", "windows", names, 1)
        sums = [clusters.ClusterSums.of(self.a[s], self.b[s]) for s in range(len(steps))]
        self.mean = np.stack([table.mean() for table in sums])  # [S, H, n]
        self.half = np.stack([table.half() for table in sums])
        rows = np.where(self.b.sum(1) > 0, self.b.sum(1), np.nan)
        self.chance = np.stack([step.chances for step in steps]) / rows
        self.sure, self.questions = self._decided(sums)

    def heads(self) -> tuple[records.HeadFilm, ...]:
        """Curves and roles of every head."""
        films = []
        totals = [step.total() for step in self.measured]
        for number, head in enumerate(self.layout):
            name = self.layout.name(head)
            roles = []
            for index, step in enumerate(self.measured):
                unsure = {
                    score
                    for score, sure in zip(self.scores, self.sure[index, number], strict=True)
                    if not sure
                }
                held: list[Role] = list(step.header.roles.get(name, ()))
                held += totals[index].roles(number, unsure)
                roles.append(tuple(role.title for role in held))
            curves = {
                score: records.StepCurve(
                    all_rounded(self.mean[:, number, n]),
                    all_rounded(self.half[:, number, n]),
                    rounded(float(self.chance[-1, number, n])),
                )
                for n, score in enumerate(self.scores)
                if self.b[:, :, number, n].any()
            }
            films.append(records.HeadFilm(head, curves, tuple(roles), self._effect(number)))
        return tuple(films)

    def formations(self, heads: Sequence[records.HeadFilm]) -> list[_Formed]:
        """Of every head for every role that it has at a step, but not at the first."""
        dated = []
        for number, film in enumerate(heads):
            titles = dict.fromkeys(title for roles in film.roles for title in roles)
            for title in titles:
                if title in ROLES and title not in film.roles[0]:
                    formed = self._formed(number, film, title)
                    dated += [formed] if formed is not None else []
        return sorted(
            dated, key=lambda item: (item.formation.step, item.formation.role, item.formation.head)
        )

    def events(
        self, formed: Sequence[_Formed]
    ) -> tuple[tuple[records.Event, ...], tuple[records.Order, ...]]:
        """Give the first head of every role, the fall of the in-context score; and their order."""
        draws: dict[str, tuple[int, Integers, int]] = {}
        for item in formed:
            role, index = item.formation.role, self.steps.index(item.formation.step)
            # a draw in which a head never rose says nothing of when the role began
            places = np.where(item.draws > 0, item.draws, len(self.steps) - 1)
            if role in draws:
                first, earlier, texts = draws[role]
                index, places = min(first, index), np.minimum(earlier, places)
            else:
                texts = item.texts
            draws[role] = index, places, min(texts, item.texts)
        fallen = self._fallen()
        if fallen is not None:
            draws[records.IN_CONTEXT] = fallen
        order = sorted(draws, key=lambda name: (draws[name][0], name))
        events = []
        for name in order:
            index, places, texts = draws[name]
            events.append(records.Event(name, *when(index, places, self.steps, texts)))
        pairs = list(pairwise(order))
        if {"previous", "induction"} <= set(order):
            roles = tuple(name for name in order if name in ("previous", "induction"))
            pairs += [roles] if roles not in pairs else []  # type: ignore[list-item]
        return tuple(events), tuple(self._order(draws, *pair) for pair in pairs)

    def notes(self) -> list[str]:
        """Return what the reader must not miss."""
        lines = []
        header = self.measured[0].header
        if count := int((~self.loss.known).sum()):
            first = self.steps[int(self.loss.known.argmin())]
            lines.append(
                f"The loss is too large or no number at {counted(count, 'step')}, first at step "
                f"{first:,}: training has diverged."
            )
        count = len(self.names) - header.probes
        lines += repeated(len(header.texts) - header.probes - count)
        warning = clusters.few_groups(count) or word("each", count, "texts")
        lines += [warning] if warning else []
        if bad := header.bad:
            lines.append(f"{counted(bad, 'text')} could not be used.")
        if self.loss.curve is not None and self.context.curve is None:
            lines.append(
                "No in-context score: it takes texts of 32 predicted tokens, and a model that "
                "predicts the next token."
            )
        lines += header.notes
        return lines

    def _formed(self, number: int, head: records.HeadFilm, role: str) -> _Formed | None:
        for evidence in ROLES[role].evidence:
            if evidence.score not in head.scores:
                continue
            n = self.scores.index(evidence.score)
            curve = self.mean[:, number, n]
            index = int(passed(curve[None])[0])
            if not index:
                continue
            a, b = self.a[:, :, number, n], self.b[:, :, number, n]
            texts = int((b[0] > 0).sum())
            means = drawn(a, b, self.weights)
            draws = passed(jittered(means, curve, (self.seed, 2, number, n)))
            step, low, high = when(index, draws, self.steps, texts)
            top = int(np.nanargmax(curve))
            start = self.steps.index(low) if low is not None else index - 1
            end = self.steps.index(high) if high is not None else index
            return _Formed(
                records.Formation(
                    head.head, role, evidence.score, step, low, high,
                    shortened(np.nanmin(curve[: top + 1])), shortened(curve[top]),
                    self.loss.shift(start, end), self.context.shift(start, end),
                ),
                draws, texts,
            )  # fmt: skip
        return None

    def _fallen(self) -> tuple[int, Integers, int] | None:
        """Where the in-context score passed its middle on the way down; None where it did not."""
        curve = self.context.curve
        if curve is None:
            return None
        values = np.array([math.nan if value is None else value for value in curve.mean])
        index = int(passed(-values[None])[0])
        _, high = shifted(self.context.draws, 0, int(np.nanargmin(values)), self.context.texts)
        if not index or high is None or high >= 0:
            return None
        return index, passed(-self.context.draws), self.context.texts

    def _order(
        self, draws: Mapping[str, tuple[int, Integers, int]], first: str, second: str
    ) -> records.Order:
        (earlier, mine, texts_a), (later, theirs, texts_b) = draws[first], draws[second]
        low, high, share = apart(mine, theirs, self.steps, min(texts_a, texts_b))
        return records.Order(
            first, second, self.steps[later] - self.steps[earlier], low, high, rounded(share)
        )

    def _track(self, sums: str, counts: str, names: Sequence[str], stream: int) -> StepTrack:
        merged = [
            clusters.merge_copies(names, getattr(step, sums), getattr(step, counts))
            for step in self.measured
        ]
        a, b = (np.stack(part) for part in zip(*merged, strict=True))
        return StepTrack.of(a, b, self.weights, (self.seed, stream))

    def _decided(self, sums: Sequence[clusters.ClusterSums]) -> tuple[NDArray[np.bool_], int]:
        """Which scores surely reach what roles take: all heads, scores and steps are one family."""
        shape = (len(self.steps) * len(self.layout), len(SCORES))
        columns = [list(SCORES).index(name) for name in self.scores]

        def wide(values: Floats) -> Floats:
            full = np.full(shape, np.nan)
            full[:, columns] = values.reshape(shape[0], -1)
            return full

        decided = decide(
            wide(self.mean), wide(np.stack([table.error() for table in sums])), wide(self.chance),
            freedom=wide(np.stack([table.freedom() for table in sums])),
        )  # fmt: skip
        return decided.sure[:, columns].reshape(self.mean.shape), decided.questions

    def _effect(self, number: int) -> records.StepCurve | None:
        if not all(len(step.changes) for step in self.measured):
            return None
        changes = np.stack([step.changes[number] for step in self.measured])
        return records.StepCurve(all_rounded(changes[:, 0]), all_rounded(changes[:, 1]))


def _maps(steps: Sequence[MeasuredStep]) -> records.Maps | None:
    """Return the maps of all steps, packed."""
    if not all(step.maps.size for step in steps):
        return None
    packed = zlib.compress(np.stack([step.maps for step in steps]).tobytes(), 9)
    return records.Maps(tuple(steps[0].header.shown), base64.b64encode(packed).decode("ascii"))


_MOST = 1 << 30  # bytes of a film's maps


def unpacked(film: records.Film) -> NDArray[np.uint8] | None:
    """Return the maps of a film, [steps, heads, T, T] in 255ths; None where it has none."""
    if film.maps is None:
        return None
    t = len(film.maps.tokens)
    shape = (len(film.steps), len(film.heads), t, t)
    try:
        packed = base64.b64decode(film.maps.data, validate=True)
        return np.frombuffer(inflated(packed, math.prod(shape), _MOST), np.uint8).reshape(shape)
    except ValueError:
        raise InputError("the maps of this film are damaged; make it again") from None
