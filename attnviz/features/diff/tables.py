"""Differences as rows, one for each figure of each head."""

from __future__ import annotations

from attnviz.drawing.tables import HEAD, Row, which_head
from attnviz.features.diff.result import Diff

_FIGURE = (
    "figure", "before", "after", "change", "low", "high", "typical", "joint_low", "joint_high",
)  # fmt: skip
COLUMNS = ("name", *HEAD, *_FIGURE)


def rows(report: Diff) -> list[Row]:
    """A row for each figure of each head; the distance of its maps first."""
    listed: list[Row] = []
    known = {report.layout.name(head): head for head in report.layout}
    for head in report.heads:
        single = (known[head.name],) if head.name in known else ()
        which = {"name": head.name} | which_head(report.layout, *single)
        if head.distance is not None:
            apart = {"figure": "js distance", "change": head.distance.mean}
            listed.append(which | dict.fromkeys(_FIGURE) | apart)
        for figure in head.changes:
            numbers = {name: getattr(figure, name) for name in _FIGURE[1:]}
            listed.append(which | {"figure": figure.name} | numbers)
    return listed
