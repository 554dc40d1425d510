"""The edges between heads as rows."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.circuits.result import Circuits

COLUMNS = ("side", "writer", "reader", "ratio", "excess", "p")
MEASURED = ("share", "low", "high")
"""What results laid beside measured of an edge."""


def rows(result: Circuits) -> list[Row]:
    """A row for each edge; none where there are no edges."""
    name = result.layout.name
    listed = (
        (e.side, name(e.writer), name(e.reader), e.ratio, e.excess, e.p) for e in result.edges
    )
    rows: list[Row] = [dict(zip(COLUMNS, cells, strict=True)) for cells in listed]
    if result.measured:
        for row, e in zip(rows, result.edges, strict=True):
            ends = result.measured.get((e.side, e.writer, e.reader), (None, None, None))
            row.update(zip(MEASURED, ends, strict=True))
    return rows
