"""From sums to what is said: estimates, shares, examples, likeness."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from attnviz.estimates import Estimate, ExampleRow, HeadProfile, Profile, Share
from attnviz.measures import SinkRate
from attnviz.profiling import likeness
from attnviz.profiling.examples import SORTS, Examples
from attnviz.profiling.kinds import KINDS
from attnviz.profiling.state import State
from attnviz.profiling.tally import Flow, Tally
from attnviz.records import Head, HeadScores, Layout, SiteKind
from attnviz.scoring.published import SINK_LENGTH, SINK_THRESHOLD
from attnviz.scoring.roles import ROLES
from attnviz.scoring.scores import SCORES
from attnviz.statistics.clusters import FEW
from attnviz.statistics.simultaneous import ENOUGH
from attnviz.statistics.student import half_width

TOP_TOKENS = 20
NEAREST = 5

Floats = NDArray[np.float64]


def summarize(state: State) -> Profile:
    """Everything that a finished run says."""
    about, tally, layout = state.about, state.tally, state.about.layout
    total = state.total()
    estimates, width = _estimates(state)
    shares = _Shares(tally.flow, layout)
    alike = {
        kind: likeness.distances(tally.alike, kind, sum(layout.heads[kind]))
        for kind in layout.kinds
    }
    places = {kind: _plane(apart) for kind, apart in alike.items()}
    heads = []
    for number, head in enumerate(layout):
        within = number - _first(layout, head.site.kind)
        heads.append(
            HeadProfile(
                HeadScores(head, total.scores(number), total.roles(number)),
                estimates[number],
                shares.of(number, "distances") if head.site.kind != "cross" else (),
                dict(zip(KINDS, shares.of(number, "kinds"), strict=True)),
                shares.of(number, "tenths"),
                shares.tokens(number),
                _examples(tally.examples, number, head),
                _nearest(alike[head.site.kind], within, layout, head.site.kind),
                places[head.site.kind][within] if tally.alike else None,
            )
        )
    clusters = int(state.sums.count.max(initial=0))
    return Profile(
        about.info,
        layout,
        tuple(heads),
        tally.texts,
        tally.windows,
        tally.tokens,
        clusters,
        about.grouped,
        about.simultaneous,
        width,
        alike,
        len(tally.alike),
        state.bad_count,
        tuple((bad.place, bad.reason) for bad in state.bad),
        tally.empty,
        tuple(name for run in state.runs for name in run.names),
        about.seed,
        tuple(_notes(state, clusters)),
        about.settings.weigh,
        _sink_rate(tally) if about.settings.weigh == "weights" else None,
        about.matching,
        about.model,
    )


def _sink_rate(tally: Tally) -> SinkRate | None:
    """None where no text has enough tokens."""
    texts, heads = tally.sink_texts, len(tally.sinks)
    if not texts:
        return None
    mean, half = int(tally.sinks.sum()) / texts, None
    if texts > 1:
        variance = max(tally.sink_squares / texts - mean**2, 0.0) / (texts - 1)
        half = half_width(texts - 1) * math.sqrt(variance) / heads
    shares = tuple((tally.sinks / texts).tolist())
    return SinkRate(mean / heads, half, shares, texts, SINK_LENGTH, SINK_THRESHOLD)


def _notes(state: State, clusters: int) -> list[str]:
    notes = []
    unit = "groups" if state.about.grouped else "texts"
    if clusters < FEW:
        notes.append(
            f"{clusters} {unit} only: intervals from fewer than {FEW} cover less than 95 %."
        )
    if state.bad_count:
        of = state.tally.texts + state.bad_count
        notes.append(f"{state.bad_count:,} of {of:,} texts could not be used.")
    if state.tally.empty:
        notes.append(
            f"{state.tally.empty:,} query rows have no key to attend to: they count nowhere."
        )
    if not state.finished:
        notes.append("The run over these texts is not finished.")
    return notes


def _estimates(state: State) -> tuple[list[dict[str, Estimate]], float | None]:
    """Every head's scores with intervals; and the width of simultaneous ones."""
    sums, about = state.sums, state.about
    mean, half, width = sums.mean(), sums.half(), None
    if state.bootstrap is not None:
        quantile = state.bootstrap.quantile(sums)
        width = None if math.isnan(quantile) else quantile
        half = quantile * sums.error()
        half[sums.count < ENOUGH] = np.nan
    rows = np.where(sums.b > 0, sums.b, np.nan)
    chance = state.tally.chances.value() / rows
    quartiles = state.spread.quantiles().reshape(3, *mean.shape)
    found = []
    for head in range(len(about.layout)):
        one = {}
        for column, (name, score) in enumerate(SCORES.items()):
            at = (head, column)
            if not sums.b[at]:
                one[name] = Estimate(None, None, None, 0, 0)
                continue
            most = 1.0 if score.unit == "share" else math.inf
            low, high = mean[at] - half[at], mean[at] + half[at]
            known = not math.isnan(half[at])
            middle = quartiles[:, *at]
            if score.unit == "tokens":
                middle = 2**middle - 1
            one[name] = Estimate(
                float(mean[at]),
                float(chance[at]),
                float(mean[at] / chance[at]) if chance[at] > 0 else None,
                int(sums.b[at]),
                int(sums.count[at]),
                float(max(low, 0.0)) if known else None,
                float(min(high, most)) if known else None,
                (float(middle[0]), float(middle[1]), float(middle[2])),
            )
        found.append(one)
    return found, width


