"""One checkpoint over all texts: sums of scores, losses, and what else was asked for.

The checkpoints of a run, one after the other or in several processes; what is done is kept.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from attnviz.captures import trials
from attnviz.captures.settings import ModelSettings
from attnviz.core.heads import Head
from attnviz.core.prompt import Inputs, Prompt
from attnviz.core.result import Result
from attnviz.core.scores import Role
from attnviz.core.settings import Progress
from attnviz.core.source import ForwardRequest, Source
from attnviz.core.threads import one_thread
from attnviz.corpus.executors import Inline, Processes, Stopping
from attnviz.corpus.gold.cases import split_gold
from attnviz.corpus.running import Executor, answered
from attnviz.corpus.texts import InvalidRecord, Text, Tokenized, batches
from attnviz.errors import InputError, UsageError, system_errors
from attnviz.features.film import steps
from attnviz.features.film.result import FilmSettings
from attnviz.features.film.steps import SCHEMA, Checkpoint, FilmHeader, MeasuredStep
from attnviz.features.profile.work import windows
from attnviz.models.cache import identity
from attnviz.scoring.observe import Recorder, ScoreObserver, observe, score_batch
from attnviz.scoring.probe import MEASURED
from attnviz.scoring.totals import Sums, fold

EARLY, LATE, OF = 50, 500, 512
"""Olsson et al. compare the losses at these places of a context of so many tokens."""
SHORTEST = 32  # predicted tokens from which a text has an in-context score
_BAND = 64  # each place is a mean over a 1/64 of the context to both sides, as it is noisy alone
_BATCH_TOKENS = 4096
_LARGEST = 32
ABLATED = 64  # texts on which heads are ablated


@dataclass(slots=True)
class _Observed:
    """What one piece gave: sums of scores, losses of its tokens."""

    sums: Sums
    losses: NDArray[np.float64]


def in_context(losses: NDArray[np.float64]) -> float | None:
    """Loss late in a context minus loss early in it, in nats; None for a short one.

    Olsson et al. 2022 (arXiv:2209.11895) take the 500th token and the 50th of 512. Of n predicted
    tokens these are those around 500/512 n and 50/512 n, each a mean over n/64 tokens to both
    sides.

    ``losses`` [n], of the tokens in their order.
    """
    n = len(losses)
    if n < SHORTEST:
        return None
    band = n // _BAND

    def around(position: int) -> float:
        middle = min(round(position / OF * n), n - 1)
        return float(losses[max(0, middle - band) : middle + band + 1].mean())

    return around(LATE) - around(EARLY)


@dataclass(frozen=True, eq=False)
class Prepared:
    """Texts as a model takes them; the same for all checkpoints of a run."""

    # in their order, by text; ``digests`` a hash of the tokens of every text
    pieces: tuple[Tokenized, ...]
    digests: tuple[str, ...]
    probes: tuple[Inputs, ...]  # repeated random tokens
    bad: tuple[InvalidRecord, ...]  # texts that could not be used


def prepare(source: Source, texts: Sequence[Text], settings: FilmSettings) -> Prepared:
    """Tokenize the texts, in windows where they are longer than the model takes."""
    pieces: list[Tokenized] = []
    bad: list[InvalidRecord] = []
    for text in texts:
        prompt = replace(text.prompt, special_tokens=settings.special_tokens)
        try:
            cut = [source.prepare(prompt)] if prompt.ids else list(windows(prompt, source))
        except (InputError, UsageError) as error:
            bad.append(InvalidRecord(text.number, text.place, error.message))
            continue
        pieces += [Tokenized(text, inputs) for inputs in cut]
    if not pieces:
        reason = f": {bad[0].place}: {bad[0].reason}" if bad else ""
        raise InputError(f"no text can be used{reason}")
    digests = [
        _digest([piece.inputs for piece in group])
        for _, group in groupby(pieces, key=lambda piece: piece.text.number)
    ]
    if settings.probe:
        probes = tuple(trial.inputs for trial in trials.probe(source))
        digests += [_digest([inputs]) for inputs in probes]
    else:
        probes = ()
    return Prepared(tuple(pieces), tuple(digests), probes, tuple(bad))


def measure(
    source: Source,
    prepared: Prepared,
    settings: FilmSettings,
    *,
    step: int,
    name: str,
    identity: dict[str, Any] | None = None,
    files: Sequence[str] = (),
) -> MeasuredStep:
    """Everything about one checkpoint; one thread, so that the bits are those of any run."""
    with one_thread():
        samples = _run(source, prepared.pieces, settings.measured)
        texts = [
            [samples[n] for n, _ in group]
            for _, group in groupby(
                enumerate(prepared.pieces), key=lambda pair: pair[1].text.number
            )
        ]
        sums = [
            fold([sample.sums for sample in remaining], first.sums) for first, *remaining in texts
        ]
        if settings.probe:
            sums = [_without(sample, MEASURED) for sample in sums]
            sums += [
                _only(sample, MEASURED) for sample in _probe(source, prepared.probes, settings)
            ]
        empty = np.zeros(len(prepared.probes))
        contexts = [[in_context(sample.losses) for sample in group] for group in texts]
        scored = [[sample for sample in group if sample is not None] for group in contexts]
        causal = _next_tokens(source)
        maps, words = _maps(source, prepared.pieces[0].inputs, settings.map_tokens)
        changes, metric = _ablated(source, prepared.pieces, settings)
        roles = _annotated(source, settings)
    total = fold(sums[1:], sums[0])
    lengths = [[len(sample.losses) for sample in group] for group in texts]
    header = FilmHeader(
        SCHEMA, step, name, source.info, dict(identity or {}),
        {kind: list(counts) for kind, counts in source.layout.heads.items()}, source.layout.whole,
        list(settings.measured), settings.document(), list(prepared.digests),
        len(prepared.probes), list(files),
        sum(piece.inputs.length for piece in prepared.pieces), list(words), roles, metric,
        len(prepared.bad), [],
    )  # fmt: skip
    return MeasuredStep(
        header,
        np.stack([sample.values for sample in sums]),
        np.stack([sample.rows for sample in sums]),
        total.chances,
        total.shares,
        total.counted,
        np.concatenate([[sum(float(o.losses.sum()) for o in group) for group in texts], empty]),
        np.concatenate([[sum(group) for group in lengths], empty]).astype(np.int64),
        np.concatenate([[sum(group) if causal else 0.0 for group in scored], empty]),
        np.concatenate([[len(group) if causal else 0 for group in scored], empty]).astype(np.int64),
        changes,
        maps,
    )


def _run(source: Source, pieces: Sequence[Tokenized], names: Sequence[str]) -> list[_Observed]:
    """Every piece through the model, in batches that depend on the texts alone."""
    samples: dict[int, _Observed] = {}
    numbers = {id(piece): number for number, piece in enumerate(pieces)}
    causal = _next_tokens(source)
    for batch in batches(
        list(pieces), attrgetter("length"), _BATCH_TOKENS, window=len(pieces) + 1, largest=_LARGEST
    ):
        assert not isinstance(batch, InvalidRecord)
        inputs = [piece.inputs for piece in batch]
        observer = ScoreObserver(inputs, source.layout, names)
        logits = source.forward(
            inputs, [observer], ForwardRequest(hidden=False, logits=causal)
        ).logits
        for item, piece in enumerate(batch):
            losses = np.zeros(0)
            if causal and logits is not None:
                losses = _losses(logits[item], trials.next_tokens(0, piece.inputs))
            samples[numbers[id(piece)]] = _Observed(observer.sums(item), losses)
    if trials.is_masked(source) and not source.no_logits:
        mask = trials.mask_id(source)
        for number, piece in enumerate(pieces):
            hidden = trials.masked(piece.text.number, piece.inputs, mask, seed=0)
            for trial in hidden:
                logits = source.forward(
                    [trial.inputs], (), ForwardRequest(hidden=False, logits=True)
                ).logits
                assert logits is not None
                samples[number].losses = _losses(logits[0], hidden)
    return [samples[number] for number in range(len(pieces))]


def _next_tokens(source: Source) -> bool:
    """Whether the model predicts the next token."""
    return not source.no_logits and not trials.is_masked(source)


def _losses(logits: torch.Tensor, tested: Sequence[trials.Trial]) -> NDArray[np.float64]:
    """[n], of the tokens that a text has to be predicted."""
    if not tested:
        return np.zeros(0)
    (trial,) = tested
    predictions = logits[torch.tensor(trial.positions, device=logits.device)].float()
    targets = torch.tensor(trial.targets, device=logits.device)
    losses = F.cross_entropy(predictions, targets, reduction="none")
    return losses.cpu().double().numpy()


def _probe(source: Source, probes: Sequence[Inputs], settings: FilmSettings) -> Iterator[Sums]:
    """Yield the sums of repeated random tokens, one batch for those of a length."""
    for _, group in groupby(
        sorted(enumerate(probes), key=lambda numbered: numbered[1].length),
        key=lambda numbered: numbered[1].length,
    ):
        batch = [inputs for _, inputs in group]
        observer = score_batch(source, batch, settings.measured)
        yield from (observer.sums(item) for item in range(len(batch)))


def _only(sums: Sums, names: Sequence[str]) -> Sums:
    """With nothing in the other scores, nor in what could count."""
    keep = np.isin(sums.names, names)
    return replace(
        sums, values=sums.values * keep, chances=sums.chances * keep, rows=sums.rows * keep,
        shares=sums.shares * keep[:, None], counted=sums.counted * 0,
    )  # fmt: skip


def _without(sums: Sums, names: Sequence[str]) -> Sums:
    """With nothing in these scores."""
    remaining = [name for name in sums.names if name not in names]
    return replace(_only(sums, remaining), counted=sums.counted)


def _maps(source: Source, inputs: Inputs, show: int) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """Return the maps of the first tokens of a text in 255ths; self-attention of one kind alone."""
    if not show or len(source.layout.kinds) != 1 or "cross" in source.layout.kinds:
        return np.zeros((0, 0, 0), np.uint8), ()
    recorder = Recorder([inputs])
    observe(source, [inputs], recorder)
    (sides,) = inputs.sides.values()
    texts = sides.queries.texts[:show]
    n = len(texts)
    stacked = np.concatenate([maps[:, :n, :n] for maps in recorder.maps().values()])
    return np.rint(stacked * 255).clip(0, 255).astype(np.uint8), tuple(texts)


def _ablated(
    source: Source, pieces: Sequence[Tokenized], settings: FilmSettings
) -> tuple[NDArray[np.float64], str]:
    """Measure what ablating each head changes, [H, 2]: the change, and half of its interval."""
    if not settings.ablate:
        return np.zeros((0, 2)), ""
    from attnviz.features.ablation.function import ablate

    ablation = ablate(
        _prompts(pieces[:ABLATED]), model=source, method="mean,resample", seed=settings.seed
    )
    changes: dict[Head, tuple[float, float]] = {}
    for effect in ablation.effects:
        if len(effect.heads) == 1:
            low, high = effect.low, effect.high
            half = np.nan if low is None or high is None else (high - low) / 2
            changes[effect.heads[0]] = effect.change, half
    unknown = (np.nan, np.nan)
    return np.array([changes.get(head, unknown) for head in source.layout]), ablation.unit


def _prompts(pieces: Sequence[Tokenized]) -> list[Prompt | str]:
    prompts: list[Prompt | str] = []
    for piece in pieces:
        prompt, words = piece.text.prompt, piece.inputs.texts[:1]
        prompts.append(prompt.cut_to(words[0]) if words else prompt)
    return prompts


def _annotated(source: Source, settings: FilmSettings) -> dict[str, list[Role]]:
    """Return the roles that treebanks and pronouns give, by the heads' names."""
    treebanks, antecedents = split_gold(settings.gold)
    results: list[Result] = []
    if treebanks:
        from attnviz.features.syntax.function import syntax

        results.append(syntax(treebanks, model=source))
    if antecedents:
        from attnviz.features.coref.function import coref

        results.append(coref(antecedents, model=source))
    roles: dict[str, list[Role]] = {}
    for result in results:
        for head, annotated in result.annotated_roles().items():
            roles.setdefault(source.layout.name(head), []).extend(role for role, _ in annotated)
    return roles


