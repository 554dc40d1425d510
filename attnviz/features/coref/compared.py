"""How often every head finds antecedents, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.features.coref.result import NAME_DIRECTIONS, Coref


def figures(found: Coref) -> Figures:
    """Accuracies on all data, by kind of mention and direction, and the heads with the role."""
    name = found.layout.name
    values: dict[str, dict[str, float | None]] = {name(head): {} for head in found.layout}
    for kind in found.kinds:
        for one in kind.heads:
            for direction in NAME_DIRECTIONS:
                values[name(one.head)][f"{kind.name} {direction}"] = getattr(one, direction)
    roles = {
        name(head): frozenset(role.title for role, _ in some)
        for head, some in found.annotated_roles().items()
    }
    return Figures(values, roles, {"data": found.data, "candidates": found.candidates})
