"""An ablation from texts to a report."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from attnviz.captures import trials
from attnviz.captures.trials import Trial, near_copy, same_as
from attnviz.core import arrays
from attnviz.core.arrays import Floats
from attnviz.core.heads import Head
from attnviz.core.prompt import Inputs
from attnviz.core.result import fingerprint
from attnviz.core.scores import HeadScores, UserDefined
from attnviz.core.settings import Parallel, Progress
from attnviz.core.source import Source
from attnviz.core.split import by_field
from attnviz.drawing.labels import counted
from attnviz.errors import InputError, UsageError
from attnviz.features.ablation import fills, measure
from attnviz.features.ablation.fills import LEAST, Reference
from attnviz.features.ablation.judge import (
    Curve,
    Parts,
    Summed,
    described,
    judged,
    kept,
    order_parts,
    rounding,
)
from attnviz.features.ablation.measure import Bench, Loader, Measured, Plan, nearness
from attnviz.features.ablation.result import Ablation, CurvePoint, Effect
from attnviz.features.ablation.ruled import HeadRules, Tree, shares_of_rules
from attnviz.features.ablation.settings import SOFT, AblationSettings, is_file
from attnviz.features.ablation.words import notes
from attnviz.features.results import Roles, with_roles
from attnviz.interventions.metrics import HIDDEN, KL, LOSS, Metric, check, logit_difference, named
from attnviz.interventions.sweep import affordable, baseline
from attnviz.scoring.observe import score_texts
from attnviz.scoring.plugins import user_defined
from attnviz.scoring.roles import ROLES
from attnviz.scoring.rules import RULES, of_role
from attnviz.scoring.rules import named as named_rule
from attnviz.scoring.select import Group, every_head, read_groups, role_heads
from attnviz.scoring.user_measures import FILLS
from attnviz.statistics.order import spearman

DRAWS = 8
"""Texts times donors are about so many at least."""


@dataclass
class Study:
    """What is looked at: a model, texts, and how."""

    source: Source  # the model
    texts: Sequence[Inputs] | None  # prepared texts, or None to repeat random tokens
    settings: AblationSettings  # how
    # texts whose means and outputs take a head's place, or ``matched`` or ``unmatched``; by default
    # see :mod:`attnviz.features.ablation.fills`; or what was chosen before
    reference: Sequence[Inputs] | str | fills.Reference | None = None
    load: Loader | None = None  # loads the model in another process
    parallel: Parallel = Parallel()  # how many processes
    progress: Progress = lambda stage, done, all_: None  # called again and again
    # for each text what it belongs to, None for a text on its own; none by default
    groups: Sequence[str | None] = ()
    # roles of heads that annotated text gives, to choose heads by
    annotated: Roles = field(default_factory=dict)
    parts: Sequence[str] = ()  # for each text what a field says that ``split`` names
    trees: Mapping[str, Mapping[Head, Tree]] = field(default_factory=dict)  # of rules, by file
    notes: list[str] = field(default_factory=list)


def run(study: Study) -> Ablation:
    """Measure what a study asks for."""
    settings, source = study.settings, study.source
    metric = _metric(study)
    check(source, metric)
    if settings.estimate:
        measure.check_gradient(metric)
    if metric.compares and settings.smallest != type(settings).smallest:
        raise UsageError(
            "{} is a distance, by which nothing is needed; leave out {smallest}",
            metric.name,
            smallest=settings.smallest,
        )
    if settings.by == "position" and (study.texts is None or len(study.texts) != 1):
        raise UsageError("{by} shows a single text; give one", by="position")
    tested = tuple(_trials(study, metric))
    if not tested:
        raise InputError("no token to predict in these texts; give at least two words")
    texts = {trial.text: trial.inputs for trial in tested}
    clusters = _clusters(study, texts)
    fold = fills.halves(texts, clusters, settings.seed)
    plan = _plan(study, metric, tested, fold)
    inputs = list(texts.values())
    parts_of = plan.batches(source, [text.length for text in inputs])
    scores = score_texts(source, [[inputs[n] for n in part] for part in parts_of], plan.tokens)
    groups, roles = _groups(study, with_roles(scores, study.annotated))
    roles += _named(study, plan)
    points: tuple[CurvePoint, ...] = ()
    split, parts = _parted(study, clusters, fold) if settings.curve else ("", None)
    with Bench(source, plan, study.load, study.parallel.jobs, study.parallel.ray) as bench:
        measured, partial = _measured(bench, groups + roles, study.progress, "runs")
        if not measured:
            raise InputError("interrupted before anything was measured")
        everything = Summed.of(measured, clusters)
        summed = everything.by(slice(len(plan.methods)))
        base, low, high = summed.mean_base()
        noise = rounding(source, base, int(summed.rows.sum()))
        stake = _stake(study, plan, summed, base)
        smallest = None if metric.compares else settings.smallest * abs(stake or base)
        near = nearness(source, plan, groups + roles)
        effects = judged(groups + roles, summed, settings, metric, noise, smallest, near)
        shares = {} if plan.reference is None else plan.reference.shares
        slopes = _slopes(summed.gradients, source, settings) if settings.estimate else None
        effects = described(effects, source, scores, slopes, shares)
        effects = kept(effects, everything, plan, noise, smallest)
        if parts is not None and not partial:
            curve = Curve(bench, parts, clusters, settings, source.layout, study.progress)
            points = curve.points(effects, summed)
    if metric.compares:  # but for rounding
        base, low, high = 0.0, None, None
    report = Ablation(
        source=source.info,
        layout=source.layout,
        metric=metric.name,
        unit=metric.unit,
        methods=settings.methods,
        method=_method(settings, plan),
        reference="" if plan.reference is None else plan.reference.name,
        average=settings.average,
        smallest=smallest,
        stake=stake,
        matched=plan.reference is not None and plan.reference.matched,
        worse=metric.worse,
        base=base,
        low=low,
        high=high,
        texts=len(summed.texts),
        corpus=fingerprint(map(same_as, texts.values())) if len(texts) > 1 else "",
        clusters=summed.count,
        family=len(settings.methods) * len(effects),
        positions=int(summed.rows.sum()),
        position="" if settings.position is None else str(settings.position),
        effects=effects,
        correlation=_correlation(effects),
        curve=points,
        tolerance=settings.tolerance if settings.curve else None,
        split=split,
        seed=settings.seed,
        partial=partial,
        tokens=tested[0].tokens.texts if len(summed.texts) == 1 else (),
        by_position=(
            _by_position(tested, measured, groups + roles) if settings.by == "position" else None
        ),
        user_defined=_user_defined(metric, settings),
    )
    messages = notes(report, {group.name for group in roles}, plan.reference, tested, noise)
    return replace(report, notes=(*study.notes, *messages))


def loss_by_text(source: Source, texts: Sequence[Inputs]) -> Summed | None:
    """Sum the loss without each head, the mean of other texts in its place; None for no token."""
    study = Study(source, texts, AblationSettings(method="mean"))
    tested = tuple(_trials(study, LOSS))
    if not tested:
        return None
    inputs = {trial.text: trial.inputs for trial in tested}
    clusters = _clusters(study, inputs)
    fold = fills.halves(inputs, clusters, study.settings.seed)
    with Bench(source, _plan(study, LOSS, tested, fold)) as bench:
        measured, partial = _measured(bench, every_head(source.layout), study.progress, "runs")
    if partial:
        raise KeyboardInterrupt
    return Summed.of(measured, clusters)


def _user_defined(metric: Metric, settings: AblationSettings) -> tuple[UserDefined, ...]:
    """Return what of it is no part of attnviz: roles, the metric, what takes a head's place."""
    fills = [FILLS[name].mark for name in settings.methods if name in FILLS]
    measured = [] if metric.user is None else [metric.user.mark]
    rules = [entry.mark for entry in RULES.values() if entry.user and settings.rules]
    return (*user_defined(), *measured, *fills, *rules)