def _digest(several: Sequence[Inputs]) -> str:
    """Return a hash of the tokens of a text."""
    digest = hashlib.blake2b(digest_size=8)
    for inputs in several:
        for kind, sides in inputs.sides.items():
            digest.update(
                f"{kind}{sides.queries.identity}{sides.keys.identity}".encode(
                    "utf-8", "surrogatepass"
                )
            )
    return digest.hexdigest()


@dataclass(frozen=True)
class FilmStudy:
    """What is measured at every checkpoint."""

    texts: tuple[Text, ...]  # to run
    settings: FilmSettings  # what to measure
    files: tuple[str, ...]  # that the texts are from
    model: ModelSettings  # where to run, and in which precision; each checkpoint takes its place


@dataclass(frozen=True)
class FilmWorker:
    """Measures a checkpoint, which is in memory no longer than that takes."""

    study: FilmStudy

    def __call__(self, checkpoint: Checkpoint) -> MeasuredStep:
        """Load it, run every text, forget it."""
        study = self.study
        model = study.model.but(model=checkpoint.model)
        source = model.load()
        return measure(
            source,
            prepare(source, study.texts, study.settings),
            study.settings,
            step=checkpoint.step,
            name=checkpoint.name,
            identity=dict(model.identity),
            files=study.files,
        )


