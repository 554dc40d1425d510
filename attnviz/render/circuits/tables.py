"""Circuits as JSON and CSV. The schema is docs/circuits.schema.json."""

from __future__ import annotations

import csv
import io
import json

from attnviz.edges import CircuitsReport


def circuits_json(report: CircuitsReport) -> str:
    """JSON text."""
    return json.dumps(report.to_json(), ensure_ascii=False, indent=2, allow_nan=False)


def circuits_csv(report: CircuitsReport) -> str:
    """CSV text, a line for each edge."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["side", "writer", "reader", "ratio", "excess"])
    name = report.layout.name
    for edge in report.edges:
        writer.writerow([edge.side, name(edge.writer), name(edge.reader), edge.ratio, edge.excess])
    return out.getvalue()
