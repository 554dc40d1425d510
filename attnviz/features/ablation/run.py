"""An ablation from texts to a report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from attnviz.ablation import gradient, sweep, trials
from attnviz.ablation.curve import curve
from attnviz.ablation.fills import Means
from attnviz.ablation.groups import Group, every_head, read_groups, role_heads
from attnviz.ablation.measure import (
    Bench,
    Floats,
    Loader,
    Measured,
    Plan,
    Summed,
    affordable,
    batches,
)
from attnviz.ablation.metrics import METRICS, Metric, logit_difference
from attnviz.ablation.settings import AblationSettings
from attnviz.ablation.trials import Trial
from attnviz.effects import AblationReport, CurvePoint, Effect
from attnviz.errors import InputError, UsageError
from attnviz.passes import Source
from attnviz.records import Head, HeadScores, Inputs
from attnviz.scoring.observe import ScoreObserver
from attnviz.scoring.roles import ROLES
from attnviz.scoring.sums import Sums
from attnviz.statistics.clusters import FEW
from attnviz.statistics.ranks import spearman

Progress = Callable[[str, int, int], None]
"""Called with the stage, how many trials are done and how many there are."""

SELF_REPAIR = (
    "Other heads take over when one is missing, so effects of single heads understate what groups "
    "do (Wang et al. 2022, arXiv:2211.00593)."
)


@dataclass
class Study:
    """What is looked at: a model, texts, and how.

    Attributes:
        source: the model.
        texts: prepared texts, or None to repeat random tokens.
        settings: how.
        reference: texts whose means take a head's place; ``texts`` themselves by default.
        load: loads the model in another process.
        progress: called again and again.
    """

    source: Source
    texts: Sequence[Inputs] | None
    settings: AblationSettings
    reference: Sequence[Inputs] | None = None
    load: Loader | None = None
    progress: Progress = lambda stage, done, all_: None
    notes: list[str] = field(default_factory=list)


def run(study: Study) -> AblationReport:
    """Measure what a study asks for.

    Raises:
        ModelError: a model that cannot be ablated, or not by this metric.
        UsageError, SelectionError, InputError: what was asked for makes no sense here.
    """
    settings, source = study.settings, study.source
    settings.check()
    metric = _metric(study)
    sweep.check(source, metric)
    if settings.gradient:
        gradient.check(metric)
    if settings.positions and (study.texts is None or len(study.texts) != 1):
        raise UsageError("{positions} shows a single text; give one", positions=...)
    tested = tuple(_trials(study, metric))
    if not tested:
        raise InputError("no token to predict in these texts; give at least two words")
    plan = _plan(study, metric, tested)
    texts = {trial.text: trial.inputs for trial in tested}
    scores = _scores(source, list(texts.values()), plan.tokens)
    groups, roles = _groups(study, scores)
    with Bench(source, plan, study.load, settings.jobs, settings.ray) as bench:
        measured, partial = _measured(bench, groups + roles, study.progress, "heads")
        if not measured:
            raise InputError("interrupted before anything was measured")
        summed = Summed.of(measured, len(groups) + len(roles))
        effects = _effects(groups + roles, summed, settings, source, scores)
        points: tuple[CurvePoint, ...] = ()
        if settings.curve and not partial:
            points = curve(bench, effects, settings, metric, source.layout, study.progress)
    base, half = summed.mean_base()
    low, high = _interval(base, half)
    if metric.compares:  # but for rounding
        base, low, high = 0.0, None, None
    single = len(summed.texts) == 1
    return AblationReport(
        source=source.info,
        layout=source.layout,
        metric=metric.name,
        unit=metric.unit,
        method=_method(study),
        worse=metric.worse,
        base=base,
        low=low,
        high=high,
        texts=len(summed.texts),
        positions=int(summed.rows.sum()),
        effects=effects,
        correlation=_correlation(effects),
        curve=points,
        tolerance=settings.tolerance if settings.curve else None,
        seed=settings.seed,
        partial=partial,
        notes=tuple(_notes(study, summed, effects, roles, partial)),
        tokens=tested[0].tokens.texts if single else (),
        by_position=_by_position(tested, measured, groups + roles) if settings.positions else None,
    )


def _metric(study: Study) -> Metric:
    settings, source = study.settings, study.source
    if settings.answer is not None and settings.against is not None:
        answer, against = (trials.one_token(source, w) for w in (settings.answer, settings.against))
        if answer == against:
            raise UsageError(f"{settings.answer!r} and {settings.against!r} are one token")
        return logit_difference(answer, against)
    if settings.metric is not None:
        return METRICS[settings.metric]
    if source.no_logits:
        study.notes.append(
            f"Measured by the last hidden states (1 - cosine), since {source.no_logits}."
        )
        return METRICS["hidden"]
    return METRICS["loss"]


def _trials(study: Study, metric: Metric) -> Iterator[Trial]:
    """What is run: the texts with masks or without, or repeated random tokens."""
    source, settings = study.source, study.settings
    if study.texts is None:
        if trials.is_masked(source) and metric.logits:
            raise UsageError(
                "{probe} asks for next tokens, which a masked model does not predict", probe=...
            )
        yield from trials.probe(source)
        return
    hides = trials.is_masked(source) and metric.logits
    mask = trials.mask_id(source) if hides else -1
    for number, inputs in enumerate(study.texts):
        if metric.name == "logit-diff":
            found = trials.at_mask(number, inputs, mask) if hides else trials.last(number, inputs)
        elif metric.name == "hidden":
            found = trials.everywhere(number, inputs)
        elif not hides:
            found = trials.next_tokens(number, inputs)
        elif settings.mask == "each":
            found = trials.each_masked(number, inputs, mask)
        else:
            found = trials.masked(number, inputs, mask, seed=settings.seed)
        yield from found


def _plan(study: Study, metric: Metric, tested: tuple[Trial, ...]) -> Plan:
    settings, source = study.settings, study.source
    means = None
    if settings.method == "mean":
        means = Means(settings.mean_over)
        reference = study.reference or [trial.inputs for trial in tested]
        for inputs in reference:
            means.add(source, [inputs])
    if settings.method == "resample" and len({trial.text for trial in tested}) < 2:
        raise UsageError(
            "resampling needs at least two texts; give more, or use {method}", method="zero"
        )
    return Plan(
        tested,
        metric,
        settings.method,
        settings.batch_tokens or affordable(source, metric),
        means,
        settings.seed,
        settings.draws if settings.method == "resample" else 1,
        settings.gradient,
        settings.positions,
    )


def _scores(source: Source, texts: Sequence[Inputs], tokens: int) -> tuple[HeadScores, ...]:
    """What every head does on the same texts, at most so many tokens at once."""
    total = Sums.zero(len(source.layout))
    for numbers in batches([inputs.length for inputs in texts], tokens):
        batch = [texts[number] for number in numbers]
        observer = ScoreObserver(batch, source.layout)
        source.forward(batch, [observer], hidden=False)
        total = total + observer.total()
    return tuple(
        HeadScores(head, total.scores(number), total.roles(number))
        for number, head in enumerate(source.layout)
    )


def _groups(
    study: Study, scores: Sequence[HeadScores]
) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """What was asked for, and the group of each role's heads where every head is asked for."""

    def of_role(name: str) -> tuple[Head, ...]:
        return role_heads(scores, name)

    layout, asked = study.source.layout, study.settings.heads
    if asked is not None:
        return read_groups(asked, layout, of_role), ()
    found = {name: of_role(name) for name in ROLES}
    several = [Group(f"role:{n}", heads) for n, heads in found.items() if len(heads) > 1]
    return every_head(layout), tuple(g for g in several if len(g.heads) < len(layout))


