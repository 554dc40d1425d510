"""What thoughts say of every head, to stand beside it elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.core.findings import Figures, Finding, Measure, Value
from attnviz.features.thoughts import words
from attnviz.features.thoughts.result import ReceiverHead, Thoughts


def finding(result: Thoughts, name: str) -> Finding:
    """How far attention of a head returns to a few sentences of a trace."""
    heads = [head for head in result.heads if head.kurtosis is not None]
    said = {result.layout.name(head.head): list(_lines(result, head)) for head in heads}
    tails: dict[str, Value] = {
        result.layout.name(head.head): (head.kurtosis or 0.0, None, None) for head in heads
    }
    excess: dict[str, Value] = {
        result.layout.name(head.head): (head.excess, head.joint_low, head.joint_high)
        for head in heads
        if head.excess is not None
    }
    how = (
        f"{words.sentence(result)} Thought anchors: {words.measure(result)}. The control is the "
        "same sentences in random order."
    )
    measures = [
        Measure("kurtosis", "kurtosis of vertical scores over sentences", "", -1, tails),
        Measure("beyond order", "kurtosis minus that in random order", "", -1, excess),
    ]
    return Finding.of("thoughts", name, "Which sentences it returns to", how, said, measures)


def _lines(result: Thoughts, head: ReceiverHead) -> Iterator[str]:
    control = "" if head.control is None else f", {words.tail(head.control)} in random order"
    yield f"kurtosis over sentences {words.tail(head.kurtosis)}{control}"
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