class _Shares:
    """Shares of a head's weight, beside those of uniform attention in its layer."""

    def __init__(self, flow: Flow, layout: Layout) -> None:
        self._flow, self._heads = flow, len(layout)
        sites = {site: number for number, site in enumerate(layout.sites)}
        self._uniform = [self._heads + sites[head.site] for head in layout]
        self._texts = list(flow.strings)

    def of(self, head: int, what: str) -> tuple[Share, ...]:
        """By distance, kind or tenth."""
        table = getattr(self._flow, what)
        total = self._flow.tenths.sum(1)
        own, chance = (table[row] / max(total[row], 1) for row in (head, self._uniform[head]))
        return tuple(Share(float(a), float(b)) for a, b in zip(own, chance, strict=True))

    def tokens(self, head: int) -> tuple[tuple[str, Share], ...]:
        """The strings with the most weight; equal ones in the order of the alphabet."""
        weights = self._flow.weights[: len(self._texts)]
        total = self._flow.tenths.sum(1)
        own, uniform = weights[:, head], weights[:, self._uniform[head]]
        few = np.argsort(-own, kind="stable")[: 2 * TOP_TOKENS]
        order = sorted(few.tolist(), key=lambda n: (-own[n], self._texts[n]))
        row = self._uniform[head]
        return tuple(
            (self._texts[n], _share(own[n], total[head], uniform[n], total[row]))
            for n in order[:TOP_TOKENS]
            if own[n] > 0
        )


def _share(weight: int, total: int, uniform: int, of: int) -> Share:
    return Share(float(weight / max(total, 1)), float(uniform / max(of, 1)))


def _examples(examples: Examples, number: int, head: Head) -> dict[str, tuple[ExampleRow, ...]]:
    found = {}
    for role, name in enumerate(ROLES):
        rows = []
        for sort, title in enumerate(SORTS):
            for place in range(examples.ranks.shape[-1]):
                at = (sort, role, number, place)
                if examples.ranks[at] < 0:
                    continue
                shown = examples.shown[int(examples.texts[at])]
                row = int(examples.rows[at])
                rows.append(
                    ExampleRow(
                        title,
                        float(examples.values[at]),
                        shown.number,
                        shown.place,
                        shown.window,
                        shown.text,
                        row,
                        shown.tokens[head.site.kind, row],
                    )
                )
        if rows:
            found[name] = tuple(rows)
    return found


def _first(layout: Layout, kind: SiteKind) -> int:
    """The number of the first head of a kind."""
    kinds = layout.kinds
    return sum(sum(layout.heads[before]) for before in kinds[: kinds.index(kind)])


def _plane(apart: Floats) -> list[tuple[float, float] | None]:
    if np.isnan(apart).any() or len(apart) < 2:
        return [None] * len(apart)
    return [(float(x), float(y)) for x, y in likeness.plane(apart)]


def _nearest(
    apart: Floats, within: int, layout: Layout, kind: SiteKind
) -> tuple[tuple[Head, float], ...]:
    """The heads most alike, the nearest first."""
    heads = [head for head in layout if head.site.kind == kind]
    return tuple((heads[n], far) for n, far in likeness.nearest(apart, within, NEAREST))
