"""An ablation as JSON and CSV, for other programs. The schema is docs/ablate.schema.json."""

from __future__ import annotations

import csv
import io
import json

from attnviz.effects import AblationReport

_COLUMNS = ("effect", "low", "high", "worse", "gradient", "signed_gradient", "does", "rests",
            "members")  # fmt: skip


def ablation_json(report: AblationReport) -> str:
    """JSON text."""
    return json.dumps(report.to_json(), ensure_ascii=False, indent=2, allow_nan=False)


def ablation_csv(report: AblationReport) -> str:
    """CSV text, a line for each group; empty cells where a figure is not known."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["name", "heads", *_COLUMNS])
    for effect in report.to_json()["effects"]:
        writer.writerow(
            [effect["name"], " ".join(effect["heads"])]
            + ["" if effect[column] is None else effect[column] for column in _COLUMNS]
        )
    return out.getvalue()
