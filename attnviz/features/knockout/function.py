"""``attnviz.knockout``: what is lost when some tokens may not attend to others."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, cast

import numpy as np

from attnviz.captures import trials as whole_texts
from attnviz.captures.loading import answering
from attnviz.captures.settings import ModelSettings
from attnviz.captures.trials import Trial, predicted, same_as
from attnviz.core.arrays import Floats
from attnviz.core.heads import Head, SiteKind
from attnviz.core.interface import interface
from attnviz.core.prompt import Inputs
from attnviz.core.result import fingerprint
from attnviz.core.scores import HeadScores
from attnviz.core.settings import Progress
from attnviz.core.source import CutMethod, Source
from attnviz.core.spans import EVERY, LAST
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.knockout import measure
from attnviz.features.knockout import result as records
from attnviz.features.knockout.settings import OF_ANSWER, KnockoutSettings, listed
from attnviz.features.knockout.texts import (
    KEYS,
    ROWS,
    CutText,
    Edges,
    Given,
    cut_texts,
    edges_of,
    names_of,
    tokens_of,
)
from attnviz.features.knockout.words import notes
from attnviz.interventions.judge import SMALLEST, judge
from attnviz.interventions.metrics import UNITS, WORSE, Metric
from attnviz.scoring.observe import score_texts
from attnviz.scoring.select import check_groups, read_groups, role_heads
from attnviz.statistics.order import ROUNDING


@interface
def knockout(
    text: Given | Path | Iterable[Given],
    *,
    settings: KnockoutSettings,
    model: ModelSettings,
    progress: Progress = lambda stage, done, all_: None,
) -> records.Knockout:
    """Cut attention from some tokens to others, and measure what that changes.

    The weights α_ij of rows i to keys j are cut in all heads, in some, or in a window of layers.
    Beside a cut stand random controls: the same rows lose as much weight from other keys. What the
    model writes while edges are cut is shown for a prompt with ``generate``.

    Args:
        text: a text or a prompt with ``spans``, or several; of a dictionary ``text`` (or
            ``messages``), ``spans``, ``target``, ``answer`` and ``against``; as a Path a .jsonl
            file of such.

    Returns:
        For each pair of parts and each group of heads the change of the metric, that of the
        controls, and their difference, with 95 % intervals over texts that hold together.

    Raises:
        UsageError: names of no part, or a metric that does not fit.
        SelectionError: heads that the model does not have.
        InputError: a text that cannot be used, or in which there is nothing to cut.
        ModelError: a model that cannot be cut, or gives no logits.

    Source:
        Geva et al. 2023 (arXiv:2304.14767) for knockout and its windows of layers.
    """
    texts, model = cut_texts(text, settings.answer, settings.against, model)
    selection = settings.select
    heads = None if selection is None else partial(check_groups, selection)
    result = run(answering(model.load(heads=heads)), texts, settings, progress)
    return replace(result, identity=model.identity)


Kind = Literal["all", "heads", "window"]
LEAST_MATCHED = 0.5
"""A control takes at least this share of the weight that is cut, or there is none."""


class Knock(NamedTuple):
    """One cut, in every text that has it."""

    rows: str  # names of the queries, ``keys`` of the keys
    keys: str
    kind: Kind  # see :class:`~attnviz.features.knockout.result.CutEffect`, as for the others
    name: str  # of the heads
    heads: tuple[Head, ...]  # in which it is made
    layer: int | None = None  # of a window


def judged(
    knocks: Sequence[Knock],
    values: Floats,
    names: Sequence[str],
    metric: str,
    settings: KnockoutSettings,
) -> tuple[tuple[records.CutEffect, ...], int]:
    """Judge every cut together, of ``values`` [texts, cuts, 6]; NaN for no such edge.

    The six are those of :class:`~attnviz.features.knockout.measure.Measured`.
    """
    lost, matched, base, changes, control, alone = values.transpose(2, 0, 1)
    matches = [float(np.nanmean(of_cut)) for of_cut in matched.T]
    against = [n for n, share in enumerate(matches) if settings.draws and share >= LEAST_MATCHED]
    columns = np.concatenate([changes, (changes - control)[:, against]], 1)
    rounding = ROUNDING * np.maximum(1.0, np.nanmax(np.abs(base), 0, initial=0))
    rounding, present = np.concatenate([rounding, rounding[against]]), ~np.isnan(columns)
    family = judge(
        np.where(present, columns, 0.0),
        present.astype(np.int64),
        names,
        rounding=rounding,
        size=present * rounding / ROUNDING,
    )
    size = SMALLEST * np.abs(np.nanmean(base, 0)) * abs(WORSE[metric])
    often = family.often(np.concatenate([size, size[against]]))

    def changed(column: int, *, tells: bool = True) -> records.CutChange:
        """Return a change; ``tells`` whether a difference from 0 says anything."""
        one, counts = family[column], often[column] or (None, None)
        worse, better = counts[:: WORSE[metric] or 1]
        return records.CutChange(
            one.value, one.low, one.high, one.joint_low, one.joint_high,
            one.sure if tells else None, one.mean, one.mean_low, one.mean_high, worse, better,
        )  # fmt: skip

    excesses = {number: changed(len(knocks) + n) for n, number in enumerate(against)}
    effects = tuple(
        records.CutEffect(
            *knock,
            float(np.nanmean(lost[:, number])),
            float(np.nanmean(base[:, number])),
            changed(number, tells=WORSE[metric] != 0),
            float(np.nanmedian(control[:, number])) if number in excesses else None,
            matches[number] if settings.draws else None,
            excesses.get(number),
            int(present[:, number].sum()),
            float(alone[present[:, number], number].mean()),
        )
        for number, knock in enumerate(knocks)
    )
    return effects, columns.shape[1]


_SHOWN = 60  # characters of a span that are kept


@dataclass(frozen=True, slots=True)
class Ready:
    """A text that a model has prepared, with masks where a masked model is to guess."""

    text: CutText
    # where it is measured; no position for the rows that are cut off and all after them
    trial: Trial
    metric: Metric

    @property
    def inputs(self) -> Inputs:
        """The tokens."""
        return self.trial.inputs


def run(
    source: Source, texts: Sequence[CutText], settings: KnockoutSettings, progress: Progress
) -> records.Knockout:
    """Measure what was asked for."""
    if source.no_gates:
        raise ModelError("attention of {} cannot be cut: {}", source.info.model, source.no_gates)
    if source.no_logits:
        raise ModelError("{} predicts no tokens: {}", source.info.model, source.no_logits)
    metric = _metric(texts, settings, source)
    ready = list(_ready(source, texts, metric, settings))
    pairs = _pairs([text.inputs for text in ready], settings)
    knocks, values = _measured(source, ready, pairs, settings, progress)
    partial, ready = len(values) < len(ready), ready[: len(values)]
    names = [str(same_as(text.inputs) or number) for number, text in enumerate(ready)]
    effects, family = judged(knocks, values, names, metric, settings)
    answers = {(text.text.answer or "", text.text.against or "") for text in ready}
    answer, against = answers.pop() if len(answers) == 1 else ("", "")
    result = records.Knockout(
        source=source.info,
        layout=source.layout,
        texts=len(ready),
        corpus=fingerprint(same_as(text.inputs) for text in ready) if len(ready) > 1 else "",
        seed=settings.seed,
        partial=partial,
        cut=settings.cut,
        metric=metric,
        unit=UNITS[metric],
        answer=answer,
        against=against,
        draws=settings.draws,
        window=settings.window,
        clusters=len(set(names)),
        family=family,
        spans=_spans(ready, pairs),
        effects=effects,
        written=measure.written(source, ready[0].text, ready[0].inputs, effects, settings),
    )
    messages = dict.fromkeys(note for text in ready for note in text.inputs.notes)
    return replace(result, notes=(*list(messages)[:2], *notes(result)))


def _metric(texts: Sequence[CutText], settings: KnockoutSettings, source: Source) -> str:
    """Return what is measured: of answers where all texts have one, else KL."""
    answers = [text.answer is not None for text in texts]
    against = all(text.against is not None for text in texts)
    metric = settings.metric
    labels = whole_texts.labels_of(source)
    by_itself = labels is not None and labels.shares != "softmax" and all(answers)
    if metric is None and by_itself:  # the logit of a label by itself
        return "logit-diff"
    if metric is None:
        if any(answers) and not all(answers):
            raise UsageError(
                "text {} has no answer, and others have; give each one, or another {metric}",
                answers.index(False) + 1,
                metric="kl",
            )
        return ("logit-diff" if against else "prob") if all(answers) else "kl"
    if metric in OF_ANSWER and not all(answers):
        raise UsageError("{metric} is of a token; name it with {answer}", metric=metric, answer=...)
    if metric == "logit-diff" and not against and labels is None:
        raise UsageError(
            "logit-diff compares two tokens; name the other with {against}", against=...
        )
    return metric


def _ready(
    source: Source, texts: Sequence[CutText], metric: str, settings: KnockoutSettings
) -> Iterator[Ready]:
    """Yield the texts with what is measured of them."""
    for number, text in enumerate(texts):
        try:
            yield _prepared(source, number, text, metric, settings)
        except InputError as error:
            if len(texts) == 1:
                raise
            raise InputError("text {}: {}", number + 1, error.message) from None


def _prepared(
    source: Source, number: int, text: CutText, metric: str, settings: KnockoutSettings
) -> Ready:
    whole_texts.check_choice(source, metric)
    inputs = source.prepare(replace(text.prompt, generate=None))
    masked = whole_texts.is_masked(source)
    if metric in OF_ANSWER:
        answer = whole_texts.one_token(source, text.answer or "")
        against = None
        if metric == "logit-diff" and text.against is not None:
            against = whole_texts.one_token(source, text.against)
        if answer == against:
            raise InputError(f"answer and against are one token, {text.answer!r}; name two")
        if masked:
            (trial,) = whole_texts.at_mask(number, inputs, whole_texts.mask_id(source))
        else:
            (trial,) = whole_texts.last(number, inputs, source)
        return Ready(text, trial, Metric(metric, answer, against, exact=True))
    if metric == "loss" and masked:
        mask = whole_texts.mask_id(source)
        hidden = whole_texts.masked(number, inputs, mask, seed=settings.seed)
        if not hidden:
            raise InputError("there is no token to mask")
        (trial,) = hidden
        return Ready(text, trial, Metric(metric, exact=True))
    if whole_texts.labels_of(source) is not None:
        if metric == "loss":
            raise UsageError("a classifier predicts no next token; take {metric}", metric="kl")
        (trial,) = whole_texts.last(number, inputs, source)
    else:
        trial = Trial(number, inputs, ())
    return Ready(text, trial, Metric(metric, exact=True))


def _pairs(inputs: Sequence[Inputs], settings: KnockoutSettings) -> tuple[tuple[str, str], ...]:
    """Which parts are cut off from which."""
    spans = tuple(dict.fromkeys(name for item in inputs for name in names_of(item)))
    rows, keys = listed(settings.rows), listed(settings.keys)
    if not keys and not spans:
        raise UsageError(
            "nothing to cut: name a part of the text with {span}, or what is lost with {keys}, "
            "such as before, sink or punctuation",
            span="subject=keys",
            keys=...,
        )
    for requested, classes in ((rows, ROWS), (keys, KEYS)):
        for name in requested:
            if name not in (*classes, *spans):
                raise UsageError("no part {!r}; choose from {}", name[:40],
                                 ", ".join((*classes, *spans)))  # fmt: skip
    if settings.instead is not None and settings.instead not in spans:
        raise UsageError(
            "{cut} needs a span {!r}; name it with {span}", settings.instead[:40],
            cut=settings.cut, span=...,
        )  # fmt: skip
    rows = rows or ((LAST,) if keys and settings.rows is None and not spans else (*spans, LAST))
    if settings.keys is not None and settings.rows is None:
        rows = (LAST,)
    keys = keys or tuple(name for name in spans if name != settings.instead)
    return tuple((row, key) for row in rows for key in keys if row != key or settings.rows)


def _measured(
    source: Source,
    ready: Sequence[Ready],
    pairs: Sequence[tuple[str, str]],
    settings: KnockoutSettings,
    progress: Progress,
) -> tuple[list[Knock], Floats]:
    """Measure every cut of each text, [texts, cuts, 6]; of those before an interruption."""
    groups = None if settings.select is None else _groups(source, ready, settings)
    rows: list[dict[Knock, measure.Measured]] = []
    method = cast("CutMethod", "redirect" if settings.instead else settings.cut)
    try:
        for number, text in enumerate(ready):
            progress("texts", number, len(ready))
            edges = {
                pair: edges_there
                for pair in pairs
                if (edges_there := edges_of(text.inputs, *pair, settings.instead)) is not None
            }
            model = measure.whole(source, text.inputs, list(edges.values()), method)
            mine = list(_knocks(source, text, edges, groups, model, settings))
            values = measure.measure(
                source,
                text.inputs,
                [cut_run for _, cut_run in mine],
                model,
                method=method,
                draws=settings.draws,
                seed=(settings.seed, number),
                tokens=settings.batch_tokens,
            )
            rows.append({knock: value for (knock, _), value in zip(mine, values, strict=True)})
        progress("texts", len(ready), len(ready))
    except KeyboardInterrupt:
        if not rows:
            raise InputError("interrupted before anything was measured") from None
    knocks = dict.fromkeys(knock for row in rows for knock in row)
    if not knocks:
        listed = ", ".join(f"{row} to {key}" for row, key in pairs[:3])
        raise InputError(
            "there is nothing to cut: no query attends to such a key ({}); a causal model sees "
            "only what stands before",
            listed,
        )
    ordered = sorted(knocks, key=lambda knock: pairs.index((knock.rows, knock.keys)))
    table = np.full((len(rows), len(ordered), len(measure.Measured._fields)), np.nan)
    for number, row in enumerate(rows):
        for column, knock in enumerate(ordered):
            table[number, column] = row.get(knock, math.nan)
    return ordered, table


def _knocks(
    source: Source,
    text: Ready,
    edges: dict[tuple[str, str], Edges],
    groups: Sequence[tuple[str, tuple[Head, ...]]] | None,
    model: measure.Whole,
    settings: KnockoutSettings,
) -> Iterator[tuple[Knock, measure.CutRun]]:
    """Yield the cuts of a text, pair by pair: all heads, then some, then windows of layers."""
    for (rows, keys), edge in edges.items():
        of_kind = tuple(head for head in source.layout if head.site.kind == edge.kind)
        if not model.weights.sees(edge, of_kind):
            continue
        isolated = model.weights.without_others(edge, of_kind)
        if isolated and edge.kind == "cross" and settings.cut in ("mask", "rescale"):
            raise InputError(
                "without {}, {} of the queries of {} would have no key left; leave some, or take "
                "{cut}",
                keys,
                isolated,
                rows,
                cut="zero",
            )
        positions = _positions(source, text, edge)
        trial = replace(text.trial, positions=positions)
        if text.metric.name == "loss" and not trial.targets:
            ids = predicted(text.inputs).ids
            positions = tuple(n for n in positions if n + 1 < len(ids))
            if not positions:
                raise InputError(
                    "no token follows the queries of {}, so there is no loss; take {metric}, or "
                    "name an {answer}",
                    rows,
                    metric="kl",
                    answer=...,
                )
            targets = tuple(ids[n + 1] for n in positions)
            trial = replace(trial, positions=positions, targets=targets)
        chosen: list[Knock] = [Knock(rows, keys, "all", records.EVERY_HEAD, of_kind)]
        for name, heads in groups or ():
            mine = tuple(head for head in heads if head.site.kind == edge.kind)
            if not mine:
                raise UsageError(
                    "{select}: none of {} attends from {} to {}", name, rows, keys,
                    select=settings.select,
                )  # fmt: skip
            chosen.append(Knock(rows, keys, "heads", name, mine))
        if settings.window is not None:
            chosen += _windows(source, rows, keys, edge.kind, settings.window)
        for knock in chosen:
            if model.weights.sees(edge, knock.heads):
                yield knock, measure.CutRun(edge, knock.heads, trial, text.metric)


def _positions(source: Source, text: Ready, edge: Edges) -> tuple[int, ...]:
    """Where it is measured: as the metric says, or where the cut can change anything."""
    if text.trial.positions:
        return text.trial.positions
    length = len(predicted(text.inputs))
    if edge.kind == "encoder" and "cross" in source.layout.kinds:
        return tuple(range(length))
    if edge.kind == "encoder":
        return edge.rows
    return tuple(range(min(edge.rows), length))


def _windows(source: Source, rows: str, keys: str, kind: SiteKind, width: int) -> Iterator[Knock]:
    """All heads of the layers around each layer (Geva et al. 2023)."""
    layers, half = source.layout.layers(kind), width // 2
    for layer in range(layers):
        first, last = max(layer - half, 0), min(layer + half, layers - 1)
        heads = tuple(
            head for head in source.layout if head.site.kind == kind and first <= head.layer <= last
        )
        name = f"layer {first}" if first == last else f"layers {first}-{last}"
        if heads:
            yield Knock(rows, keys, "window", name, heads, layer)


def _groups(
    source: Source, ready: Sequence[Ready], settings: KnockoutSettings
) -> list[tuple[str, tuple[Head, ...]]]:
    """Return the heads that are cut by themselves."""
    scores: list[tuple[HeadScores, ...]] = []

    def of_role(name: str) -> tuple[Head, ...]:
        if not scores:
            scores.append(score_texts(source, [[text.inputs] for text in ready]))
        return role_heads(scores[0], name)

    groups = read_groups(settings.select or "", source.layout, of_role)
    return [(group.name, group.heads) for group in groups]


def _spans(ready: Sequence[Ready], pairs: Sequence[tuple[str, str]]) -> tuple[records.CutSpan, ...]:
    """Return what of the parts a reader needs to know, in their order in the texts."""
    spans = []
    named = [name for text in ready for name in names_of(text.inputs)]
    requested = [name for pair in pairs for name in pair]
    for name in dict.fromkeys((*(name for name in named if name in requested), *requested)):
        lengths, texts = [], set[Hashable]()
        for text in ready:
            if (span := tokens_of(text.inputs, name)) is not None:
                tokens, places = span
                lengths.append(len(places))
                texts.add(tokens.shown(name, places).strip()[:_SHOWN])
        if lengths and name != EVERY:
            excerpt = str(texts.pop()) if len(texts) == 1 else ""
            spans.append(records.CutSpan(name, sum(lengths) / len(lengths), len(lengths), excerpt))
    return tuple(spans)
