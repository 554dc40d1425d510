"""What annotated mentions say of every head: beside others, and to compare two runs by."""

from __future__ import annotations

from attnviz.core.findings import Figures, Finding, Measure, known
from attnviz.drawing.shares import estimate, plain_share
from attnviz.features.coref.result import NAME_DIRECTIONS, Coref


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


def figures(result: Coref) -> Figures:
    """Accuracies on all data, by kind of mention and direction, and the heads with the role."""
    name = result.layout.name
    values: dict[str, dict[str, float | None]] = {name(head): {} for head in result.layout}
    for kind in result.kinds:
        for head in kind.heads:
            for direction in NAME_DIRECTIONS:
                values[name(head.head)][f"{kind.name} {direction}"] = getattr(head, direction)
    roles = {
        name(head): frozenset(role.title for role, _ in some)
        for head, some in result.annotated_roles().items()
    }
    return Figures(values, roles, {"data": result.data, "candidates": result.candidates})
