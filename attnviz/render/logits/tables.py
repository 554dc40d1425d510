"""A logit and its parts as JSON and CSV. The schema is docs/logits.schema.json."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import astuple, fields

from attnviz.votes import LogitsReport, Part


def logits_json(report: LogitsReport) -> str:
    """JSON text."""
    return json.dumps(report.to_json(), ensure_ascii=False, indent=2, allow_nan=False)


def logits_csv(report: LogitsReport) -> str:
    """CSV text, a line for each part; only the header where a model's logits are no sum."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([field.name for field in fields(Part)])
    for part in report.parts:
        writer.writerow(["" if value is None else value for value in astuple(part)])
    return out.getvalue()
