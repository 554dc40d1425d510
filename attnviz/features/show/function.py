"""What is in a file, with results of other commands beside the heads that it is about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from attnviz.captures.settings import Attaching
from attnviz.core.capture import Capture
from attnviz.core.interface import interface
from attnviz.core.record import Record
from attnviz.drawing.console import table_of
from attnviz.drawing.labels import visible
from attnviz.drawing.terminal import Line
from attnviz.errors import UsageError
from attnviz.features.results import beside, read


@interface
def show(path: str | Path, *, attaching: Attaching) -> Record:
    """Return the result in a file that attnviz wrote; of a capture, what its heads do."""
    from attnviz.features.heads.result import Heads
    from attnviz.features.profile.result import Profile

    result, evidence = read(path), attaching.evidence
    if isinstance(result, Capture):
        from attnviz.features.heads.function import heads

        return heads(result, evidence=evidence)
    if evidence is None:
        return result
    if isinstance(result, Profile):
        from attnviz.features.profile.function import with_evidence

        return with_evidence(result, evidence)
    if isinstance(result, Heads):
        return beside(result, evidence)
    raise UsageError(
        "{} holds no scores of heads for {evidence} to stand beside; leave it out",
        path,
        evidence=...,
    )


def parts(result: Record) -> Iterator[RenderableType]:
    """Its title, what it is of, and a table for each of its lists."""
    if title := getattr(result, "title", ""):
        yield Line(visible(title), "bold")
    plain = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    lists = {}
    for field in fields(result):
        value = getattr(result, field.name)
        if not field.compare or field.name in ("title", "notes") or value is None:
            continue
        if isinstance(value, tuple) and value and is_dataclass(value[0]):
            lists[field.name] = value
        else:
            plain.add_row(Text(field.name, "dim"), Text(_said(value)))
    yield plain
    for name, rows in lists.items():
        yield ""
        yield Line(name, "bold")
        yield _table(rows)


def _table(rows: tuple[Any, ...]) -> Table:
    """Return a column for each field that any row has."""
    names = [
        field.name
        for field in fields(rows[0])
        if any(getattr(row, field.name) is not None for row in rows)
    ]
    table = table_of(*names, fold=False)
    for row in rows:
        table.add_row(*(Text(_said(getattr(row, name))) for name in names))
    return table


def _said(value: Any) -> str:
    """Return a value on one line; of an amount that has none the formula."""
    if value is None:
        return ""
    if hasattr(value, "formula"):
        return _said(value.formula if value.value is None else value.value)
    if is_dataclass(value):
        values = ((field.name, getattr(value, field.name)) for field in fields(value))
        return ", ".join(f"{name} {_said(part)}" for name, part in values if part not in (None, ()))
    if isinstance(value, tuple | list):
        return ", ".join(map(_said, value))
    if isinstance(value, bool | str):
        return visible(str(value))
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
