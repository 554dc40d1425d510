"""A flow as JSON and CSV. The schema is docs/flow.schema.json."""

from __future__ import annotations

import json

from attnviz.flows import FlowReport, rounded
from attnviz.render.tables import Row, as_csv

_COLUMNS = ("to_side", "to", "to_token", "from_side", "from", "from_token", "share", "weight")


def flow_json(report: FlowReport) -> str:
    """JSON text."""
    return json.dumps(report.to_json(), ensure_ascii=False, allow_nan=False)


def flow_csv(report: FlowReport) -> str:
    """CSV text, a line for each token that can reach a position."""
    return as_csv(flow_rows(report), _COLUMNS)


def flow_rows(report: FlowReport) -> list[Row]:
    """A row for each token that can reach a position.

    Positions are counted in each of two texts by itself; ``share`` is by flow, ``weight`` of the
    mean weights. Where a token is followed there are only the rows to or from it.
    """
    texts, first = report.tokens.texts, report.targets
    names = [
        (_side(n, first), n - first if n >= first else n, text) for n, text in enumerate(texts)
    ]
    rows: list[Row] = []
    followed = report.followed
    total, weights = rounded(report.total), rounded(report.weights)
    for i, to in enumerate(names):
        if followed and followed.direction == "to" and i not in followed.positions:
            continue
        for j, origin in enumerate(names):
            if followed and followed.direction == "from" and j not in followed.positions:
                continue
            if report.reach[i, j]:
                values = (*to, *origin, total[i][j], weights[i][j])
                rows.append(dict(zip(_COLUMNS, values, strict=True)))
    return rows


def _side(node: int, first: int) -> str:
    return "text" if not first else "target" if node >= first else "source"
