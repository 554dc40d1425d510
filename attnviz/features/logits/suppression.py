"""Why down: is a canceller copy suppression, and what do others make up for without a writer?

A head does copy suppression where it finds a token that earlier layers already predict, and lowers
that very token (McDougall et al. 2023, arXiv:2310.04625). So two things are tried of a canceller,
on texts: what it *reads* most (weight times the norm of what it moves) is a token that the stream
entering its layer, read as if it were the last (the lens), has among its first words, and its OV
circuit has that token among those that it lowers most; and its push *goes* when what the writers
below it hand on at the query is replaced by its mean over the other texts. Either has a control on
the same texts: their other tokens, and as many other heads below it, drawn at random.

The same replacement of one writer says what repairs itself (McGrath et al. 2023, arXiv:2307.15771):
with every scale as it was, what each part adds changes, and what the changed scales of
normalizations over the stream add comes on top, so that all of it is the change of the model's own
logit.

Notation in shapes: n texts, P parts of the sum, V vocabulary.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from attnviz.attention.contributions import Carrying, Direction, direction, words
from attnviz.captures.trials import labels_of, predicted
from attnviz.core import arrays
from attnviz.core.arrays import Floats, exact, to_numpy
from attnviz.core.heads import Head, Site
from attnviz.core.prompt import Inputs
from attnviz.core.result import Interval
from attnviz.core.source import Donor, ForwardRequest, Output, Source, Start
from attnviz.features.logits import split
from attnviz.features.logits.result import JUDGED, LogitPart, Push, Repair, Suppression
from attnviz.interventions.sweep import grouped
from attnviz.statistics.histogram import none_if_nan
from attnviz.statistics.order import share_between
from attnviz.statistics.ratios import fieller, ratios

MOST = 8
"""Cancellers, and writers, that are looked into: the largest."""
FIRST = 10
"""A token is predicted, or lowered, where it is among so many first words, and of a small
vocabulary among a hundredth of it."""
ENOUGH = 0.5
"""Least share of the texts, and of the push, for either test to hold."""
DRAWS = 4
"""Random groups of heads beside the writers, in each text."""
AT_ONCE = 16
"""Runs of a text in one pass."""

Filled = Mapping[Head, Floats]
"""What stands for heads' outputs at the query in one run, [d_v] each."""


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A text, and whose logit is split where."""

    inputs: Inputs
    position: int
    token: int  # its id; ``against`` that of the token whose logit is taken off
    against: int | None


@dataclass(frozen=True, slots=True, eq=False)
class _Run:
    """One run of a text."""

    output: Output
    watch: split.StreamWatch
    toward: Direction
    carrying: Carrying
    logit: float  # the model's own, before any cap

    def values(self, source: Source, scales: _Run | None = None) -> Floats:
        """Return what every part adds, [P], by the scales of this run or of another one."""
        of = scales or self
        parts, _ = split.split(source, self.output, self.watch, of.toward, of.carrying)
        return np.array([part.value for part in parts], np.float64)

    def of(self, source: Source, head: Head, scales: _Run) -> float:
        """Return what one head adds, by the scales of another run."""
        vector, carrying = scales.toward.vector, scales.carrying
        heads, *_ = split.attended(source, head.site, self.watch, vector, carrying)
        return heads[head.index].value


def explained(
    source: Source, cases: Sequence[Case], pushes: Sequence[Push], parts: Sequence[LogitPart]
) -> tuple[Push, ...]:
    """Say of the largest cancellers why, and of the largest writers what they leave behind.

    ``parts``: of any text, which all texts have alike.
    """
    heads = {source.layout.name(head): head for head in source.layout}
    ranked = sorted(pushes, key=lambda push: -abs(push.mean.value or 0.0))
    raising, cancellers = (
        [heads[push.part] for push in ranked if push.part in heads and push.verdict == verdict]
        for verdict in ("writer", "canceller")
    )
    tried = [] if labels_of(source) is not None or source.start_kind is None else cancellers[:MOST]
    if source.no_gates or not (raising or tried):
        return tuple(pushes)
    judged = [n for n, part in enumerate(parts) if part.kind in JUDGED]
    places = {
        heads[push.part]: n for push, n in zip(pushes, judged, strict=True) if push.part in heads
    }
    study, name = _Study(source, cases, places, raising, tried), source.layout.name
    repairs = {name(head): study.repair(head, pushes, judged) for head in raising[:MOST]}
    reasons = {}
    for number, head in enumerate(tried):
        writers = tuple(name(writer) for writer in raising if writer.layer < head.layer)
        reasons[name(head)] = study.suppression(number, head, writers)
    return tuple(replace(p, why=reasons.get(p.part), repair=repairs.get(p.part)) for p in pushes)


class _Study:
    """What parts of the sum add in all texts: as they are, and with outputs replaced."""

    def __init__(
        self,
        source: Source,
        cases: Sequence[Case],
        places: Mapping[Head, int],
        writers: Sequence[Head],
        tried: Sequence[Head],
    ) -> None:
        self._places, self._repaired = places, list(writers[:MOST])
        self._below = {head: [h for h in writers if h.layer < head.layer] for head in tried}
        self._beside = {h: [x for x in source.layout if x.layer < h.layer and x not in writers]
                        for h in tried}  # fmt: skip
        outputs = []
        for case in cases:
            run = _runs(source, case, [{}])[0]
            outputs.append({head: to_numpy(run.watch.output(head)) for head in source.layout})
        sums = {head: np.sum([z[head] for z in outputs], 0) for head in source.layout}
        base, held, scaled, changes, remaining, read = [], [], [], [], [], []
        for number, (case, z) in enumerate(zip(cases, outputs, strict=True)):
            sets: list[list[Head]] = [[head] for head in self._repaired]
            ends: list[int | None] = [None] * len(sets)
            for head in tried:
                sets += [self._below[head], *self._drawn(number, head)]
                ends += [head.layer + 1] * (1 + DRAWS)
            divisor = max(len(cases) - 1, 1)
            filled = [{h: (sums[h] - z[h]) / divisor for h in group} for group in sets]
            plain = _runs(source, case, [{}])[0]
            runs = _runs(source, case, filled, plain, ends)
            repaired = [runs.pop(0) for _ in self._repaired]
            totals = [run.values(source).sum() for run in repaired]
            for total, run in zip(totals, repaired, strict=True):
                split.check_closed(source, float(total), run.logit)
            base.append(plain.values(source))
            held.append([run.values(source, plain) for run in repaired])
            scaled.append(totals - np.sum(held[-1], -1))
            changes.append([run.logit - plain.logit for run in repaired])
            group_size = 1 + DRAWS
            groups = (runs[n : n + group_size] for n in range(0, len(runs), group_size))
            remaining.append([[run.of(source, head, plain) for run in group]
                              for head, group in zip(tried, groups, strict=True)])  # fmt: skip
            read.append(_readings(source, case, plain, tried))
        self._base, self._held = np.array(base), np.array(held)  # [n, P], [n, writers, P]
        self._scaled, self._changes = np.array(scaled), np.array(changes)  # [n, writers]
        # [n, cancellers, 1 + DRAWS] and [n, cancellers, 4]
        self._left, self._read = np.array(remaining), np.array(read)

    def _drawn(self, text: int, head: Head) -> list[list[Head]]:
        """Draw as many other heads below a canceller as there are writers, if there are so many."""
        draw, candidates = random.Random(f"{text}/{head}"), self._beside[head]
        count = min(len(self._below[head]), len(candidates))
        return [draw.sample(candidates, count) for _ in range(DRAWS)]

    def repair(self, head: Head, pushes: Sequence[Push], judged: Sequence[int]) -> Repair:
        """Say what changes without a writer; ``judged``: the places of the pushes' parts."""
        run, index = self._repaired.index(head), self._places[head]
        changes = self._held[:, run] - self._base
        direct = changes[:, index].copy()
        changes[:, index] = 0
        heads = [n for n, push in zip(judged, pushes, strict=True) if push.kind == "head"]
        mlps = [n for n in judged if n not in heads]
        scales = self._scaled[:, run] + np.delete(changes, judged, 1).sum(1)
        total, by_kind = self._changes[:, run], [changes[:, of].sum(1) for of in (heads, mlps)]
        five = [total, direct, *by_kind, scales]
        sizes, names = abs(self._base).sum(1)[:, None], list(map(str, range(len(changes))))
        columns = np.column_stack([*five, changes])
        estimates = ratios(columns, np.ones((len(changes), 1)), names, size=sizes, joint=False)
        ends = zip(estimates.value, estimates.low, estimates.high, strict=True)
        values = [Interval(float(v), none_if_nan(low), none_if_nan(high)) for v, low, high in ends]
        changed = zip(pushes, judged, strict=True)
        later = [(p, n) for p, n in changed if (p.layer, p.kind != "head") > (head.layer, False)]
        by_part = {push.part: values[5 + n] for push, n in later}
        lost, by_itself, by_heads, by_mlps, by_scales = values[:5]
        remainder = float((total - sum(five[1:])).mean())
        return Repair(lost, by_itself, by_heads, by_mlps, by_scales, remainder, by_part)

    def suppression(self, number: int, head: Head, writers: tuple[str, ...]) -> Suppression:
        """Try a canceller: what it reads and lowers where it pushes down, and whether that goes."""
        push, read = self._base[:, self._places[head]], self._read[:, number]
        read = read[push < 0]
        predicted, predicted_null, lowered, lowered_null = (
            Interval(*share_between(float(hits), len(read))) for hits in read.sum(0)
        )
        controls, surely = self._drawn(0, head)[0], False
        removed = control = Interval(None)
        if writers and controls:
            remaining, at_random = self._left[:, number, 0], self._left[:, number, 1:].mean(1)
            removed, control = _gone(remaining, push), _gone(at_random, push)
            surely = fieller(at_random - remaining, push)[0] > 0
        holds = {
            "reading": _above(predicted, predicted_null),
            "lowering": _above(lowered, lowered_null),
            "path": (removed.value or 0) >= ENOUGH and surely,
        }
        fails = tuple(name for name, met in holds.items() if not met)
        return Suppression(
            len(read), predicted, predicted_null, lowered, lowered_null, removed, control, writers,
            len(controls), fails,
        )  # fmt: skip


