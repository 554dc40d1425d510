"""Words and figures that every form of thoughts shares. Sentences are counted from 1."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from attnviz.drawing.grid import signed
from attnviz.drawing.labels import counted, model_name, quoted, ran_on, shorten, visible
from attnviz.features.thoughts.result import ReceiverHead, Resampled, Thoughts, Trace, TraceHead
from attnviz.features.thoughts.sentences import LEAST
from attnviz.statistics.clusters import FEW
from attnviz.statistics.clusters import LEAST as LEAST_TRACES
from attnviz.statistics.order import texts_needed

MARK = "*"
"""Behind a head whose kurtosis is surely above its control, judged with all heads, and behind the
effect of a sentence that surely is none of chance, judged with all of its trace."""
_QUOTED = 60


def number(trace: Trace, sentence: int) -> str:
    """Return what a sentence is called: its number, or the span that it is."""
    name = trace.sentences[sentence].name
    return visible(name) if name else str(sentence + 1)


def said(trace: Trace, sentence: int, cells: int = _QUOTED) -> str:
    """Return a sentence by its number and its words."""
    entry = trace.sentences[sentence]
    return f"{number(trace, sentence)}, {quoted(shorten(entry.text, cells))}"


def weight(value: float | None) -> str:
    """Return a mean weight from token to token."""
    if value is None:
        return "–"
    return "0" if value < 5e-5 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def figure(value: float | None) -> str:
    """Return an effect on log KL, or a kurtosis."""
    return "–" if value is None else signed(value, 2, 2)


def anew(sentence: Resampled | None) -> str:
    """How much likelier the answer is where a sentence is kept."""
    return (
        figure(None) if sentence is None else figure(sentence.effect) + MARK * bool(sentence.sure)
    )


def ends(judged: ReceiverHead | Resampled | None) -> str:
    """Return the joint interval of a head's excess or of an effect; empty where there is none."""
    if judged is None or judged.joint_low is None or judged.joint_high is None:
        return ""
    return f"{signed(judged.joint_low, 2)} to {signed(judged.joint_high, 2)}"


def top(values: Sequence[float | None]) -> int | None:
    """Return the place of the largest; None where none is known."""
    ranked = [(value, -n) for n, value in enumerate(values) if value is not None]
    return -max(ranked)[1] if ranked else None


def on_trace(trace: Trace, head: ReceiverHead) -> TraceHead:
    """Return a head on one trace."""
    return next(entry for entry in trace.heads if entry.head == head.head)


def sentence(result: Thoughts) -> str:
    """Return what stands out: of one trace its sentences, of several the heads."""
    heads = _heads(result)
    if len(result.traces) > 1:
        return heads
    (trace,) = result.traces
    importance = trace.importance(result.apart)
    needed, read = top(importance), top(trace.read)
    parts = []
    if needed is not None and (importance[needed] or 0.0) > 0:
        parts.append(f"Later sentences move most without {said(trace, needed)}")
    if parts and read == needed:
        parts.append(f"{readers(result)} read it most too")
    elif read is not None:
        heads = readers(result) if parts else readers(result).capitalize()
        parts.append(f"{heads} read {said(trace, read)} most")
    sure = [row.effect if row.sure else None for row in trace.resampled]
    decides = top(sure)
    if decides is not None and (sure[decides] or 0.0) > 0:
        likelier = (
            f"{said(trace, decides, 40)} makes the answer likelier by {sure[decides]:.2g} nats"
        )
        parts.append(f"{'s' if parts else 'S'}entence {likelier}")
    if not parts:
        return heads
    text = "; ".join(parts)
    return text if text.endswith("”") else f"{text}."


def readers(result: Thoughts) -> str:
    """Return the heads whose reading is told; receiver heads only where some surely are."""
    return "receiver heads" if result.receivers else "the heads of the largest kurtosis"