def run(
    checkpoints: Sequence[Checkpoint], study: FilmStudy, progress: Progress
) -> tuple[MeasuredStep, ...]:
    """Measure every checkpoint."""
    state = None if study.settings.state is None else Path(study.settings.state)
    measured = {} if state is None else _done(checkpoints, study, state)
    todo = [checkpoint for checkpoint in checkpoints if checkpoint.step not in measured]
    progress("checkpoints", len(measured), len(checkpoints))
    jobs = min(study.settings.jobs, len(todo))
    executor: AbstractContextManager[Executor[Checkpoint, MeasuredStep]] = (
        Inline(FilmWorker(study)) if jobs <= 1 else Processes(partial(FilmWorker, study), jobs)
    )
    with Stopping() as stop, executor as workers:
        for task, step in answered(workers, todo, "a checkpoint"):
            measured[task.step] = step
            if state is not None:
                steps.write(state, step)
            progress("checkpoints", len(measured), len(checkpoints))
            if stop.asked():
                break
    return tuple(measured[step] for step in sorted(measured))


def _done(
    checkpoints: Sequence[Checkpoint], study: FilmStudy, folder: Path
) -> dict[int, MeasuredStep]:
    """Return what the folder holds of this run; UsageError for steps of another one."""
    with system_errors(InputError, f"cannot use {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    measured = {}
    for checkpoint in checkpoints:
        path = steps.path_of(folder, checkpoint.step)
        if not path.exists():
            continue
        step = steps.read(path)
        header = step.header
        equal = header.asked == study.settings.document() and header.files == list(study.files)
        if not equal or header.identity != dict(identity(checkpoint.model)):
            raise UsageError(
                "{} is of other texts, settings or weights than this run; name another folder for "
                "{state}, or delete it",
                path,
                state=...,
            )
        measured[checkpoint.step] = step
    return measured