def _above(share: Interval, null: Interval) -> bool:
    """Whether something is so in most texts, and surely more often than by chance."""
    return (share.value or 0) >= ENOUGH and (share.low or 0) > (null.high or 0)


def _gone(remaining: Floats, push: Floats) -> Interval:
    """How much of a push is gone where so much is left, in all texts together."""
    low, high = fieller(remaining, push)
    share = float(remaining.sum() / push.sum())
    return Interval(1 - share, none_if_nan(1 - high), none_if_nan(1 - low))


def _runs(
    source: Source,
    case: Case,
    replaced: Sequence[Filled],
    base: _Run | None = None,
    ends: Sequence[int | None] = (None,),
) -> list[_Run]:
    """Run a text once for each set of outputs [d_v] that stand for heads' own at the query.

    ``base``: the run as it is, from which they go on at the first layer that they change; ``ends``:
    the layer before which each ends, of which only what heads add is then looked at.
    """
    cap = bool(source.readout().cap)
    kinds = {head.site.kind for run in replaced for head in run}
    late = base is not None and kinds <= {source.start_kind}
    spans = [
        (min((head.layer for head in run), default=None) if late else 0, end if late else None)
        for run, end in zip(replaced, ends, strict=True)
    ]
    runs: dict[int, _Run] = {}
    for (first, end), numbers in grouped(spans, AT_ONCE):
        if first is None or (end is not None and end <= first):  # nothing is changed up to there
            assert base is not None
            runs |= dict.fromkeys(numbers, base)
            continue
        group = [replaced[number] for number in numbers]
        watches = [
            split.StreamWatch(case.position, item, {h: arrays.array(z) for h, z in run.items()})
            for item, run in enumerate(group)
        ]
        start = None if base is None or not late else Start(first, base.output.states[first], end)
        request = ForwardRequest(
            donors=_donors(source, case, group), hidden=cap and end is None,
            logits=not cap and end is None, logits_at=None if cap else (case.position,),
            states=True, mlps=True, start=start,
        )  # fmt: skip
        output = source.forward([case.inputs] * len(group), watches, request)
        for number, watch in zip(numbers, watches, strict=True):
            run_again = _item(output, watch)
            if start is not None:
                assert base is not None
                run_again = _onward(base, run_again, watch, start.layer)
            if end is None:
                runs[number] = _finished(source, case, run_again, watch)
            else:
                assert base is not None
                runs[number] = replace(base, output=run_again, watch=watch)
    return [runs[number] for number in range(len(replaced))]