def nobody(result: Thoughts) -> str:
    """Why no head may be called a receiver head, in a sentence; empty where one may."""
    if result.receivers or not result.ranked():
        return ""
    if not result.draws:
        return "No head can be called a receiver head: there is no control to hold it against."
    if any(head.joint_low is not None for head in result.heads):
        return (
            f"No head of {len(result.ranked())} is shown to be a receiver head: no kurtosis is "
            "surely above that of the same sentences in random order."
        )
    traces, needed = result.clusters, texts_needed(len(result.heads))
    return (
        f"No head can be called a receiver head: {counted(traces, 'trace')} cannot tell "
        f"{len(result.heads)} heads from their controls at once; {needed} can."
    )


def _heads(result: Thoughts) -> str:
    ranked = result.ranked()
    if not ranked:
        return (
            "No head has a kurtosis: too few sentences are read from "
            f"{counted(result.apart, 'sentence')} later."
        )
    if said_of_none := nobody(result):
        return said_of_none
    first, *extra = result.receivers
    control = "" if first.control is None else f", {figure(first.control)} in random order"
    name = result.layout.name(first.head)
    also = f" and {counted(len(extra), 'more head')}" if extra else ""
    return (
        f"{name}{also} {'are receiver heads' if extra else 'is a receiver head'}: the kurtosis of "
        f"{name} is {figure(first.kurtosis)}{control}."
    )


def measure(result: Thoughts) -> str:
    """Return what was measured on what, in one line."""
    sentences = sum(len(trace.sentences) for trace in result.traces)
    reliability = result.reliability
    parts = (
        f"vertical scores from {counted(result.apart, 'sentence')} on",
        f"{counted(result.texts, 'trace')} of {counted(sentences, 'sentence')}",
        f"{counted(result.draws, 'random order')} of each" if result.draws else "",
        f"{counted(result.resampled, 'continuation')} of each sentence" if result.resampled else "",
        "" if reliability is None else f"split-half reliability {reliability:.2f}",
        ran_on(result.source),
    )
    return " · ".join(filter(None, parts)) + " · interrupted" * result.partial


def title(result: Thoughts) -> str:
    """Of pictures and pages."""
    subject = "what later sentences read and need" if result.causal else "what later sentences read"
    return f"{model_name(result.source)}: {subject}"


def notes(result: Thoughts) -> Iterator[str]:
    """Yield what to say of a result."""
    if result.texts > result.clusters:
        yield f"{result.texts:,} traces count as {result.clusters:,}: some are word for word alike."
    if result.clusters == 1:
        yield (
            "One trace: which heads return to few sentences, and which sentences count, may be its "
            f"own; nothing is known about others. Give {FEW} or more for intervals."
        )
    if len(result.traces) == 1 and (nobody_text := nobody(result)):
        yield nobody_text
    if result.resampled:
        yield from _resampled(result)
    short = [t for t in result.traces if len(t.sentences) < result.apart + LEAST]
    if short:
        yield (
            f"{counted(len(short), 'trace')} of fewer than {result.apart + LEAST} sentences: too "
            f"few are read from {result.apart} or more sentences later for a kurtosis."
        )


def _resampled(result: Thoughts) -> Iterator[str]:
    """Of sentences that were written anew."""
    trace = result.traces[0]
    answer = quoted(shorten(visible(trace.answer), _QUOTED))
    of = " of the first trace" * (len(result.traces) > 1)
    yield f"The answer{of} that sentences are written anew for is {answer}"
    if result.resampled < LEAST_TRACES:
        count = counted(result.resampled, "continuation")
        yield f"{count} of each sentence have no interval; ask for {LEAST_TRACES} or more."
    anew = [row for trace in result.traces for row in trace.resampled]
    if any(not row.continuations for row in anew):
        yield "A sentence with nothing before it cannot be written anew."
    continuations = [continuation for row in anew for continuation in row.continuations]
    repeats = sum(continuation.same for continuation in continuations)
    if repeats:
        count = counted(len(continuations), "continuation")
        yield f"Of {count}, {repeats:,} begin with the very sentence that they replace."