def _metric(study: Study) -> Metric:
    settings, source = study.settings, study.source
    labels = trials.labels_of(source)
    if settings.answer is not None:
        answer = trials.one_token(source, settings.answer)
        if settings.against is None and labels is None:
            raise UsageError(
                "{answer} and {against} go together: the token that should win, and the other",
                answer=...,
                against=...,
            )
        if settings.against is None:
            name = labels.names[answer] if labels is not None else ""
            study.notes.append(f"Measured by the logit of the label {name!r}, with none taken off.")
            return logit_difference(answer, None)
        against = trials.one_token(source, settings.against)
        if answer == against:
            raise UsageError(f"{settings.answer!r} and {settings.against!r} are one token")
        return logit_difference(answer, against)
    if settings.metric is not None:
        metric = named(settings.metric)
        if labels is not None and metric.name == "loss":
            raise UsageError(
                "a classifier predicts no next token; take {metric}, or name a label with {answer}",
                metric="kl",
                answer=...,
            )
        trials.check_choice(source, metric.name)
        return metric
    if labels is not None:
        if len(labels.names) == 1:
            return logit_difference(0, None)
        trials.check_choice(source, "kl")
        return KL
    if source.no_logits:
        study.notes.append(
            f"Measured by the last hidden states (1 - cosine), since {source.no_logits}."
        )
        return HIDDEN
    return LOSS


