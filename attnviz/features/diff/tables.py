"""Differences as rows, one for each figure of each head."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.diff.result import Diff

COLUMNS = ("head", "figure", "before", "after", "change", "low", "high")


def rows(report: Diff) -> list[Row]:
    """A row for each figure of each head; the distance of its maps first."""
    found: list[Row] = []
    for head in report.heads:
        if head.distance is not None:
            found.append(
                dict.fromkeys(COLUMNS)
                | {"head": head.name, "figure": "js distance", "change": head.distance.mean}
            )
        found += [
            {"head": head.name, "figure": one.name, "before": one.before, "after": one.after,
             "change": one.change, "low": one.low, "high": one.high}
            for one in head.changes
        ]  # fmt: skip
    return found
