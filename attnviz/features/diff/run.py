"""Captures of the same texts in two runs, one pair after the other."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.trials import repeated, same_as
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.provenance import SourceInfo
from attnviz.core.result import fingerprint
from attnviz.core.scores import HeadScores
from attnviz.core.tokens import Sides, Tokens
from attnviz.errors import InputError
from attnviz.features.diff import Alignment
from attnviz.features.diff.result import Diff, Distance, FigureChange, HeadChange
from attnviz.scoring.merged import merge_words
from attnviz.scoring.observe import score_capture
from attnviz.scoring.select import describe
from attnviz.statistics.clusters import LEAST, half_widths
from attnviz.statistics.coverage import holds
from attnviz.statistics.histogram import none_if_nan
from attnviz.statistics.order import ROUNDING, Between, Medians, medians, per_text, too_few

if TYPE_CHECKING:
    from attnviz.features.diff.moved import Movement

Maps = NDArray[np.float64]


def distributions(capture: Capture, site: Site) -> Maps:
    """Return the maps of a layer, [H, T, S], rows that are not weights divided by their sums."""
    maps = capture.maps[site].astype(np.float64)
    if not np.isfinite(maps).all():
        raise InputError(f"{capture.source.model} gives weights that are not finite")
    if capture.quantity == "weights":
        return maps
    sums = maps.sum(-1, keepdims=True)
    return maps / np.where(sums > 0, sums, 1.0)


def aligned(
    first: Capture, second: Capture, site: Site, align: Alignment
) -> tuple[Maps, Maps, tuple[Sides, Sides]]:
    """Return the maps of a layer in both captures, row by row and key by key the same.

    Returns: two [H, T, S], and the tokens of each on both axes.
    """
    maps = [distributions(capture, site) for capture in (first, second)]
    sides = [capture.inputs.sides[site.kind] for capture in (first, second)]
    if align == "word":
        merged = [merge_words(*pair) for pair in zip(maps, sides, strict=True)]
        maps, sides = [m.astype(np.float64) for m, _ in merged], [s for _, s in merged]
    for a, b in ((sides[0].queries, sides[1].queries), (sides[0].keys, sides[1].keys)):
        _check_tokens(a, b, align)
    return maps[0], maps[1], (sides[0], sides[1])


def masked(
    first: Capture, second: Capture, site: Site, align: Alignment
) -> NDArray[np.bool_] | None:
    """Bool [H or 1, T, S]: keys that no query may attend to in either run; None for none."""
    blocked = []
    for capture in (first, second):
        reach, sides = capture.reach.get(site), capture.inputs.sides[site.kind]
        if reach is None:
            return None
        allowed = reach.allowed(len(sides.queries), len(sides.keys))
        if align == "word":
            allowed = merge_words(allowed.astype(np.float64), sides)[0] > 0
        blocked.append(~allowed)
    mask: NDArray[np.bool_] = blocked[0] & blocked[1]
    return mask if mask.any() else None


def _check_tokens(first: Tokens, second: Tokens, align: Alignment) -> None:
    """InputError where two sequences cannot be aligned."""
    unit = "words" if align == "word" else "tokens"
    if align == "token":
        for position, (a, b) in enumerate(zip(first.texts, second.texts, strict=False)):
            if a != b:
                raise InputError(
                    "the tokens differ from position {} on: {!r} and {!r}",
                    position,
                    a,
                    b,
                    remedy="choose how rows are matched with {align}: position or word",
                    align=...,
                )
    if len(first) != len(second):
        raise InputError(f"{len(first)} {unit} and {len(second)} cannot be aligned")


def distances(p: Maps, q: Maps) -> Maps:
    """Give Jensen-Shannon distance of every row, [H, T]: √ of the divergence in bits, from 0 to 1.

    Lin 1991; its root is a metric (Endres & Schindelin 2003). What a row lacks to 1 (a learned
    sink's part) counts as one more key. NaN for rows without any weight in both.
    """
    empty = ~(p.any(-1) | q.any(-1))
    p, q = (np.concatenate([m, np.maximum(1 - m.sum(-1, keepdims=True), 0)], -1) for m in (p, q))
    p, q = (m / m.sum(-1, keepdims=True) for m in (p, q))
    divergence = _entropy((p + q) / 2) - (_entropy(p) + _entropy(q)) / 2
    result: Maps = np.sqrt(np.clip(divergence, 0, 1))
    result[(p == q).all(-1)] = 0.0  # not the root of a rounding error
    result[empty] = np.nan
    return result


def _entropy(p: NDArray[Any]) -> NDArray[Any]:
    """In bits, [..., S] -> [...]."""
    logs = np.log2(p, where=p > 0, out=np.zeros_like(p))
    return -(p * logs).sum(-1)


Rows = dict[Head, dict[str, list[tuple[float, int]]]]
"""Of every head and score, text by text: the sum over rows, and how many."""


@dataclass
class _Far:
    """The distances of one head so far."""

    total: float = 0.0
    rows: int = 0
    largest: float = -1.0
    text: int = 0
    row: int = 0
    token: str = ""

    def add(self, distances: Maps, number: int, sides: Sides) -> None:
        """Take in the distances [T] of a text."""
        finite = ~np.isnan(distances)
        if not finite.any():
            return
        self.total += float(distances[finite].sum())
        self.rows += int(finite.sum())
        row = int(np.nanargmax(distances))
        if distances[row] > self.largest:
            self.largest, self.text, self.row = float(distances[row]), number, row
            self.token = sides.queries.texts[row]

    def distance(self) -> Distance | None:
        """None where no row was compared."""
        if not self.rows:
            return None
        mean = self.total / self.rows
        return Distance(mean, self.largest, self.text, self.row, self.token, self.rows)


@dataclass
class _ScoredRun:
    """Scores and roles of one of the two runs."""

    scores: Rows = field(default_factory=dict)
    roles: dict[Head, dict[str, int]] = field(default_factory=dict)

    def add(self, heads: Iterable[HeadScores]) -> None:
        """Take in a text."""
        for head in heads:
            of_head = self.scores.setdefault(head.head, {})
            for name, score in head.scores.items():
                of_head.setdefault(name, []).append(((score.mean or 0.0) * score.rows, score.rows))
            counts = self.roles.setdefault(head.head, {})
            for role in head.roles:
                counts[role.name] = counts.get(role.name, 0) + 1

    def has(self, head: Head, texts: int) -> set[str]:
        """Return the roles of a head in most texts."""
        return {name for name, count in self.roles.get(head, {}).items() if 2 * count > texts}


def compare(
    pairs: Iterable[tuple[Capture, Capture]],
    align: Alignment,
    names: tuple[str, str] | None = None,
    movement: Movement | None = None,
) -> Diff:
    """Return what differs between two runs over the same texts; ``movement``: of two models."""
    far: dict[Head, _Far] = {}
    before, after = _ScoredRun(), _ScoredRun()
    layout: Layout | None = None
    sources: tuple[SourceInfo, ...] = ()
    texts, sides, later_sides = 0, dict[str, Sides](), dict[str, Sides]()
    copies, seen = 0, dict[Hashable, None]()
    first, maps = dict[Head, Maps](), dict[Head, Maps]()
    blocked = dict[Head, NDArray[np.bool_]]()
    found_names = names
    for earlier, later in pairs:
        _check(earlier, later)
        words = same_as(earlier.inputs), same_as(later.inputs)
        if None not in words and words in seen:
            copies += 1
            continue
        seen[words] = None
        layout, sources = earlier.layout, (earlier.source, later.source)
        means = dict[Head, float]()
        if found_names is None:
            found_names = earlier.source.model, later.source.model
        for site in earlier.maps:
            p, q, pair = aligned(earlier, later, site, align)
            sides[site.kind], later_sides[site.kind] = pair
            mask = None if texts else masked(earlier, later, site, align)
            for number, (index, row) in enumerate(
                zip(earlier.indices(site), distances(p, q), strict=True)
            ):
                head = Head(site, index)
                far.setdefault(head, _Far()).add(row, texts, pair[0])
                if not np.isnan(row).all():
                    means[head] = float(np.nanmean(row))
                if not texts:
                    first[head], maps[head] = p[number], q[number] - p[number]
                    if mask is not None:
                        blocked[head] = mask[number % len(mask)]
        before.add(score_capture(earlier).result())
        after.add(score_capture(later).result())
        if movement is not None:
            movement.add(earlier.inputs, later.inputs, means)
        texts += 1
    if layout is None or found_names is None:
        raise InputError("no text to compare; give at least one")
    changes = _changes(before.scores, after.scores, tuple(far))
    moved, notes = dict[Head, tuple[FigureChange, ...]](), list[str]()
    if movement is not None and texts > 1:
        moved, notes = movement.judged()
    heads = [
        HeadChange(
            layout.name(head),
            sums.distance(),
            tuple(changes.get(head, ())),
            tuple(sorted(after.has(head, texts) - before.has(head, texts))),
            tuple(sorted(before.has(head, texts) - after.has(head, texts))),
            moved.get(head, ()),
        )
        for head, sums in far.items()
    ]
    heads.sort(key=lambda head: -head.largest())
    report = Diff(
        source=sources[0],
        layout=layout,
        other=sources[1],
        before=found_names[0],
        after=found_names[1],
        kind="maps",
        heads=tuple(heads),
        align=align,
        texts=texts,
        corpus=fingerprint(seen) if texts > 1 else "",
        notes=(*repeated(copies), *_notes(texts, sum(map(len, changes.values()))), *notes),
    )
    if texts > 1:
        return report
    return replace(report, sides=sides, others=later_sides, first=first, maps=maps, masked=blocked)


def _changes(before: Rows, after: Rows, heads: Sequence[Head]) -> dict[Head, list[FigureChange]]:
    """Of every head and score that has rows in both runs; all judged together."""
    questions = [
        (head, name)
        for head in heads
        for name in before.get(head, {})
        if name in after.get(head, {})
        and all(sum(rows for _, rows in run[head][name]) for run in (before, after))
    ]
    if not questions:
        return {}
    runs = []
    for run in (before, after):
        values = np.array([run[head][name] for head, name in questions])  # [K, texts, 2]
        runs.append((values[..., 0].T, values[..., 1].T))
    means = [a.sum(0) / b.sum(0) for a, b in runs]
    typical, intervals = paired(runs, means)
    ends = (intervals.low, intervals.high, typical.center, typical.joint_low, typical.joint_high,
            typical.detectable)  # fmt: skip
    changes: dict[Head, list[FigureChange]] = {}
    for n, (head, name) in enumerate(questions):
        before_, after_ = (float(run[n]) for run in means)
        changes.setdefault(head, []).append(
            FigureChange(
                name, before_, after_, after_ - before_, *(none_if_nan(end[n]) for end in ends)
            )
        )
    return changes


Run = tuple[Maps, Maps]
"""Sums and numbers of rows of every text, [texts, K] each."""


def paired(runs: Sequence[Run], means: Sequence[Maps]) -> tuple[Medians, Between]:
    """Judge K changes over the same texts: in the typical text, and of the means Σa / Σb.

    The typical text's is the median of the differences of its own means. That of both means has,
    by the linearization of ratios (Cochran 1977, Sampling Techniques, chapter 6), the variance
    G/(G-1) · Σ u² with u_g = (a'_g - p' b'_g) / Σb' - (a_g - p b_g) / Σb over G texts: what both
    runs share in a text cancels.

    ``means`` [K] of both.
    """
    first, second = (per_text(a, b.astype(np.int64)) for a, b in runs)
    rounding = ROUNDING * np.maximum(*np.abs(means))
    typical = medians(second - first, rounding=rounding)
    terms = [(a - p * b) / b.sum(0) for (a, b), p in zip(runs, means, strict=True)]
    count = ((runs[0][1] > 0) | (runs[1][1] > 0)).sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        error = np.sqrt(count / (count - 1) * ((terms[1] - terms[0]) ** 2).sum(0))
    enough = (count >= LEAST) & (error > rounding)
    half = half_widths(np.where(enough, count - 1, np.nan)) * error
    change = means[1] - means[0]
    return typical, Between(change, change - half, change + half)


def _heads_of(capture: Capture) -> str:
    """Which heads a run has, and of what kind."""
    kinds = " and ".join(capture.layout.kinds)
    return f"{capture.source.model} has {kinds} heads ({describe(capture.layout)})"


def _check(first: Capture, second: Capture) -> None:
    """InputError where two captures have nothing to compare."""
    if first.layout != second.layout:
        raise InputError(
            f"{_heads_of(first)}, and {_heads_of(second)}; only the same heads can be compared"
        )
    if first.quantity != second.quantity:
        raise InputError(f"one capture holds {first.quantity}, the other {second.quantity}")
    if first.maps.keys() != second.maps.keys() or first.kept != second.kept:
        raise InputError("the two captures keep other heads; capture the same ones")


def _notes(texts: int, questions: int) -> Iterable[str]:
    if texts == 1:
        yield "One text: a difference of scores has no interval."
        return
    if warning := too_few(texts, questions, "heads and scores"):
        yield warning
        return
    if not holds("diff: all at once", texts):
        return
    yield (
        "Intervals of changes are 95 % of the typical text (the median), for all "
        f"{questions:,} heads and scores together; a score that few texts have gets none."
    )
