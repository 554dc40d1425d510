"""How often every head finds each relation, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.syntax.result import DIRECTIONS, Syntax


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
