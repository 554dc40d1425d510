"""A check as rows: one for each problem."""

from __future__ import annotations

from typing import Any

from attnviz.features.check.result import FileCheck

COLUMNS = ("file", "path", "expected", "found")


def rows(found: FileCheck) -> list[dict[str, Any]]:
    """Where it is, what was expected and what is there."""
    return [
        {"file": found.file, "path": one.path, "expected": one.expected, "found": one.found}
        for one in found.problems
    ]
