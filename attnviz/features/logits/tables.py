"""The parts of a logit as rows."""

from __future__ import annotations

from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.features.logits.result import Logits

COLUMNS = ("kind", *HEAD, "value")


def rows(result: Logits) -> list[Row]:
    """A row for each part; none where a model's logits are no sum."""
    heads, listed = iter(result.layout), []
    for part in result.parts:
        row: Row = {"kind": part.kind}
        row |= which_head(result.layout, *([next(heads)] if part.kind == "head" else []))
        listed.append(row | {"layer": part.layer, "value": part.value})
    return listed
