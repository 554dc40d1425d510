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
MARKDOWN_WIDTH = 100

Draw = Callable[[int, Paint], list[str]]
"""Draws something for a terminal of so many columns."""


class Answer(NamedTuple):
    """One view.

    Attributes:
        view: ``walk``, ``compare``, ...; named in the JSON.
        title: the first line.
        tables: the first of them is what CSV holds.
        notes: sentences below.
        data: what the JSON holds beside schema, view, title and notes.
        draw: a plot or diagram for the terminal, shown before the notes.
    """

    view: str
    title: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    data: Mapping[str, Any] = {}
    draw: Draw | None = None


def as_text(answer: Answer, width: int, paint: Paint) -> str:
    """For a terminal of ``width`` columns."""
    lines = [paint(line, "title") for line in wrapped(answer.title, width)]
    for table in answer.tables:
        lines += ["", *table_text(table, width, paint)]
    if answer.draw is not None:
        lines += ["", *answer.draw(width, paint)]
    if answer.notes:
        lines.append("")
    for note in answer.notes:
        first, *rest = wrapped(note, width - 2)
        lines += [paint("• " + first, "dim"), *(paint("  " + line, "dim") for line in rest)]
    return "\n".join(lines) + "\n"


def as_markdown(answer: Answer) -> str:
    """For papers and READMEs; what is only drawn is drawn as text."""
    parts = [f"### {answer.title}\n", *(table_markdown(table) for table in answer.tables)]
    if answer.draw is not None and not answer.tables:
        lines = answer.draw(MARKDOWN_WIDTH, Paint(colour=False))
        parts.append("\n".join(["```text", *lines, "```\n"]))
    parts += ["\n".join(f"- {note}" for note in answer.notes) + "\n"] if answer.notes else []
    return "\n".join(parts)


def as_csv(answer: Answer) -> str:
    """The first table, bare values."""
    return table_csv(answer.tables[0])


def as_json(answer: Answer) -> str:
    """Everything, in the schema of docs/shapes.schema.json."""
    import json

    document = {
        "schema": SCHEMA,
        "view": answer.view,
        "title": answer.title,
        **answer.data,
        "notes": list(answer.notes),
    }
    return json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