def _trials(study: Study, metric: Metric) -> Iterator[Trial]:
    """Yield what is run, and where it is measured."""
    tokens = study.settings.position
    if tokens is None:
        yield from _whole(study, metric)
        return
    labels = trials.labels_of(study.source)
    if labels is not None and labels.place != "each" and metric.logits:
        raise UsageError("this model labels the whole text; leave out {position}", position=tokens)
    if study.texts is None or (metric.name == "logit-diff" and labels is None):
        raise UsageError(
            "{position} is of texts, and not of {probe} or logit-diff", position=tokens, probe=...
        )
    unshifted = metric.name == "hidden" or trials.is_masked(study.source) or labels is not None
    ahead = 0 if unshifted else 1
    yield from trials.within(_whole(study, metric), str(tokens), study.texts, ahead)


def _whole(study: Study, metric: Metric) -> Iterator[Trial]:
    """Yield texts with masks or without, or repeated random tokens, measured where they can be."""
    source, settings = study.source, study.settings
    if study.texts is None:
        if trials.labels_of(source) is not None:
            raise UsageError(
                "{probe} asks for next tokens, which a classifier does not predict", probe=...
            )
        if trials.is_masked(source) and metric.logits:
            raise UsageError(
                "{probe} asks for next tokens, which a masked model does not predict", probe=...
            )
        yield from trials.probe(source)
        return
    hides, labels = trials.is_masked(source) and metric.logits, trials.labels_of(source)
    mask = trials.mask_id(source) if hides else -1
    for number, inputs in enumerate(study.texts):
        if metric.logits and labels is not None and labels.place == "each":
            tested = trials.everywhere(number, inputs)
        elif metric.name == "logit-diff" or (metric.logits and labels is not None):
            tested = (
                trials.at_mask(number, inputs, mask)
                if hides
                else trials.last(number, inputs, source)
            )
        elif metric.name == "hidden":
            tested = trials.everywhere(number, inputs)
        elif not hides:
            tested = trials.next_tokens(number, inputs)
        elif settings.mask == "each" or settings.position is not None:
            tested = trials.each_masked(number, inputs, mask)
        else:
            tested = trials.masked(number, inputs, mask, seed=settings.seed)
        yield from tested


def _clusters(study: Study, texts: Collection[int]) -> tuple[int, ...]:
    """By the number of a text, what it belongs to: its group, or the first of its copies."""
    first: dict[Hashable, int] = {}
    clusters = list(range(max(texts) + 1))
    for number in texts:
        name: Hashable = study.groups[number] if study.groups else None
        if name is None and study.texts is not None:
            name = near_copy(study.texts[number])
        if name is not None:
            clusters[number] = first.setdefault(name, number)
    return tuple(clusters)


def _parted(study: Study, clusters: Sequence[int], fold: Sequence[int]) -> tuple[str, Parts]:
    """How the texts are divided for a curve, and its parts."""
    texts = [number for number, side in enumerate(fold) if side >= 0]
    names = {number: _called(study, clusters[number]) for number in texts}
    split, values = by_field(
        study.settings.split, lambda _: [(names[n], study.parts[n]) for n in texts if study.parts]
    )
    return split, order_parts(fold, split, names, study.settings.seed, values)


def _called(study: Study, number: int) -> str:
    """Return the group of a text, or the text itself; a number where there is none."""
    group = study.groups[number] if study.groups else None
    words = study.texts[number].texts if study.texts is not None and group is None else ()
    return group or "\n".join(words) or str(number)


