"""A flow as rows, one for each token that can reach a position."""

from __future__ import annotations

from attnviz.drawing.tables import Row
from attnviz.features.flow.result import Flow, rounded

COLUMNS = ("to_side", "to", "to_token", "from_side", "from", "from_token", "share", "weight")


def rows(report: Flow) -> list[Row]:
    """A row for each token that can reach a position.

    Positions are counted in each of two texts by itself; ``share`` is by flow, ``weight`` of the
    mean weights. Where a token is followed there are only the rows to or from it.
    """
    texts, first = report.tokens.texts, report.targets
    names = [
        (_side(n, first), n - first if n >= first else n, text) for n, text in enumerate(texts)
    ]
    table: list[Row] = []
    traced = report.followed
    total, weights = rounded(report.total), rounded(report.weights)
    for i, to in enumerate(names):
        if traced and traced.direction == "to" and i not in traced.positions:
            continue
        for j, origin in enumerate(names):
            if traced and traced.direction == "from" and j not in traced.positions:
                continue
            if report.reach[i, j]:
                values = (*to, *origin, total[i][j], weights[i][j])
                table.append(dict(zip(COLUMNS, values, strict=True)))
    return table


def _side(node: int, first: int) -> str:
    return "text" if not first else "target" if node >= first else "source"
