"""Findings as the page knows them: numbers to tint heads by, and lines for their cards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from attnviz.core.findings import Finding, Measure
from attnviz.core.heads import Head, Layout
from attnviz.drawing.labels import visible
from attnviz.drawing.signed import minus

Value = TypeVar("Value")


def beside(findings: Sequence[Finding], layout: Layout, heads: Collection[Head]) -> dict[str, Any]:
    """``findings`` and ``measures`` of the page's data, by kind of layer and head's number."""
    named = {layout.name(head): head for head in heads}
    parts: Counter[str] = Counter()
    told, measures = [], []
    for finding in findings:
        parts[finding.part] += 1
        again = "" if parts[finding.part] == 1 else str(parts[finding.part])
        said = {
            head: [minus(visible(line)) for line in lines] for head, lines in finding.said.items()
        }
        told.append(
            {
                "title": finding.title,
                "name": visible(finding.name),
                "how": visible(finding.how),
                "said": _by_kind(said, named),
            }
        )
        for measure in finding.measures:
            key = f"{finding.part}{again}-{measure.name}"
            measures.append(_measure(measure, key, len(told) - 1, finding, named))
    return {"findings": told, "measures": measures}


def _measure(
    measure: Measure, key: str, number: int, finding: Finding, named: Mapping[str, Head]
) -> dict[str, Any]:
    """One number of the page's heads, to five digits."""
    values = {
        head: [None if x is None else float(f"{x:.5g}") for x in value]
        for head, value in measure.values.items()
    }
    return {
        "key": key,
        "title": visible(measure.title),
        "unit": measure.unit,
        "from": visible(finding.name),
        "finding": number,
        "orange": measure.adverse,
        "ends": list(measure.ends),
        "values": _by_kind(values, named),
    }


def _by_kind(values: Mapping[str, Value], named: Mapping[str, Head]) -> dict[str, dict[str, Value]]:
    by_kind: dict[str, dict[str, Value]] = {}
    for name, value in values.items():
        if name in named:
            head = named[name]
            by_kind.setdefault(head.site.kind, {})[head.name] = value
    return by_kind
