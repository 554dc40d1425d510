"""What heads do as rows: four columns for each score."""

from __future__ import annotations

from attnviz.drawing.tables import Row, head_rows
from attnviz.features.heads.result import Heads

COLUMNS = ("site", "layer", "head", "does", "rests", "roles")


def rows(found: Heads) -> list[Row]:
    """A row a head: its roles, and mean, chance, lift and rows of every score."""
    return head_rows(found.heads)
