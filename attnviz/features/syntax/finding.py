"""What a treebank says of every head: beside others, and to compare two runs by."""

from __future__ import annotations

from attnviz.core.findings import Figures, Finding, Measure, Value
from attnviz.corpus.gold.tally import ALL
from attnviz.drawing.shares import estimate, plain_share
from attnviz.features.syntax.result import DIRECTIONS, Syntax

_RELATIONS = 3
"""How many a head is told to find."""


def finding(result: Syntax, name: str) -> Finding:
    """The relations that no other head finds as well."""
    roles = {(role.head, role.relation) for role in result.roles}
    best = [
        relation.best
        for relation in result.relations
        if relation.name != ALL and relation.best and relation.best.margin.value is not None
    ]
    best.sort(
        key=lambda leader: (
            (leader.head, leader.relation) not in roles,
            -(leader.margin.value or 0.0),
        )
    )
    said: dict[str, list[str]] = {}
    margins: dict[str, Value] = {}
    for leader in best:
        head = result.layout.name(leader.head)
        lines = said.setdefault(head, [])
        if len(lines) < _RELATIONS:
            lines.append(
                f"{leader.relation} {estimate(leader.accuracy)} of {leader.count:,}, best offset "
                f"{plain_share(leader.offset_accuracy)}"
                + ("" if (leader.head, leader.relation) in roles else " (no role)")
            )
        margin = leader.margin.value or 0.0
        if head not in margins or margin > margins[head][0]:
            margins[head] = (margin, leader.margin.low, leader.margin.high)
    title = "largest lead over the best offset, of the relations it finds best"
    how = (
        f"How often it points at the gold head or dependent, in {result.measured_on} that no "
        "head was chosen on; the best fixed offset beside it; 95 % intervals."
    )
    measure = Measure("lead", title, "", -1, margins, ("behind the offset", "ahead of it"))
    return Finding.of("syntax", name, "Relations it finds best of all heads", how, said, [measure])


def figures(result: Syntax) -> Figures:
    """Accuracies on all data, by relation and direction, and the relations that are roles."""
    name = result.layout.name
    values: dict[str, dict[str, float | None]] = {name(head): {} for head in result.layout}
    for relation in result.relations:
        for score in relation.heads:
            for direction in DIRECTIONS:
                values[name(score.head)][f"{relation.name} {direction}"] = getattr(score, direction)
    roles = {
        name(head): frozenset(role.title for role, _ in some)
        for head, some in result.annotated_roles().items()
    }
    settings = {"subtypes": str(result.subtypes), "punct": str(result.punct)}
    return Figures(values, roles, settings)
