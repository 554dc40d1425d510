"""Reports on gold annotation as JSON; the schemas are docs/syntax.schema.json and the like."""

from __future__ import annotations

import json

from attnviz.annotated import SyntaxReport
from attnviz.annotated.coref import CorefReport


def annotated_json(report: SyntaxReport | CorefReport) -> str:
    """JSON text."""
    return json.dumps(report.to_json(), ensure_ascii=False, indent=2, allow_nan=False)
