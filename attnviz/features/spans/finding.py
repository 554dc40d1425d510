"""What weights on named parts say of every head, to stand beside it elsewhere."""

from __future__ import annotations

from attnviz.core.findings import Finding, Measure, Value
from attnviz.core.spans import ELSEWHERE
from attnviz.drawing.shares import estimate, plain_share
from attnviz.features.spans.result import Spans
from attnviz.features.spans.words import RULE_NAMES, joint, lift, whose

_TOLD = 3
"""Spans that are told of a head."""


def finding(found: Spans, name: str) -> Finding:
    """What each head gives to the spans, or how often it finds the right document.

    Args:
        found: the result.
        name: of its file.
    """
    return _of_documents(found, name) if found.documents is not None else _of_spans(found, name)


def _of_spans(found: Spans, name: str) -> Finding:
    said, values = {}, {span: dict[str, Value]() for span in found.names if span != ELSEWHERE}
    for one in found.heads:
        head, told = found.layout.name(one.head), []
        for span, share in zip(found.names, one.shares, strict=True):
            if span == ELSEWHERE or share.mean is None:
                continue
            values[span][head] = (share.mean, share.joint_low, share.joint_high)
            line = f"{span} {estimate(joint(share))}, {lift(share)} chance"
            told.append((share.lift or 0.0, line))
        said[head] = tuple(line for _, line in sorted(told, reverse=True)[:_TOLD])
    measures = tuple(
        Measure(span, f"share of the weight on {span}", "", 0, some)
        for span, some in values.items()
        if some
    )
    texts = f"{found.texts} texts" if found.texts > 1 else "one text"
    intervals = "; 95 % intervals hold for all heads and spans at once" if found.family else ""
    how = (
        f"The share of the weight ({whose(found)}) on each span, and how many times the share of "
        f"the keys that it is; {texts}{intervals}."
    )
    return Finding("spans", name, "Which parts it attends to", how, said, measures)


def _of_documents(found: Spans, name: str) -> Finding:
    sheet = found.documents
    assert sheet is not None
    values: dict[str, Value] = {}
    said = {}
    rival = f"{RULE_NAMES[sheet.baseline]} {plain_share(sheet.rival.accuracy.value)}"
    for one in sheet.ranked:
        if one.accuracy.value is None:
            continue
        head = found.layout.name(one.head)
        values[head] = (one.accuracy.value, one.accuracy.low, one.accuracy.high)
        beside = f"chance {plain_share(sheet.chance)}, {rival}"
        said[head] = (f"{estimate(one.accuracy)} of {sheet.measured_on}, {beside}",)
    how = (
        f"How often the document with the most weight per token ({whose(found)}) is the right one "
        f"of {sheet.documents:.3g}, on {sheet.measured_on} that no head was chosen on; 95 % "
        "intervals."
    )
    measure = Measure("documents", "how often it finds the right document", "", 0, values)
    measures = (measure,) if values else ()
    return Finding("spans", name, "Which document it attends to", how, said, measures)
