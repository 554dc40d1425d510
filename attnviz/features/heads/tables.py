"""What heads do as rows: four columns for each score."""

from __future__ import annotations

from attnviz.core.scores import HeadScores
from attnviz.drawing.tables import HEAD, Row, head_rows
from attnviz.features.heads.result import Heads

COLUMNS = (*HEAD, "does", "rests", "roles")


def rows(result: Heads) -> list[Row]:
    """A row a head: its roles, mean, chance, lift and rows of every score, where its sink is."""
    return [
        {**row, "sink.position": scores.sink, "sink.token": _token(result, scores)}
        for row, scores in zip(head_rows(result.heads, result.layout), result.heads, strict=True)
    ]


def _token(result: Heads, scores: HeadScores) -> str | None:
    """The token of a head's sink."""
    if scores.sink is None:
        return None
    return result.inputs.sides[scores.head.site.kind].keys.texts[scores.sink]