def _item(output: Output, watch: split.StreamWatch) -> Output:
    """Take what is of one item of a pass, which is then the first of its own."""
    rows = slice(watch.item, watch.item + 1)
    watch.item = 0
    hidden, logits = (None if x is None else x[rows] for x in (output.hidden, output.logits))
    states, mlps = (tuple(x[rows] for x in part) for part in (output.states, output.mlps))
    mixers, deviations = (
        {layer: x[rows] for layer, x in part.items()} for part in (output.mixers, output.deviations)
    )
    return Output(hidden, logits, states, mlps, None, mixers, deviations)


def _onward(base: _Run, rerun: Output, watch: split.StreamWatch, layer: int) -> Output:
    """Put what was run again from a layer on behind what was as it is."""
    unchanged = base.output
    for stored, below in (
        (watch.weights, base.watch.weights),
        (watch.values, base.watch.values),
        (watch.passes, base.watch.passes),
    ):
        stored |= {site: x for site, x in below.items() if site.layer < layer}
    return replace(
        rerun,
        states=(*unchanged.states[:layer], *rerun.states),
        mlps=(*unchanged.mlps[:layer], *rerun.mlps),
        mixers={**unchanged.mixers, **rerun.mixers},
        deviations={**unchanged.deviations, **rerun.deviations},
    )


