"""How often every head finds antecedents, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.coref.result import NAME_DIRECTIONS, Coref


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
