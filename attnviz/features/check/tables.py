"""A check as rows: one for each problem."""

from __future__ import annotations

from typing import Any

from attnviz.features.check.result import FileCheck

COLUMNS = ("file", "path", "expected", "found")


def rows(result: FileCheck) -> list[dict[str, Any]]:
    """Where it is, what was expected and what is there."""
    return [
        {
            "file": result.file,
            "path": problem.path,
            "expected": problem.expected,
            "found": problem.found,
        }
        for problem in result.problems
    ]
