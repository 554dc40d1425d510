"""Thoughts on the terminal: a trace sentence by sentence, its receiver heads, and all heads."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table

from attnviz.drawing.labels import counted, shorten, visible
from attnviz.drawing.renderable import table_of
from attnviz.drawing.signed import SignedGrid
from attnviz.drawing.terminal import Line
from attnviz.features.thoughts import words
from attnviz.features.thoughts.result import Thoughts, Trace

_TEXT, _NAME, _HEADS = 52, 16, 8


def parts(result: Thoughts, top: int | None = None) -> Iterator[RenderableType]:
    """The sentence, the first trace, the heads, the grid of all of them, the origin."""
    trace = result.traces[0]
    yield Line(words.sentence(result), "bold")
    yield ""
    if len(result.traces) > 1:
        yield Line(f"the first of {counted(len(result.traces), 'trace')}", "dim")
    yield _sentences(result, trace)
    yield Line(_legend(result), "dim")
    yield ""
    if ranked := result.ranked():
        yield _heads(result, trace, top or _HEADS)
        yield Line(_heads_legend(result), "dim")
        yield ""
        values = {
            head.head: value
            for head in ranked
            if (value := head.kurtosis if head.excess is None else head.excess) is not None
        }
        what = "kurtosis minus that in random order" if result.draws else "kurtosis"
        yield Line(f"all heads: {what}", "bold")
        yield SignedGrid(result.layout, values, max(map(abs, values.values()), default=0.0), -1)
    yield Line(words.measure(result), "dim")


def _legend(result: Thoughts) -> str:
    read = (
        f"read: mean weight of {words.readers(result)} on its tokens from {result.apart} or more "
        "sentences later"
    )
    parts = [read]
    if result.causal:
        parts += [
            "needed: log KL of these without attention to it, against the mean over all that stand "
            "before",
            "needs: the sentences without which it moves most, all distances",
        ]
    if result.resampled:
        parts.append(
            "resampled: log probability of the answer with the sentence kept, minus that with it "
            "written anew"
        )
    if any(row.sure for row in result.traces[0].resampled):
        parts.append(f"{words.MARK} surely not 0, judged with all sentences")
    return "; ".join(parts)


def _sentences(result: Thoughts, trace: Trace) -> Table:
    importance, read = trace.importance(result.apart), trace.read
    tagged = any(sentence.part != "text" for sentence in trace.sentences)
    table = table_of(
        ">", "sentence", *(["part"] if tagged else []), ">read",
        *([">needed", "needs"] if result.causal else []),
        *([">resampled"] if result.resampled else []),
    )  # fmt: skip
    for number, sentence in enumerate(trace.sentences):
        cells = [shorten(words.number(trace, number), _NAME)]
        cells += [shorten(visible(sentence.text), _TEXT)]
        cells += [sentence.part] if tagged else []
        cells += [words.weight(read[number])]
        if result.causal:
            feeds = ", ".join(words.number(trace, other) for other, _ in trace.feeds(number))
            cells += [words.effect(importance[number]), feeds]
        cells += [words.anew(trace.anew[number])] if result.resampled else []
        table.add_row(*cells)
    return table


def _heads(result: Thoughts, trace: Trace, most: int) -> Table:
    several = any(words.ends(head) for head in result.heads)
    controls = bool(result.draws)
    table = table_of(
        "head", ">kurtosis", *([">in random order"] if controls else []),
        *([">difference, 95 %"] if several else []), "reads most",
    )  # fmt: skip
    for head in result.ranked()[:most]:
        read = words.top(words.on_trace(trace, head).vertical)
        name = result.layout.name(head.head) + words.MARK * bool(head.sure)
        cells = [name, words.tail(head.kurtosis)]
        cells += [words.tail(head.control)] if controls else []
        cells += [words.ends(head)] if several else []
        cells += ["" if read is None else visible(words.said(trace, read, 40))]
        table.add_row(*cells)
    return table


def _heads_legend(result: Thoughts) -> str:
    scored = max(len(trace.sentences) for trace in result.traces) - result.apart
    largest = scored - 5 + 1 / (scored - 1)
    most = f"; one sentence of {scored} apart from all others gives {largest:.1f}"
    sure = any(head.sure for head in result.heads)
    told = f"; {words.MARK} surely above random order" if sure else ""
    return f"kurtosis: of vertical scores over sentences{most}{told}"
