"""Differences as JSON and CSV. The schema is docs/diff.schema.json."""

from __future__ import annotations

import json

from attnviz.differences import DiffReport
from attnviz.render.tables import Row, as_csv

_COLUMNS = ("head", "figure", "before", "after", "change", "low", "high")


def diff_json(report: DiffReport) -> str:
    """JSON text."""
    return json.dumps(report.to_json(), ensure_ascii=False, indent=2, allow_nan=False)


def diff_csv(report: DiffReport) -> str:
    """CSV text, a line for each figure of each head; the distance of its maps first."""
    return as_csv(change_rows(report), _COLUMNS)


def change_rows(report: DiffReport) -> list[Row]:
    """A row for each figure of each head; the distance of its maps first."""
    rows: list[Row] = []
    for head in report.heads:
        if head.distance is not None:
            rows.append(
                dict.fromkeys(_COLUMNS)
                | {"head": head.name, "figure": "js distance", "change": head.distance.mean}
            )
        rows += [
            {"head": head.name, "figure": one.name, "before": one.before, "after": one.after,
             "change": one.change, "low": one.low, "high": one.high}
            for one in head.changes
        ]  # fmt: skip
    return rows
