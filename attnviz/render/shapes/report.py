"""What a view of shapes and costs comes to: tables, sentences, perhaps a plot, and plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from attnviz.render.shapes.table import (
    Paint,
    Table,
    table_csv,
    table_markdown,
    table_text,
    wrapped,
)

SCHEMA = "attnviz.shapes/1"

Draw = Callable[[int, Paint], list[str]]
"""Draws something for a terminal of so many columns."""


class Report(NamedTuple):
    """One view.

    Attributes:
        view: ``walk``, ``compare``, ...; named in the JSON.
        title: the first line.
        tables: the first of them is what CSV holds.
        notes: sentences below.
        data: what the JSON holds beside schema, view, title and notes.
        draw: a plot or diagram for the terminal, shown before the notes.
        wide: a wider form of the first table, for terminals with room for it, with its width.
    """

    view: str
    title: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    data: Mapping[str, Any] = {}
    draw: Draw | None = None
    wide: tuple[int, Table] | None = None


def as_text(report: Report, width: int, paint: Paint) -> str:
    """For a terminal of ``width`` columns."""
    lines = [paint(line, "title") for line in wrapped(report.title, width)]
    for i, table in enumerate(report.tables):
        if i == 0 and report.wide is not None and width >= report.wide[0]:
            table = report.wide[1]  # noqa: PLW2901
        lines += ["", *table_text(table, width, paint)]
    if report.draw is not None:
        lines += ["", *report.draw(width, paint)]
    if report.notes:
        lines.append("")
    for note in report.notes:
        first, *rest = wrapped(note, width - 2)
        lines += [paint("• " + first, "dim"), *(paint("  " + line, "dim") for line in rest)]
    return "\n".join(lines) + "\n"


def as_markdown(report: Report) -> str:
    """For papers and READMEs."""
    tables = list(report.tables)
    if report.wide is not None:
        tables[0] = report.wide[1]
    parts = [f"### {report.title}\n", *(table_markdown(table) for table in tables)]
    parts += ["\n".join(f"- {note}" for note in report.notes) + "\n"] if report.notes else []
    return "\n".join(parts)


def as_csv(report: Report) -> str:
    """The first table, bare values."""
    return table_csv(report.wide[1] if report.wide else report.tables[0])


def as_json(report: Report) -> str:
    """Everything, in the schema of docs/shapes.schema.json."""
    import json

    document = {
        "schema": SCHEMA,
        "view": report.view,
        "title": report.title,
        **report.data,
        "notes": list(report.notes),
    }
    return json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
