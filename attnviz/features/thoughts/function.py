"""``attnviz.thoughts``: which sentences of reasoning traces later ones read, and need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from attnviz.captures.captured import notes as notes_of
from attnviz.captures.inputs import Input, prompts_of
from attnviz.captures.loading import light
from attnviz.captures.settings import ModelSettings
from attnviz.captures.trials import same_as
from attnviz.core.arrays import Floats
from attnviz.core.interface import interface
from attnviz.core.prompt import Generation, Inputs, Prompt
from attnviz.core.result import fingerprint
from attnviz.core.settings import Progress
from attnviz.core.source import ForwardRequest, Source
from attnviz.core.spans import Range
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, ModelError
from attnviz.features.thoughts import result as records
from attnviz.features.thoughts.sentences import (
    SentenceObserver,
    judged,
    kurtosis,
    reliability,
    split,
    vertical_scores,
)
from attnviz.features.thoughts.suppress import resampled, suppressed
from attnviz.features.thoughts.words import notes
from attnviz.statistics.histogram import none_if_nan

_TOLD = 2  # notes of the texts themselves


@dataclass(frozen=True, slots=True)
class Ready:
    """A trace that a model has prepared, and its sentences."""

    inputs: Inputs
    tokens: Tokens
    sentences: tuple[records.Sentence, ...]

    @property
    def runs(self) -> tuple[Range, ...]:
        """The tokens of every sentence."""
        return tuple((sentence.start, sentence.stop) for sentence in self.sentences)


@dataclass(frozen=True, eq=False, slots=True)
class Measured:
    """What was measured of a trace of n sentences, with N heads."""

    means: Floats  # [N, n, n], from sentence to sentence
    vertical: Floats  # [N, n]
    kurtosis: Floats  # [N]; ``control`` of the sentences in random order
    control: Floats
    effects: Floats | None  # [n, n], log KL; None where it was not measured
    # the sentences before the answer, where they were written anew
    resampled: tuple[records.Resampled, ...]


def _check(source: Source, settings: records.ThoughtsSettings) -> None:
    """Refuse models that do not write from left to right, or cannot be cut."""
    info = source.info
    if source.layout.kinds != ("decoder",):
        raise ModelError(
            "{} does not read from left to right alone, so that nothing is a later thought; take a "
            "causal {model}",
            info.model,
            model=...,
        )
    if settings.resample and source.no_logits:
        raise ModelError(
            "{} predicts no tokens, and cannot write a sentence anew: {}", info.model,
            source.no_logits, remedy="leave out {resample}", resample=...,
        )  # fmt: skip
    if not settings.suppress:
        return
    if source.no_gates:
        raise ModelError(
            "attention of {} cannot be suppressed: {}", info.model, source.no_gates,
            remedy="look alone with {suppress}", suppress=False,
        )  # fmt: skip
    if source.no_logits:
        raise ModelError(
            "{} predicts no tokens: {}", info.model, source.no_logits,
            remedy="look alone with {suppress}", suppress=False,
        )  # fmt: skip


def _ready(source: Source, number: int, prompt: Prompt, count: int) -> Ready:
    """Return a trace with its sentences: of one that the model writes, those that it wrote."""
    try:
        inputs = source.prepare(prompt)
        tokens = inputs.sides["decoder"].queries
        names = tuple(prompt.spans or ())
        sentences = split(tokens, names, _first(tokens, prompt))
    except InputError as error:
        if count == 1:
            raise
        raise InputError("trace {}: {}", number + 1, error.message) from None
    return Ready(inputs, tokens, sentences)


def _first(tokens: Tokens, prompt: Prompt) -> int:
    """Get the token at which a trace begins: of a chat, with its last message unless it goes on."""
    if tokens.written:
        return len(tokens) - tokens.written
    spans = [span for span in tokens.spans if span.name not in (prompt.spans or {})]
    if prompt.chat is None or not spans:
        return 0
    return max(span.ranges[0][0] for span in spans)


def _measured(
    source: Source,
    trace: Ready,
    generation: Generation | None,
    settings: records.ThoughtsSettings,
    number: int,
    progress: Progress,
) -> Measured:
    means = _means(source, trace.inputs, trace.runs)
    vertical = vertical_scores(means, settings.apart)
    controls = [
        kurtosis(vertical_scores(_shuffled(source, trace, order), settings.apart))
        for order in (
            np.random.default_rng([settings.seed, number, draw]).permutation(len(trace.runs))
            for draw in range(settings.draws)
        )
    ]
    control = np.array(controls).mean(0) if controls else np.full(len(means), np.nan)
    effects = None
    if settings.suppress:
        count = len(trace.runs) - 1
        effects = suppressed(
            source, trace.inputs, trace.runs, tokens=settings.batch_tokens,
            on_cuts=lambda done: progress("sentences", done, count),
        )  # fmt: skip
    anew: tuple[records.Resampled, ...] = ()
    if settings.resample:
        anew = resampled(
            source, trace.inputs, trace.sentences, settings.resample,
            generation=generation, seed=(settings.seed, number),
            on_sentence=lambda done, count: progress("sentences written anew", done, count),
        )  # fmt: skip
    return Measured(means, vertical, kurtosis(vertical), control, effects, anew)


def _means(source: Source, inputs: Inputs, runs: Sequence[Range]) -> Floats:
    """[N, n, n] of one pass."""
    observer = SentenceObserver(runs, inputs.length)
    source.forward([inputs], [observer], ForwardRequest(hidden=False))
    return observer.means()


def _shuffled(source: Source, trace: Ready, order: NDArray[np.int64]) -> Floats:
    """[N, n, n] of the same sentences in another order; what stands around them stays."""
    ids, runs, end_before = list[int](), list[Range](), 0
    for (start, stop), number in zip(trace.runs, order, strict=True):
        ids += trace.tokens.ids[end_before:start]
        begin, end = trace.runs[number]
        runs.append((len(ids), len(ids) + end - begin))
        ids += trace.tokens.ids[begin:end]
        end_before = stop
    ids += trace.tokens.ids[end_before:]
    inputs = source.prepare(Prompt(ids=tuple(ids), special_tokens=False, max_tokens=len(ids)))
    return _means(source, inputs, runs)


def _trace(
    source: Source, trace: Ready, measured: Measured, chosen: Sequence[records.ReceiverHead]
) -> records.Trace:
    heads = list(source.layout)
    return records.Trace(
        tokens=len(trace.tokens),
        written=trace.tokens.written,
        sentences=trace.sentences,
        attention=_earlier(measured.means.mean(0)),
        receivers=tuple(
            records.SentenceMatrix(head.head, _earlier(measured.means[heads.index(head.head)]))
            for head in chosen
        ),
        heads=tuple(
            records.TraceHead(
                head, none_if_nan(tail), none_if_nan(control), tuple(map(none_if_nan, vertical))
            )
            for head, tail, control, vertical in zip(
                heads, measured.kurtosis, measured.control, measured.vertical, strict=True
            )
        ),
        log_kl=() if measured.effects is None else _earlier(measured.effects),
        resampled=measured.resampled,
    )


def _earlier(matrix: Floats) -> records.Matrix:
    """Return a matrix from later to earlier sentences; None elsewhere."""
    return tuple(
        tuple(float(value) if earlier < number else None for earlier, value in enumerate(row))
        for number, row in enumerate(matrix)
    )


@interface
def thoughts(
    text: Input | Iterable[Input],
    *,
    settings: records.ThoughtsSettings,
    model: ModelSettings,
    progress: Progress = lambda stage, done, all_: None,
) -> records.Thoughts:
    """Measure which sentences of a reasoning trace later ones read, and which they need.

    With A[a, b] the mean weight of a head from the tokens of sentence a to those of sentence b, the
    vertical score of b is the mean of A[a, b] over a ≥ b + ``apart``, and a head whose vertical
    scores have a large kurtosis over sentences is a receiver head. Where attention to b is
    suppressed for all that follows, in all heads, the effect on a later sentence a is the mean over
    its tokens of log KL, minus the mean over b of that of a.

    Args:
        text: a trace or a prompt, or several. Of a prompt with ``generate`` the trace is what the
            model writes, of a ``chat`` its last message; what stands before is not split. Spans of
            a prompt are the sentences where it names any.

    Returns:
        Every head with its kurtosis, that of the sentences in random order, and their difference
        with an interval over traces; of every trace the matrices from sentence to sentence
        (natural logarithms of nats).

    Raises:
        InputError: no trace, one of fewer than two sentences or with spans that overlap, or one
            that is longer than the model takes.
        UsageError: recorded attention; ModelError: a model that is not causal, or cannot be cut.

    Source:
        Bogdan et al. 2025 (arXiv:2506.19143).
    """
    lacks = "cannot be suppressed, since that needs the model"
    prompts, model = prompts_of(text, lacks, model)
    source = light(model.load())
    _check(source, settings)
    ready = [_ready(source, number, prompt, len(prompts)) for number, prompt in enumerate(prompts)]
    measured: list[Measured] = []
    partial = False
    try:
        for number, trace in enumerate(ready):
            progress("traces", number, len(ready))
            generation = prompts[number].generate
            measured.append(_measured(source, trace, generation, settings, number, progress))
        progress("traces", len(ready), len(ready))
    except KeyboardInterrupt:
        if not measured:
            raise InputError("interrupted before anything was measured") from None
        partial, ready = True, ready[: len(measured)]
    names = [str(same_as(trace.inputs)) for trace in ready]
    tails = np.array([trace_figures.kurtosis for trace_figures in measured])
    controls = np.array([trace_figures.control for trace_figures in measured])
    heads = judged(source.layout, tails, controls, names)
    result = records.Thoughts(
        source=source.info,
        layout=source.layout,
        identity=model.identity,
        texts=len(ready),
        corpus=fingerprint(same_as(trace.inputs) for trace in ready) if len(ready) > 1 else "",
        seed=settings.seed,
        partial=partial,
        apart=settings.apart,
        draws=settings.draws,
        clusters=len(set(names)),
        reliability=reliability(tails, names, settings.seed),
        heads=heads,
        traces=(),
    )
    chosen = (result.receivers or result.ranked())[: records.RECEIVERS]
    traces = tuple(
        _trace(source, trace, figures, chosen)
        for trace, figures in zip(ready, measured, strict=True)
    )
    result = replace(result, traces=traces)
    messages = list(dict.fromkeys(note for trace in ready for note in notes_of(trace.inputs)))
    return replace(result, notes=(*messages[-_TOLD:], *notes(result)))
