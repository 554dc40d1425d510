"""A flow as JSON and CSV. The schema is docs/flow.schema.json."""

from __future__ import annotations

import csv
import io
import json

from attnviz.flows import FlowReport, rounded


def flow_json(report: FlowReport) -> str:
    """JSON text."""
    return json.dumps(report.to_json(), ensure_ascii=False, allow_nan=False)


def flow_csv(report: FlowReport) -> str:
    """CSV text, a line for each token that can reach a position.

    Positions are counted in each of two texts by itself; ``share`` is by flow, ``weight`` of the
    mean weights. Where a token is followed there are only the lines to or from it.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    texts, first = report.tokens.texts, report.targets
    names = [
        (_side(n, first), n - first if n >= first else n, text) for n, text in enumerate(texts)
    ]
    writer.writerow(
        ["to_side", "to", "to_token", "from_side", "from", "from_token", "share", "weight"]
    )
    followed = report.followed
    total, weights = rounded(report.total), rounded(report.weights)
    for i, to in enumerate(names):
        if followed and followed.direction == "to" and i not in followed.positions:
            continue
        for j, origin in enumerate(names):
            if followed and followed.direction == "from" and j not in followed.positions:
                continue
            if report.reach[i, j]:
                writer.writerow([*to, *origin, total[i][j], weights[i][j]])
    return out.getvalue()


def _side(node: int, first: int) -> str:
    return "text" if not first else "target" if node >= first else "source"
