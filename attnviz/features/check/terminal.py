"""A check as the terminal shows it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from attnviz.drawing.labels import counted
from attnviz.features.check.result import FileCheck


def parts(result: FileCheck) -> Iterator[Any]:
    """The verdict, and below it every problem."""
    if result.holds:
        for kind, (layers, heads, queries, keys) in result.shapes.items():
            size = f"{layers} layers × {heads} heads, {queries} queries × {keys} keys"
            yield Text(f"{result.file}: {result.format}, {kind}, {size}")
        if result.items > 1:
            yield f"a batch of {counted(result.items, 'item')}"
        yield "can be read"
        return
    yield Text(f"{result.file}: {result.format}, {counted(len(result.problems), 'problem')}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("where", "expected", "found"):
        table.add_column(name, overflow="fold")
    for problem in result.problems:
        table.add_row(*map(Text, (problem.path or "the file", problem.expected, problem.found)))
    yield table
