"""From sums to what is said: estimates, shares, examples, likeness."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from attnviz.core.arrays import Floats
from attnviz.core.heads import Head, Layout
from attnviz.core.provenance import own_name
from attnviz.core.result import fingerprint
from attnviz.core.scores import Estimate, HeadScores, SinkRate
from attnviz.drawing.labels import counted
from attnviz.features.profile import likeness
from attnviz.features.profile.parts import Distribution
from attnviz.features.profile.result import ExampleRow, HeadProfile, Profile, Share
from attnviz.features.profile.sampled.described import distribution
from attnviz.features.profile.sampled.sample import TokenShares
from attnviz.features.profile.stability import Decisions, decide, first_of, redrawn
from attnviz.features.profile.state import RESAMPLES, State
from attnviz.features.profile.tally import SORTS, UNIT, Examples, Tally, WeightFlow
from attnviz.features.profile.work import LONGEST
from attnviz.scoring.axes import KINDS
from attnviz.scoring.plugins import user_defined
from attnviz.scoring.roles import ROLES, SINK_LENGTH, SINK_THRESHOLD
from attnviz.scoring.scores import SCORES
from attnviz.statistics.clusters import factor, few_groups, half_width
from attnviz.statistics.coverage import word

TOP_TOKENS = 20
NEAREST = 5


def summarize(state: State, *, stability: bool = False) -> Profile:
    """Everything that a finished run says; with ``stability`` also what stays when drawn anew."""
    about, tally, layout = state.about, state.tally, state.about.layout
    total = state.total()
    copies = factor(list(state.copies.values()))
    estimates, decisions, widths = _estimates(state, copies)
    shares = _Shares(tally.flow, layout)
    compared = bool(tally.alike)
    alike, errors, related = {}, {}, {}
    for kind in layout.kinds if compared else ():
        alike[kind], errors[kind] = likeness.distances(tally.alike, kind, sum(layout.heads[kind]))
        related[kind] = likeness.related(alike[kind], errors[kind], len(tally.alike))
    places = {kind: _plane(distances) for kind, distances in alike.items()}
    stays = redrawn(state) if stability else [None] * len(layout)
    by_kind = {kind: [head for head in layout if head.site.kind == kind] for kind in layout.kinds}
    heads = []
    for number, head in enumerate(layout):
        kind = head.site.kind
        within = number - first_of(layout, kind)
        sure = total.roles(number, decisions.unsure(number))
        sure_names = {role.name for role in sure}
        nearest: tuple[tuple[Head, float], ...] = ()
        if compared:
            near = likeness.nearest(alike[kind], within, NEAREST, related[kind])
            nearest = tuple(
                (by_kind[kind][n], likeness.digits(far, float(errors[kind][within, n])))
                for n, far in near
            )
        heads.append(
            HeadProfile(
                HeadScores(head, total.scores(number), sure),
                estimates[number],
                shares.of(number, "distances") if head.site.kind != "cross" else (),
                dict(zip(KINDS, shares.of(number, "kinds"), strict=True)),
                shares.of(number, "tenths"),
                shares.tokens(number),
                _examples(tally.examples, number, head),
                nearest,
                places[kind][within] if compared else None,
                tuple(role for role in total.roles(number) if role.name not in sure_names),
                stays[number],
            )
        )
    clusters = int(state.sums.count.max(initial=0))
    return Profile(
        source=about.info,
        layout=layout,
        identity=about.model,
        texts=tally.texts,
        corpus=fingerprint(sorted(state.copies.items())) if tally.texts > 1 else "",
        seed=about.seed,
        partial=not state.finished,
        notes=tuple(_notes(state, clusters, copies)),
        heads=tuple(heads),
        windows=tally.windows,
        tokens=tally.tokens,
        clusters=clusters,
        grouped=about.grouped,
        simultaneous=about.simultaneous,
        width=widths[0],
        likeness={
            kind: likeness.known(alike[kind], errors[kind]) if compared else ()
            for kind in layout.kinds
        },
        alike_texts=len(tally.alike),
        bad_count=state.bad_count,
        bad=tuple((own_name(bad.place), bad.reason) for bad in state.bad),
        empty_rows=tally.empty,
        files=tuple(own_name(name) for run in state.runs for name in run.names),
        quantity=about.settings.quantity,
        sink_rate=_sink_rate(tally) if about.settings.quantity == "weights" else None,
        matching=about.matching,
        rare_width=widths[1],
        copies=state.copies.total() - len(state.copies),
        questions=decisions.questions,
        resamples=RESAMPLES if stability else 0,
        distribution=_distribution(state, heads, shares),
        user_defined=user_defined(),
    )


def _distribution(
    state: State, heads: Sequence[HeadProfile], shares: _Shares
) -> Distribution | None:
    """Of the selected heads; None where none are, or no row counts."""
    sums = state.tally.rows
    if sums is None or not len(sums.sample):
        return None
    numbers = {head: number for number, head in enumerate(state.about.layout)}
    chosen = [heads[numbers[head]] for head in sums.heads]
    roles = [(*profile.scores.roles, *profile.undecided) for profile in chosen]
    return distribution(sums, roles, [shares.strings(numbers[h]) for h in sums.heads])


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


def _windows(state: State) -> str:
    """How long texts were cut."""
    settings = state.about.settings
    longest = settings.window or LONGEST
    steps = (
        "which do not overlap"
        if settings.stride is None or settings.stride >= longest
        else f"one about every {settings.stride:,} tokens: successive windows share about "
        f"{longest - settings.stride:,}, whose rows count in both"
    )
    return (
        f"{counted(state.tally.texts, 'text')} ran in {state.tally.windows:,} windows of at most "
        f"{longest:,} tokens, {steps}."
    )


def _notes(state: State, clusters: int, copies: float) -> list[str]:
    notes = []
    unit = "groups" if state.about.grouped else "texts"
    if repeated := state.copies.total() - len(state.copies):
        notes.append(
            f"{repeated:,} of {state.copies.total():,} {unit} repeat another one word for word: "
            "identical ones count as one."
        )
    warning = few_groups(clusters / copies, unit)
    kind: Literal["each", "simultaneous"] = "simultaneous" if state.about.simultaneous else "each"
    notes += filter(None, [warning or word(kind, clusters / copies, unit)])
    if state.bad_count:
        of = state.tally.texts + state.bad_count
        notes.insert(0, f"{state.bad_count:,} of {counted(of, 'text')} could not be used.")
    if state.tally.windows > state.tally.texts:
        notes.append(_windows(state))
    if state.tally.empty:
        notes.append(
            f"{state.tally.empty:,} query rows have no key to attend to: they count nowhere."
        )
    if likeness.too_many(state.about.layout):
        notes.append(
            f"Heads are not compared with each other: there are more than {likeness.MOST:,} of a "
            "kind."
        )
    if not state.finished:
        notes.append("The run over these texts is not finished.")
    return notes


def _estimates(
    state: State, copies: float
) -> tuple[list[dict[str, Estimate]], Decisions, tuple[float | None, float | None]]:
    """Every head's scores with intervals, which are sure, and the widths of simultaneous ones."""
    sums, means, about = state.sums, state.means, state.about
    mean, error, half = sums.mean(), sums.error(copies), sums.half(copies=copies)
    macro, macro_half = means.mean(), means.half(copies=copies)
    rows = np.where(sums.b > 0, sums.b, np.nan)
    chance = state.tally.chances.value() / rows
    width = state.bootstrap.widths(sums, copies=copies) if about.simultaneous else None
    if width is not None:
        half = width * error
    decisions = decide(mean, error, chance, freedom=sums.freedom(copies), width=width)
    quartiles = state.spread.quantiles().reshape(3, *mean.shape)
    estimates = []
    for head in range(len(about.layout)):
        of_head = {}
        for column, (name, score) in enumerate(SCORES.items()):
            cell = (head, column)
            if not sums.b[cell]:
                of_head[name] = Estimate(None, None, None, 0, 0)
                continue
            largest = 1.0 if score.unit == "share" else math.inf
            middle, detectable = quartiles[:, *cell], float(decisions.detectable[cell])
            if score.unit == "tokens":
                middle = 2**middle - 1
            of_head[name] = Estimate(
                float(mean[cell]),
                float(chance[cell]),
                float(mean[cell] / chance[cell]) if chance[cell] > 0 else None,
                int(sums.b[cell]),
                int(sums.count[cell]),
                *_ends(mean[cell], half[cell], largest),
                (float(middle[0]), float(middle[1]), float(middle[2])),
                float(macro[cell]),
                *_ends(macro[cell], macro_half[cell], largest),
                detectable if detectable <= largest else None,  # NaN where none is known
            )
        estimates.append(of_head)
    common, rare = state.bootstrap.families(sums, copies)
    return estimates, decisions, (_width(width, common), _width(width, rare))


