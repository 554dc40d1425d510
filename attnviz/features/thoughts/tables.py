"""Thoughts as rows: heads, then the sentences of every trace, then its pairs of sentences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.features.thoughts.result import ReceiverHead, Thoughts, Trace

_OF_HEADS = ("kurtosis", "control", "excess", "joint_low", "joint_high", "sure")
_OF_SENTENCES = (
    "text", "part", "tokens", "read", "needed", "resampled", "resampled_low", "resampled_high",
)  # fmt: skip
_OF_PAIRS = ("attention", "log_kl", "effect")
COLUMNS = (
    "kind", *HEAD, "trace", "sentence", "earlier", *_OF_HEADS, *_OF_SENTENCES, *_OF_PAIRS,
)  # fmt: skip


def rows(result: Thoughts) -> list[Row]:
    """A row for each head, sentence and pair of sentences, counted from 1; None where not known."""
    made = [_head(result, head) for head in result.heads]
    for number, trace in enumerate(result.traces, 1):
        made += _sentences(result, number, trace)
        made += _pairs(result, number, trace)
    return made


def _row(result: Thoughts, kind: str, head: ReceiverHead | None = None, **known: Any) -> Row:
    row: Row = {"kind": kind} | which_head(result.layout, *([head.head] if head else []))
    return row | {name: known.get(name) for name in COLUMNS if name not in (*row, *HEAD)}


def _head(result: Thoughts, head: ReceiverHead) -> Row:
    return _row(result, "head", head, **{name: getattr(head, name) for name in _OF_HEADS})


def _sentences(result: Thoughts, number: int, trace: Trace) -> Iterator[Row]:
    values = zip(
        trace.sentences, trace.read, trace.importance(result.apart), trace.anew, strict=True
    )
    for place, (sentence, read, needed, anew) in enumerate(values, 1):
        known: dict[str, Any] = {}
        if anew is not None:
            known = {
                "resampled": anew.effect,
                "resampled_low": anew.joint_low,
                "resampled_high": anew.joint_high,
            }
        yield _row(
            result, "sentence", trace=number, sentence=place, text=sentence.text,
            part=sentence.part, tokens=sentence.stop - sentence.start, read=read, needed=needed,
            **known,
        )  # fmt: skip


def _pairs(result: Thoughts, number: int, trace: Trace) -> Iterator[Row]:
    effects = trace.effects
    for later in range(len(trace.sentences)):
        for earlier in range(later):
            known: dict[str, Any] = {}
            if trace.log_kl:
                known = {"log_kl": trace.log_kl[later][earlier], "effect": effects[later][earlier]}
            yield _row(
                result, "pair", trace=number, sentence=later + 1, earlier=earlier + 1,
                attention=trace.attention[later][earlier], **known,
            )  # fmt: skip
