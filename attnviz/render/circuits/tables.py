"""Circuits as JSON and CSV. The schema is docs/circuits.schema.json."""

from __future__ import annotations

import json

from attnviz.edges import CircuitsReport
from attnviz.render.tables import Row, as_csv

_COLUMNS = ("side", "writer", "reader", "ratio", "excess")


def circuits_json(report: CircuitsReport) -> str:
    """JSON text."""
    return json.dumps(report.to_json(), ensure_ascii=False, indent=2, allow_nan=False)


def circuits_csv(report: CircuitsReport) -> str:
    """CSV text, a line for each edge."""
    return as_csv(edge_rows(report), _COLUMNS)


def edge_rows(report: CircuitsReport) -> list[Row]:
    """A row for each edge; none where there are no edges."""
    name = report.layout.name
    return [
        dict(
            zip(_COLUMNS, (e.side, name(e.writer), name(e.reader), e.ratio, e.excess), strict=True)
        )
        for e in report.edges
    ]