def _ends(mean: float, half: float, largest: float) -> tuple[float | None, float | None]:
    """Return the ends of an interval inside what a score can be; None where there is none."""
    if math.isnan(half):
        return None, None
    return float(max(mean - half, 0.0)), float(min(mean + half, largest))


def _width(width: Floats | None, part: NDArray[np.bool_]) -> float | None:
    """Return that of one family; None where it has none."""
    if width is None or not part.any() or np.isnan(width[part]).any():
        return None
    return float(width[part].max())


class _Shares:
    """Shares of a head's weight, beside those of uniform attention in its layer."""

    def __init__(self, flow: WeightFlow, layout: Layout) -> None:
        self._flow, self._heads = flow, len(layout)
        sites = {site: number for number, site in enumerate(layout.sites)}
        self._uniform = [self._heads + sites[head.site] for head in layout]
        self._texts = list(flow.strings)

    def of(self, head: int, axis: str) -> tuple[Share, ...]:
        """By distance, kind or tenth."""
        table = getattr(self._flow, axis)
        total = self._flow.tenths.sum(1)
        weight, chance = (table[row] / max(total[row], 1) for row in (head, self._uniform[head]))
        return tuple(Share(float(a), float(b)) for a, b in zip(weight, chance, strict=True))

    def strings(self, head: int) -> TokenShares:
        """Every string of a head."""
        weights = self._flow.weights[: len(self._texts)]
        total = self._flow.tenths.sum(1)
        row = self._uniform[head]
        return TokenShares(
            self._texts,
            weights[:, head] / max(total[head], 1),
            weights[:, row] / max(total[row], 1),
            weights[:, row] / UNIT,
        )

    def tokens(self, head: int) -> tuple[tuple[str, Share], ...]:
        """Return the strings with the most weight; equal ones in the order of the alphabet."""
        shares, weight = self.strings(head), self._flow.weights[: len(self._texts), head]
        heaviest = np.argsort(-weight, kind="stable")[: 2 * TOP_TOKENS]
        order = sorted(heaviest.tolist(), key=lambda n: (-weight[n], self._texts[n]))
        return tuple(
            (self._texts[n], Share(float(shares.weight[n]), float(shares.uniform[n])))
            for n in order[:TOP_TOKENS]
            if weight[n] > 0
        )


def _examples(examples: Examples, number: int, head: Head) -> dict[str, tuple[ExampleRow, ...]]:
    examples_by_role = {}
    for role, name in enumerate(ROLES):
        rows = []
        for sort, title in enumerate(SORTS):
            for rank in range(examples.ranks.shape[-1]):
                cell = (sort, role, number, rank)
                if examples.ranks[cell] < 0:
                    continue
                text = examples.shown[int(examples.texts[cell])]
                row = int(examples.rows[cell])
                rows.append(
                    ExampleRow(
                        title,
                        float(examples.values[cell]),
                        text.number,
                        own_name(text.place),
                        text.window,
                        text.text,
                        row,
                        text.tokens[head.site.kind, row],
                    )
                )
        if rows:
            examples_by_role[name] = tuple(rows)
    return examples_by_role


def _plane(distances: Floats) -> list[tuple[float, float] | None]:
    if np.isnan(distances).any() or len(distances) < 2:
        return [None] * len(distances)
    return [(float(x), float(y)) for x, y in likeness.plane(distances)]
