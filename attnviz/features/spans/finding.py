"""What weights on named parts say of every head: beside others, and to compare two runs by."""

from __future__ import annotations

from attnviz.core.findings import Figures, Finding, Measure, Value, known
from attnviz.core.spans import ELSEWHERE
from attnviz.drawing.shares import estimate, plain_share
from attnviz.features.spans.result import WORDS, Spans
from attnviz.features.spans.words import RULE_NAMES, joint, lift, times, whose

_TOLD = 3
"""Spans that are told of a head."""


def finding(result: Spans, name: str) -> Finding:
    """What each head gives to the spans, or how often it finds the right document."""
    return _of_documents(result, name) if result.documents is not None else _of_spans(result, name)


def _of_spans(result: Spans, name: str) -> Finding:
    said, values = {}, {span: dict[str, Value]() for span in result.names if span != ELSEWHERE}
    for weights in result.heads:
        head, told = result.layout.name(weights.head), []
        for span, share in zip(result.names, weights.shares, strict=True):
            if span == ELSEWHERE or share.mean is None:
                continue
            values[span][head] = (share.mean, share.joint_low, share.joint_high)
            line = f"{span} {estimate(joint(share))}, {lift(share)} chance"
            told.append((share.lift or 0.0, line))
        said[head] = [line for _, line in sorted(told, reverse=True)[:_TOLD]]
    measures = [
        Measure(span, f"share of the weight on {span}", "", 0, some)
        for span, some in values.items()
    ]
    measures += _gazes(result, said)
    texts = f"{result.texts} texts" if result.texts > 1 else "one text"
    intervals = "; 95 % intervals hold for all heads and spans at once" if result.family else ""
    how = (
        f"The share of the weight ({whose(result)}) on each span, and how many times the share of "
        f"the keys that it is; {texts}{intervals}."
    )
    if result.gazes:
        how += " Gaze: of the weight that all words give to a picture, the part on the box."
    return Finding.of("spans", name, "Which parts it attends to", how, said, measures)


def _gazes(result: Spans, said: dict[str, list[str]]) -> list[Measure]:
    """The gaze of all words at every box; a line of it is added to what is said of heads."""
    measures = []
    for gaze in result.gazes:
        if gaze.rows != WORDS:
            continue
        values = dict[str, Value]()
        for weights, look in zip(result.heads, gaze.heads, strict=True):
            if look.share is None:
                continue
            head = result.layout.name(weights.head)
            values[head] = (look.share, look.low, look.high)
            said[head].append(
                f"gaze at {gaze.box} {plain_share(look.share)}, {times(look.lift)} chance"
            )
        what = f"gaze at {gaze.box}, of the weight on its picture"
        measures.append(Measure(f"gaze at {gaze.box}", what, "", 0, values))
    return measures


def _of_documents(result: Spans, name: str) -> Finding:
    sheet = result.documents
    assert sheet is not None
    rival = f"{RULE_NAMES[sheet.baseline]} {plain_share(sheet.rival.accuracy.value)}"
    beside = f"{sheet.measured_on}, chance {plain_share(sheet.chance)}, {rival}"
    shares = {result.layout.name(score.head): score.accuracy for score in sheet.ranked}
    values = known(shares)
    said = {head: [f"{estimate(shares[head])} of {beside}"] for head in values}
    how = (
        f"How often the document with the most weight per token ({whose(result)}) is the right one "
        f"of {sheet.documents:.3g}, on {sheet.measured_on} that no head was chosen on; 95 % "
        "intervals."
    )
    measure = Measure("documents", "how often it finds the right document", "", 0, values)
    return Finding.of("spans", name, "Which document it attends to", how, said, [measure])


def figures(result: Spans) -> Figures:
    """Shares by span of the same name, and how often the right document is found."""
    name = result.layout.name
    values: dict[str, dict[str, float | None]] = {
        name(head.head): {
            span: share.mean
            for span, share in zip(result.names, head.shares, strict=True)
            if span != ELSEWHERE  # what the others leave
        }
        for head in result.heads
    }
    if result.documents is not None:
        for head in result.documents.ranked:
            values[name(head.head)]["right document"] = head.accuracy.value
    settings = {"rows": result.rows, "quantity": result.quantity}
    return Figures(values, settings=settings)