def _finished(source: Source, case: Case, output: Output, watch: split.StreamWatch) -> _Run:
    """Read a run's logit, and what its parts are measured along."""
    stream = output.states[-1][0, case.position]
    readout = source.readout().summed.converted(stream)
    if output.logits is None:
        assert output.hidden is not None
        final = output.hidden[0, case.position]
        logit = split.uncapped(readout, final, case.token, case.against)
    else:
        logits = exact(output.logits[0, 0])
        logit = float(logits[case.token] - (0 if case.against is None else logits[case.against]))
    toward = direction(readout, stream, case.token, case.against)
    return _Run(output, watch, toward, Carrying.at(readout, output, watch.row), logit)


def _donors(
    source: Source, case: Case, replaced: Sequence[Filled]
) -> dict[Site, Sequence[Donor]] | None:
    """Return what puts outputs in heads' places at the query, an item for each run."""
    by_site: dict[Site, Sequence[Donor]] = {}
    for site in dict.fromkeys(head.site for run in replaced for head in run):
        width = next(len(z) for run in replaced for head, z in run.items() if head.site == site)
        heads = source.layout.heads[site.kind][site.layer]
        shape = len(replaced), heads, len(predicted(case.inputs))
        values, shares = np.zeros((*shape, width), np.float32), np.zeros(shape, np.float32)
        for item, run in enumerate(replaced):
            for head in (head for head in run if head.site == site):
                values[item, head.index, case.position] = run[head]
                shares[item, head.index, case.position] = 1
        by_site[site] = [Donor("z", arrays.array(values), arrays.array(shares))]
    return by_site or None


def _readings(source: Source, case: Case, run: _Run, heads: Sequence[Head]) -> list[list[float]]:
    """Of each head [4]: is what it reads predicted, how often are others; lowered, and others."""
    layers = sorted({head.layer for head in heads})
    if not layers:
        return []
    states = [run.output.states[layer] for layer in layers]
    start = Start(
        max(map(source.layout.layers, source.layout.kinds)),
        arrays.of(states[0]).xp.concatenate(states),
    )
    request = ForwardRequest(hidden=False, logits=True, logits_at=(case.position,), start=start)
    logits = source.forward([case.inputs] * len(layers), request=request).logits
    assert logits is not None
    lens = dict(zip(layers, to_numpy(exact(logits[:, 0])), strict=True))
    tokens = predicted(case.inputs)
    ids_read = {tokens.ids[n] for n in range(case.position + 1) if not tokens.special[n]}
    shares = []
    for head in heads:
        position, rises = _read(source, case, run, head)
        ids = [tokens.ids[position], *sorted(ids_read - {tokens.ids[position]})]
        among: list[float] = []
        for scores in (lens[head.layer], -rises):
            few = max(1, min(FIRST, len(scores) // 100))
            first, *controls = [(scores >= scores[n]).sum() <= few for n in ids]
            among += [float(first), float(np.mean(controls)) if controls else 0.0]
        shares.append(among)
    return shares


def _read(source: Source, case: Case, run: _Run, head: Head) -> tuple[int, Floats]:
    """Where a head reads most, and what that adds to every logit, [V]."""
    watch, site, carrying = run.watch, head.site, run.carrying
    weights, values = watch.weights[site], watch.values[site]
    out = source.output(site).moved_to(weights)
    assert out.weight is not None
    read = values[head.index // (len(weights) // len(values))]
    if site in watch.passes:
        read = read * watch.passes[site][head.index]
    moved = read @ exact(out.weight[head.index])  # [S, D]
    sizes = to_numpy(weights[head.index] * arrays.norm(moved))
    position = int(sizes[: case.position + 1].argmax())
    wrote = split.arriving(moved[position], watch, site, out, carrying)
    stream = run.output.states[-1][0, case.position]
    rises: Floats = to_numpy(exact(words(carrying.readout, stream, wrote[None])))[0]
    return position, rises
