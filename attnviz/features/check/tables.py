"""A check as rows: one for each problem, or each bug."""

from __future__ import annotations

from typing import Any

from attnviz.features.check.result import FileCheck, ModuleCheck

COLUMNS = ("file", "path", "expected", "found")


def rows(result: FileCheck | ModuleCheck) -> list[dict[str, Any]]:
    """Where it is, what was expected and what is there; of a module its verdict and each bug."""
    if isinstance(result, ModuleCheck):
        head = {"module": result.module, "verdict": result.verdict}
        empty = dict.fromkeys(("bug", "step", "what", "change", "off", "after"))
        return [
            {**head, "bug": bug.name, "step": bug.step, "what": bug.what, "change": bug.change,
             "off": bug.off, "after": bug.after}
            for bug in result.bugs
        ] or [{**head, **empty}]  # fmt: skip
    return [
        {
            "file": result.file,
            "path": problem.path,
            "expected": problem.expected,
            "found": problem.found,
        }
        for problem in result.problems
    ]
