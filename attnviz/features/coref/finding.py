"""What annotated mentions say of every head, to stand beside it elsewhere."""

from __future__ import annotations

from attnviz.core.findings import Finding, Measure
from attnviz.drawing.shares import estimate, plain_share
from attnviz.features.coref.result import Coref


def finding(found: Coref, name: str) -> Finding:
    """How often each head points at what a mention refers to.

    Args:
        found: the result.
        name: of its file.
    """
    values, said = {}, {}
    for one in found.everything.ranked:
        if one.accuracy.value is None:
            continue
        head = found.layout.name(one.head)
        values[head] = (one.accuracy.value, one.accuracy.low, one.accuracy.high)
        beside = f"{one.baseline} {plain_share(one.baseline_accuracy)}"
        said[head] = (f"{estimate(one.accuracy)} of {one.count:,}, {beside}",)
    measure = Measure("accuracy", "how often it finds what is referred to", "", 0, values)
    return Finding(
        "coref",
        name,
        "What a mention refers to",
        f"How often it is right in {found.measured_on} that no head was chosen on, the best "
        "rule without attention beside it; 95 % intervals.",
        said,
        (measure,) if values else (),
    )
