"""What heads do as rows: four columns for each score."""

from __future__ import annotations

from attnviz.core.scores import HeadScores
from attnviz.drawing.tables import Row, head_rows
from attnviz.features.heads.result import Heads

COLUMNS = ("site", "layer", "head", "does", "rests", "roles")


def rows(found: Heads) -> list[Row]:
    """A row a head: its roles, mean, chance, lift and rows of every score, where its sink is."""
    return [
        {**row, "sink.position": one.sink, "sink.token": _token(found, one)}
        for row, one in zip(head_rows(found.heads), found.heads, strict=True)
    ]


def _token(found: Heads, one: HeadScores) -> str | None:
    """The token of a head's sink."""
    if one.sink is None:
        return None
    return found.inputs.sides[one.head.site.kind].keys.texts[one.sink]
