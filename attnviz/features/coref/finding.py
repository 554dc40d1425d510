"""What annotated mentions say of every head, to stand beside it elsewhere."""

from __future__ import annotations

from attnviz.core.findings import Finding, Measure, known
from attnviz.drawing.shares import estimate, plain_share
from attnviz.features.coref.result import Coref


def finding(result: Coref, name: str) -> Finding:
    """How often each head points at what a mention refers to."""
    heads = {
        result.layout.name(head.head): head
        for head in result.everything.ranked
        if head.accuracy.value is not None
    }
    said = {}
    for label, head in heads.items():
        beside = f"{head.baseline} {plain_share(head.baseline_accuracy)}"
        said[label] = [f"{estimate(head.accuracy)} of {head.count:,}, {beside}"]
    values = known({label: head.accuracy for label, head in heads.items()})
    how = (
        f"How often it is right in {result.measured_on} that no head was chosen on, the best "
        "rule without attention beside it; 95 % intervals."
    )
    measure = Measure("accuracy", "how often it finds what is referred to", "", 0, values)
    return Finding.of("coref", name, "What a mention refers to", how, said, [measure])