def _measured(
    bench: Bench, groups: Sequence[Group], progress: Progress, stage: str
) -> tuple[list[Measured], bool]:
    """Every trial without each group, and whether it was interrupted before the end."""
    found: list[Measured] = []
    total = len(bench.plan.trials)
    try:
        for batch in bench.measure(groups):
            found += batch
            progress(stage, len(found), total)
    except KeyboardInterrupt:
        return found, True
    return found, False


def _effects(
    groups: Sequence[Group],
    summed: Summed,
    settings: AblationSettings,
    source: Source,
    scores: Sequence[HeadScores],
) -> tuple[Effect, ...]:
    changes, halves = summed.mean_changes()
    worse_by = 1 if settings.answer is None else -1
    worse = (summed.changes * worse_by > 0).mean(0)
    slopes = _slopes(summed.gradients, source, settings) if settings.gradient else None
    place = {head: number for number, head in enumerate(source.layout)}
    alone = {
        g.heads[0]: float(c) for g, c in zip(groups, changes, strict=True) if len(g.heads) == 1
    }
    found = []
    for number, group in enumerate(groups):
        change = float(changes[number])
        low, high = _interval(change, float(halves[number]))
        single = len(group.heads) == 1
        head = group.heads[0]
        known = single and slopes is not None
        members = [alone[h] for h in group.heads if h in alone]
        whole = not single and len(members) == len(group.heads)
        known_as = scores[place[head]] if single else None
        found.append(
            Effect(
                name=group.name,
                heads=group.heads,
                change=change,
                low=low,
                high=high,
                worse=float(worse[number]),
                gradient=float(slopes[0][place[head]]) if known and slopes else None,
                signed=float(slopes[1][place[head]]) if known and slopes else None,
                does=known_as.does.name if known_as and known_as.does else "",
                rests=known_as.rests.name if known_as and known_as.rests else "",
                members=sum(members) if whole else None,
            )
        )
    return tuple(found)


