"""A logit and its parts as JSON and CSV. The schema is docs/logits.schema.json."""

from __future__ import annotations

import json
from dataclasses import asdict, fields

from attnviz.render.tables import Row, as_csv
from attnviz.votes import LogitsReport, Part


def logits_json(report: LogitsReport) -> str:
    """JSON text."""
    return json.dumps(report.to_json(), ensure_ascii=False, indent=2, allow_nan=False)


def logits_csv(report: LogitsReport) -> str:
    """CSV text, a line for each part; only the header where a model's logits are no sum."""
    return as_csv(part_rows(report), [field.name for field in fields(Part)])


def part_rows(report: LogitsReport) -> list[Row]:
    """A row for each part; none where a model's logits are no sum."""
    return [asdict(part) for part in report.parts]
