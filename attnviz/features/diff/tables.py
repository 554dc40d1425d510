"""Differences as rows, one for each figure of each head."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.diff.result import Diff

COLUMNS = ("head", "figure", "before", "after", "change", "low", "high")


def rows(report: Diff) -> list[Row]:
    """A row for each figure of each head; the distance of its maps first."""
    listed: list[Row] = []
    for head in report.heads:
        if head.distance is not None:
            listed.append(
                dict.fromkeys(COLUMNS)
                | {"head": head.name, "figure": "js distance", "change": head.distance.mean}
            )
        listed += [
            {"head": head.name, "figure": figure.name, "before": figure.before,
             "after": figure.after, "change": figure.change, "low": figure.low,
             "high": figure.high}
            for figure in head.changes
        ]  # fmt: skip
    return listed