def _plan(study: Study, metric: Metric, tested: tuple[Trial, ...], fold: Sequence[int]) -> Plan:
    settings, source = study.settings, study.source
    texts = {trial.text: trial.inputs for trial in tested}
    needs_others = settings.methods != ("zero",) or bool(settings.rules)
    plan = Plan(
        tested,
        metric,
        settings.methods,
        settings.batch_tokens or affordable(source, metric),
        choose_reference(study, metric, tested, fold) if needs_others else None,
        settings.seed,
        settings.draws or max(1, DRAWS // len(texts)),
        settings.estimate is not None,
        settings.by == "position",
    )
    return replace(plan, rules=_rules(study, plan)) if settings.rules else plan


def _rules(study: Study, plan: Plan) -> dict[str, tuple[HeadRules, ...]]:
    """By method, for each pool of the reference: the rule of a head's role there, or that asked."""
    source, methods = study.source, study.settings.rules
    by_method: dict[str, tuple[HeadRules, ...]] = dict.fromkeys(methods, ())
    for pool in () if plan.reference is None else plan.reference.pools:
        parts = plan.batches(source, [text.length for text in pool.texts])
        texts = [[pool.texts[n] for n in part] for part in parts]
        by_role = {}
        if any(":" not in method for method in methods):
            by_role = {one.head: of_role(one) for one in score_texts(source, texts, plan.tokens)}
        for method in methods:
            kind, _, name = method.partition(":")
            trees = study.trees.get(name, {})
            if is_file(name):
                rules = dict.fromkeys(trees, Path(name).name)
            else:
                rules = dict.fromkeys(source.layout, named_rule(name).name) if name else by_role
                rules = {h: rule for h, rule in rules.items() if rule and RULES[rule].fits(h.site)}
            of_heads = HeadRules(rules, {}, trees)
            shares = shares_of_rules(source, texts, of_heads) if kind == SOFT else {}
            by_method[method] += (replace(of_heads, shares=shares),)
    return by_method


def _named(study: Study, plan: Plan) -> tuple[Group, ...]:
    """Of all heads, and of those that have a name: what do rules keep of what they are worth?"""
    if study.settings.select is not None or not plan.rules:
        return ()
    layout, method = study.source.layout, next(iter(plan.rules))
    heads = tuple(head for head in layout if plan.is_named(method, head))
    groups = (Group("all heads", tuple(layout)), Group("all named heads", heads))
    return groups[: 2 if len(heads) < len(layout) else 1] if heads else ()


def choose_reference(
    study: Study, metric: Metric, tested: Sequence[Trial], fold: Sequence[int]
) -> Reference:
    """Choose texts that are not those they fill: given, in the same state, half, or bundled."""
    source, over = study.source, study.settings.mean_over
    requested, texts = study.reference, {trial.text: trial.inputs for trial in tested}
    if isinstance(requested, fills.Reference):
        return requested
    if study.texts is None:
        if requested not in (None, fills.MATCHED):
            raise UsageError(
                "{probe} is filled from random tokens repeated at the same length, since no other "
                "text is in their state; leave {reference} out",
                probe=True,
                reference=...,
            )
        return fills.probed(source, tested, over)
    if requested in (None, fills.MATCHED) and (matched := _of_groups(study, texts, fold)):
        return matched
    measured = {near_copy(inputs) for inputs in study.texts or ()}

    def usable(candidates: Sequence[Inputs]) -> list[Inputs]:
        """Those that are not measured themselves, with masks where texts have some."""
        unseen = [x for x in candidates if near_copy(x) not in measured - {None}]
        if not (trials.is_masked(source) and metric.logits):
            return unseen
        mask, seed = trials.mask_id(source), study.settings.seed
        hidden = [trials.masked(n, x, mask, seed=seed) for n, x in enumerate(unseen)]
        return [trial.inputs for masked in hidden for trial in masked]

    if requested is not None and not isinstance(requested, str):
        chosen = usable(requested)
        if not chosen:
            raise UsageError(
                "{reference} holds only texts that are measured, or nothing at all; give others",
                reference=...,
            )
        if dropped := len(requested) - len(chosen):
            study.notes.append(
                f"{counted(dropped, 'reference text')} left out, being measured too."
            )
        name = counted(len(chosen), "reference text")
        return fills.given(source, chosen, len(fold), over, name)
    if {0, 1} <= set(fold):
        return fills.other_half(source, texts, fold, over)
    sentences = usable(fills.bundled(source, max(texts.values(), key=lambda x: x.length)))
    name = f"{len(sentences)} English sentences of attnviz"
    return fills.given(source, sentences, len(fold), over, name)


def _of_groups(study: Study, texts: Mapping[int, Inputs], fold: Sequence[int]) -> Reference | None:
    """Texts filled from their own group; None where none was named, or all are small."""
    named = any(study.groups[number] is not None for number in texts) if study.groups else False
    if not named and study.reference == fills.MATCHED:
        raise UsageError(
            "nothing is known of what these texts have in common, so no reference matches them; "
            "name their groups with {group}, or leave {reference} out",
            group=...,
            reference=...,
        )
    if not named:
        return None
    settings, copies = study.settings, _clusters(replace(study, groups=()), texts)
    pools = fills.same_group(
        study.source, texts, study.groups, copies, fold, settings.mean_over, settings.seed
    )
    if pools is None and study.reference == fills.MATCHED:
        raise UsageError(
            "no group has {} different texts, which fill each other; leave {reference} out",
            2 * LEAST,
            reference=...,
        )
    return pools


def _stake(study: Study, plan: Plan, summed: Summed, repeated: float) -> float | None:
    """Measure what a probe's repetition is worth: the metric without less ``repeated``, with it."""
    if study.texts is not None or plan.metric.compares:
        return None
    unrepeated = [
        trial
        for trial in trials.unrepeated(study.source, plan.trials)
        if trial.text in summed.texts
    ]
    values = [
        arrays.to_numpy(of_trial)
        for part in plan.batches(study.source, [trial.inputs.length for trial in unrepeated])
        for of_trial in baseline(study.source, [unrepeated[n] for n in part], plan.metric).base
    ]
    return abs(float(np.concatenate(values).mean()) - repeated) or None


def _groups(
    study: Study, scores: Sequence[HeadScores]
) -> tuple[tuple[Group, ...], tuple[Group, ...]]:
    """Give what was asked for, and the group of each role's heads where every head is asked for."""

    def of_role(name: str) -> tuple[Head, ...]:
        return role_heads(scores, name)

    layout, selection = study.source.layout, study.settings.select
    if selection is not None:
        return read_groups(selection, layout, of_role), ()
    by_role = {name: of_role(name) for name in ROLES}
    several = [Group(f"role:{n}", heads) for n, heads in by_role.items() if len(heads) > 1]
    return every_head(layout), tuple(g for g in several if len(g.heads) < len(layout))


def _measured(
    bench: Bench, groups: Sequence[Group], progress: Progress, stage: str
) -> tuple[list[Measured], bool]:
    """Every trial without each group, and whether it was interrupted before the end."""
    measured: list[Measured] = []
    trials, count = bench.plan.trials, len(groups)
    sizes = [len(part) for part in bench.batches()]

    def on_share(share: float) -> None:
        """Of the batch that runs, so much is done."""
        size = sizes[len(finished)] if len(finished) < len(sizes) else 0
        progress(stage, round((len(measured) + share * size) * count), len(trials) * count)

    finished: list[int] = []
    try:
        progress(stage, 0, len(trials) * count)
        for batch in bench.measure(groups, on_share=on_share):
            measured += batch
            finished.append(len(batch))
            progress(stage, len(measured) * count, len(trials) * count)
    except KeyboardInterrupt:
        return measured, True
    return measured, False


def _slopes(by_text: Floats, source: Source, settings: AblationSettings) -> tuple[Floats, Floats]:
    """Mean |∂L/∂ξ| and mean ∂L/∂ξ over texts, for every head of the layout."""
    size, signed = np.abs(by_text).mean(0), by_text.mean(0)
    if settings.estimate == "layer":
        sites = [head.site for head in source.layout]
        for site in dict.fromkeys(sites):
            in_layer = np.array([own_site == site for own_site in sites])
            norm = float(np.linalg.norm(size[in_layer])) or 1.0
            size[in_layer] /= norm
            signed[in_layer] /= norm
    return size, signed


def _correlation(effects: Sequence[Effect]) -> float | None:
    pairs = [(abs(e.change), e.gradient) for e in effects if e.gradient is not None]
    if not pairs or not any(e.rank for e in effects):
        return None
    changes, slopes = (np.array(column, np.float64) for column in zip(*pairs, strict=True))
    return spearman(changes, slopes)


def _by_position(
    tested: Sequence[Trial], measured: Sequence[Measured], groups: Sequence[Group]
) -> Mapping[str, tuple[float | None, ...]]:
    """Return the change at every token of the only text; None where nothing is predicted."""
    changes = np.full((len(groups), len(tested[0].tokens)), np.nan)
    in_batches = sorted(tested, key=lambda trial: trial.inputs.length)
    for trial, values in zip(in_batches, measured, strict=False):  # fewer if interrupted
        changes[:, list(trial.positions)] = values.by_position
    return {
        group.name: tuple(None if np.isnan(v) else float(v) for v in row)
        for group, row in zip(groups, changes, strict=True)
    }


def _method(settings: AblationSettings, plan: Plan) -> str:
    """Return what took a head's place, in words."""
    over = "at every position" if settings.mean_over == "positions" else "over all tokens"
    draws = f"{plan.draws} draws" if plan.draws > 1 else "one draw"
    words = {
        "zero": "zero",
        "mean": f"mean {over}",
        "resample": f"output on another text ({draws}, seed {settings.seed})",
    }
    words |= {name: f"{name} ({fill.mark.function})" for name, fill in FILLS.items()}
    text = ", ".join(words[method] for method in settings.methods)
    return text if plan.reference is None else f"{text}, from {plan.reference.name}"
