"""An explanation as rows: a head each, and what ablating does."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.explain.result import Explanation

COLUMNS = (
    "heads", "adds", "key", "key_token", "weight", "through_key", "key_from", "key_from_share",
    "method", "difference", "without", "change",
)  # fmt: skip


def rows(found: Explanation) -> list[Row]:
    """A row for each ablation and method; of single heads with what they add and look at."""
    told = {found.layout.name(one.head): one for one in found.heads}
    table = []
    for effect in found.effects:
        one = told.get(effect.name)
        key = None if one is None else one.found
        best = key.origins[0] if key is not None else None
        for change in effect.by:
            values = (
                effect.name,
                None if one is None else one.value,
                None if one is None else one.key,
                None if one is None else found.tokens[one.key],
                None if one is None else one.weights[one.key],
                None if one is None else one.through,
                None if best is None else best.origin.name(found.layout),
                None if best is None or key is None else key.share(best),
                change.method,
                found.difference,
                found.difference + change.change,
                change.change,
            )
            table.append(dict(zip(COLUMNS, values, strict=True)))
    return table
