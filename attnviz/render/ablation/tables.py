"""An ablation as JSON and CSV, for other programs. The schema is docs/ablate.schema.json."""

from __future__ import annotations

import json

from attnviz.effects import AblationReport
from attnviz.render.tables import Row, as_csv

_COLUMNS = ("effect", "low", "high", "worse", "gradient", "signed_gradient", "does", "rests",
            "members")  # fmt: skip


def ablation_json(report: AblationReport) -> str:
    """JSON text."""
    return json.dumps(report.to_json(), ensure_ascii=False, indent=2, allow_nan=False)


def ablation_csv(report: AblationReport) -> str:
    """CSV text, a line for each group; empty cells where a figure is not known."""
    return as_csv(ablation_rows(report))


def ablation_rows(report: AblationReport) -> list[Row]:
    """A row for each group; None for what is not known."""
    return [
        {"name": effect["name"], "heads": " ".join(effect["heads"])}
        | {column: effect[column] for column in _COLUMNS}
        for effect in report.to_json()["effects"]
    ]
