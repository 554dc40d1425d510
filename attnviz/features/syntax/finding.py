"""What a treebank says of every head, to stand beside it elsewhere."""

from __future__ import annotations

from attnviz.core.findings import Finding, Measure, Value
from attnviz.corpus.gold.tally import ALL
from attnviz.drawing.shares import estimate, plain_share
from attnviz.features.syntax.result import Syntax

_RELATIONS = 3
"""How many a head is told to find."""


def finding(found: Syntax, name: str) -> Finding:
    """The relations that no other head finds as well.

    Args:
        found: the result.
        name: of its file.
    """
    roles = {(role.head, role.relation) for role in found.roles}
    best = [
        relation.best
        for relation in found.relations
        if relation.name != ALL and relation.best and relation.best.margin.value is not None
    ]
    best.sort(key=lambda one: ((one.head, one.relation) not in roles, -(one.margin.value or 0.0)))
    said: dict[str, list[str]] = {}
    margins: dict[str, Value] = {}
    for one in best:
        head = found.layout.name(one.head)
        lines = said.setdefault(head, [])
        if len(lines) < _RELATIONS:
            lines.append(
                f"{one.relation} {estimate(one.accuracy)} of {one.count:,}, best offset "
                f"{plain_share(one.offset_accuracy)}"
                + ("" if (one.head, one.relation) in roles else " (no role)")
            )
        margin = one.margin.value or 0.0
        if head not in margins or margin > margins[head][0]:
            margins[head] = (margin, one.margin.low, one.margin.high)
    title = "largest lead over the best offset, of the relations it finds best"
    return Finding(
        "syntax",
        name,
        "Relations it finds best of all heads",
        f"How often it points at the gold head or dependent, in {found.measured_on} that no "
        "head was chosen on; the best fixed offset beside it; 95 % intervals.",
        {head: tuple(lines) for head, lines in said.items()},
        (Measure("lead", title, "", -1, margins),) if margins else (),
    )
