"""Thoughts described: a trace by sentences, receiver heads, all heads, rows, findings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table

from attnviz.core.result import Figures, Finding, Measure, Value
from attnviz.drawing.console import table_of
from attnviz.drawing.grid import signed_grid
from attnviz.drawing.labels import counted, shorten, visible
from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.drawing.terminal import Line
from attnviz.features.thoughts import words
from attnviz.features.thoughts.result import ReceiverHead, Thoughts, Trace

_TEXT, _NAME, _HEADS, _NODE = 52, 16, 8, 40


def parts(result: Thoughts, top: int | None = None) -> Iterator[RenderableType]:
    """Yield the sentence, the first trace, the heads, the grid of all of them, the origin."""
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
        label = "kurtosis minus that in random order" if result.draws else "kurtosis"
        yield Line(f"all heads: {label}", "bold")
        yield signed_grid(result.layout, values, max(map(abs, values.values()), default=0.0), -1)
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
            feeds = ", ".join(words.number(trace, source) for source, _ in trace.feeds(number))
            cells += [words.figure(importance[number]), feeds]
        cells += [words.anew(trace.anew[number])] if result.resampled else []
        table.add_row(*cells)
    return table


def _heads(result: Thoughts, trace: Trace, limit: int) -> Table:
    several = any(words.ends(head) for head in result.heads)
    controls = bool(result.draws)
    table = table_of(
        "head", ">kurtosis", *([">in random order"] if controls else []),
        *([">difference, 95 %"] if several else []), "reads most",
    )  # fmt: skip
    for head in result.ranked()[:limit]:
        read = words.top(words.on_trace(trace, head).vertical)
        name = result.layout.name(head.head) + words.MARK * bool(head.sure)
        cells = [name, words.figure(head.kurtosis)]
        cells += [words.figure(head.control)] if controls else []
        cells += [words.ends(head)] if several else []
        cells += ["" if read is None else visible(words.said(trace, read, 40))]
        table.add_row(*cells)
    return table


def _heads_legend(result: Thoughts) -> str:
    scored = max(len(trace.sentences) for trace in result.traces) - result.apart
    largest = scored - 5 + 1 / (scored - 1)
    scale = f"; one sentence of {scored} apart from all others gives {largest:.1f}"
    sure = any(head.sure for head in result.heads)
    mark = f"; {words.MARK} surely above random order" if sure else ""
    return f"kurtosis: of vertical scores over sentences{scale}{mark}"


_OF_HEADS = ("kurtosis", "control", "excess", "joint_low", "joint_high", "sure")
_OF_SENTENCES = (
    "text", "part", "tokens", "read", "needed", "resampled", "resampled_low", "resampled_high",
)  # fmt: skip
_OF_PAIRS = ("attention", "log_kl", "effect")
COLUMNS = (
    "kind", *HEAD, "trace", "sentence", "earlier", *_OF_HEADS, *_OF_SENTENCES, *_OF_PAIRS,
)  # fmt: skip


def rows(result: Thoughts) -> list[Row]:
    """List a row for each head, sentence and pair of sentences, from 1; None where not known."""
    listed = [
        _row(result, "head", head, **{name: getattr(head, name) for name in _OF_HEADS})
        for head in result.heads
    ]
    for number, trace in enumerate(result.traces, 1):
        listed += _sentence_rows(result, number, trace)
        listed += _pairs(result, number, trace)
    return listed


def _row(result: Thoughts, kind: str, head: ReceiverHead | None = None, **values: Any) -> Row:
    row: Row = {"kind": kind} | which_head(result.layout, *([head.head] if head else []))
    return row | {name: values.get(name) for name in COLUMNS if name not in (*row, *HEAD)}


def _sentence_rows(result: Thoughts, number: int, trace: Trace) -> Iterator[Row]:
    values = zip(
        trace.sentences, trace.read, trace.importance(result.apart), trace.anew, strict=True
    )
    for position, (sentence, read, needed, anew) in enumerate(values, 1):
        resampled: dict[str, Any] = {}
        if anew is not None:
            resampled = {
                "resampled": anew.effect,
                "resampled_low": anew.joint_low,
                "resampled_high": anew.joint_high,
            }
        yield _row(
            result, "sentence", trace=number, sentence=position, text=sentence.text,
            part=sentence.part, tokens=sentence.stop - sentence.start, read=read, needed=needed,
            **resampled,
        )  # fmt: skip


def _pairs(result: Thoughts, number: int, trace: Trace) -> Iterator[Row]:
    effects = trace.effects
    for later in range(len(trace.sentences)):
        for earlier in range(later):
            moved: dict[str, Any] = {}
            if trace.log_kl:
                moved = {"log_kl": trace.log_kl[later][earlier], "effect": effects[later][earlier]}
            yield _row(
                result, "pair", trace=number, sentence=later + 1, earlier=earlier + 1,
                attention=trace.attention[later][earlier], **moved,
            )  # fmt: skip


def finding(result: Thoughts, name: str) -> Finding:
    """How far attention of a head returns to a few sentences of a trace."""
    heads = [head for head in result.heads if head.kurtosis is not None]
    lines = {result.layout.name(head.head): list(_lines(result, head)) for head in heads}
    tails: dict[str, Value] = {
        result.layout.name(head.head): (head.kurtosis or 0.0, None, None) for head in heads
    }
    excess: dict[str, Value] = {
        result.layout.name(head.head): (head.excess, head.joint_low, head.joint_high)
        for head in heads
        if head.excess is not None
    }
    method = (
        f"{words.sentence(result)} Thought anchors: {words.measure(result)}. The control is the "
        "same sentences in random order."
    )
    measures = [
        Measure("kurtosis", "kurtosis of vertical scores over sentences", "", -1, tails),
        Measure("beyond order", "kurtosis minus that in random order", "", -1, excess),
    ]
    return Finding.of("thoughts", name, "Which sentences it returns to", method, lines, measures)


def _lines(result: Thoughts, head: ReceiverHead) -> Iterator[str]:
    control = "" if head.control is None else f", {words.figure(head.control)} in random order"
    yield f"kurtosis over sentences {words.figure(head.kurtosis)}{control}"
    trace = result.traces[0]
    read = words.top(words.on_trace(trace, head).vertical)
    if read is not None:
        which = " of the first trace" * (len(result.traces) > 1)
        yield f"of sentences{which}, later ones read {words.said(trace, read)} most"


def figures(result: Thoughts) -> Figures:
    """Kurtosis and its excess by head."""
    values = {
        result.layout.name(head.head): {"kurtosis": head.kurtosis, "excess": head.excess}
        for head in result.heads
    }
    return Figures(values, settings={"apart": str(result.apart)})


def dot(result: Thoughts) -> str:
    """Return the first trace as DOT: an edge to each sentence from those that it needs most."""
    trace = result.traces[0]
    lines = ["digraph thoughts {", "  rankdir=TB;", '  node [shape=box, fontname="sans-serif"];']
    for number, sentence in enumerate(trace.sentences):
        text = f"{words.number(trace, number)}: {shorten(visible(sentence.text), _NODE)}"
        lines.append(f"  s{number + 1} [label={_quoted(text)}];")
    for number in range(len(trace.sentences)):
        lines += [
            f"  s{source + 1} -> s{number + 1} [label={_quoted(words.figure(value))}];"
            for source, value in trace.feeds(number)
        ]
    return "\n".join([*lines, "}"]) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
