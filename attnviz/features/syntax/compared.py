"""How often every head finds each relation, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.syntax.result import DIRECTIONS, Syntax


def figures(found: Syntax) -> Figures:
    """Accuracies on all data, by relation and direction, and the relations that are roles."""
    name = found.layout.name
    values: dict[str, dict[str, float | None]] = {name(head): {} for head in found.layout}
    for relation in found.relations:
        for one in relation.heads:
            for direction in DIRECTIONS:
                values[name(one.head)][f"{relation.name} {direction}"] = getattr(one, direction)
    roles = {
        name(head): frozenset(role.title for role, _ in some)
        for head, some in found.annotated_roles().items()
    }
    settings = {"subtypes": str(found.subtypes), "punct": str(found.punct)}
    return Figures(values, roles, settings)
