"""An answer as text for a terminal, as Markdown and as CSV."""

from __future__ import annotations

from attnviz.errors import UsageError
from attnviz.features.shapes.result import Answer
from attnviz.features.shapes.table import Paint, table_csv, table_markdown, table_text, wrapped

MARKDOWN_WIDTH = 100


def as_text(answer: Answer, width: int, paint: Paint) -> str:
    """For a terminal of ``width`` columns."""
    lines = [paint(line, "title") for line in wrapped(answer.title, width)]
    blocks = [table_text(table, width, paint) for table in answer.tables]
    if answer.draw is not None:
        blocks.insert(0 if answer.draws_first else len(blocks), answer.draw(width, paint))
    for block in blocks:
        lines += ["", *block]
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
    """The first table, bare values.

    Raises:
        UsageError: a diagram, an animation, or an answer read from JSON: there is no table.
    """
    if not answer.tables:
        raise UsageError(f"this answer, a {answer.view}, has no table; take its JSON")
    return table_csv(answer.tables[0])