def _slopes(by_text: Floats, source: Source, settings: AblationSettings) -> tuple[Floats, Floats]:
    """Mean |∂L/∂ξ| and mean ∂L/∂ξ over texts, for every head of the layout."""
    size, signed = np.abs(by_text).mean(0), by_text.mean(0)
    if settings.normalize == "layer":
        sites = [head.site for head in source.layout]
        for site in dict.fromkeys(sites):
            own = np.array([other == site for other in sites])
            norm = float(np.linalg.norm(size[own])) or 1.0
            size[own] /= norm
            signed[own] /= norm
    return size, signed


def _interval(mean: float, half: float) -> tuple[float | None, float | None]:
    return (None, None) if np.isnan(half) else (mean - half, mean + half)


def _correlation(effects: Sequence[Effect]) -> float | None:
    pairs = [(abs(e.change), e.gradient) for e in effects if e.gradient is not None]
    if not pairs:
        return None
    changes, slopes = (np.array(column, np.float64) for column in zip(*pairs, strict=True))
    return spearman(changes, slopes)


def _by_position(
    tested: Sequence[Trial], measured: Sequence[Measured], groups: Sequence[Group]
) -> Mapping[str, tuple[float | None, ...]]:
    """The change at every token of the only text; None where nothing is predicted."""
    found = np.full((len(groups), len(tested[0].tokens)), np.nan)
    for trial, one in zip(_in_order(tested), measured, strict=False):  # fewer if interrupted
        found[:, list(trial.positions)] = one.by_position
    return {
        group.name: tuple(None if np.isnan(v) else float(v) for v in row)
        for group, row in zip(groups, found, strict=True)
    }


def _in_order(tested: Sequence[Trial]) -> list[Trial]:
    """Trials as batches have them: by length, then by number."""
    return [tested[n] for n in sorted(range(len(tested)), key=lambda n: tested[n].inputs.length)]


def _method(study: Study) -> str:
    settings = study.settings
    if settings.method == "mean":
        over = "at every position" if settings.mean_over == "positions" else "over all tokens"
        where = "the reference" if study.reference else "these texts"
        return f"mean {over} of {where}"
    if settings.method == "resample":
        draws = f"{settings.draws} draws" if settings.draws > 1 else "one draw"
        return f"resampled from other texts, {draws}, seed {settings.seed}"
    return "zero"


def _notes(
    study: Study,
    summed: Summed,
    effects: Sequence[Effect],
    roles: Sequence[Group],
    partial: bool,
) -> Iterator[str]:
    yield from study.notes
    texts = len(summed.texts)
    if partial:
        yield f"Interrupted: only {texts:,} texts were measured."
    if texts == 1:
        yield "A single text: there is no interval, and nothing is known about other texts."
    elif texts < FEW:
        yield f"Intervals from {texts} texts cover less than 95 %; use {FEW} or more."
    for effect in effects:
        if effect.members is None or effect.name not in {group.name for group in roles}:
            continue
        together, apart = effect.change, effect.members
        if abs(together - apart) > max(abs(apart), abs(together)) / 2:
            yield (
                f"The {len(effect.heads)} heads of {effect.name} together change it by "
                f"{together:+.2g}, one by one they add up to {apart:+.2g}."
            )
    yield SELF_REPAIR
