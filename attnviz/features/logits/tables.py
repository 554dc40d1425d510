"""The parts of a logit as rows."""

from __future__ import annotations

from dataclasses import asdict, fields

from attnviz.drawing.tables import Row
from attnviz.features.logits.result import LogitPart, Logits

COLUMNS = tuple(field.name for field in fields(LogitPart))


def rows(result: Logits) -> list[Row]:
    """A row for each part; none where a model's logits are no sum."""
    return [asdict(part) for part in result.parts]
