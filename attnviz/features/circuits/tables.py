"""The edges between heads as rows."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.circuits.result import Circuits

COLUMNS = ("side", "writer", "reader", "ratio", "excess", "p")
MEASURED = ("share", "low", "high")
"""What results laid beside measured of an edge."""


def rows(found: Circuits) -> list[Row]:
    """A row for each edge; none where there are no edges."""
    name = found.layout.name
    listed = ((e.side, name(e.writer), name(e.reader), e.ratio, e.excess, e.p) for e in found.edges)
    rows: list[Row] = [dict(zip(COLUMNS, one, strict=True)) for one in listed]
    if found.measured:
        for row, e in zip(rows, found.edges, strict=True):
            ends = found.measured.get((e.side, e.writer, e.reader), (None, None, None))
            row.update(zip(MEASURED, ends, strict=True))
    return rows
