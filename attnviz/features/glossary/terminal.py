"""Terms on the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.table import Table
from rich.text import Text

from attnviz.core.questions import Question, Term


def definition(term: Term) -> Iterator[Text]:
    """What a term means, other names of it, where it is from, and a command that shows it."""
    also = f" (also: {', '.join(term.also)})" if term.also else ""
    yield Text.assemble((term.name, "bold"), (also, "dim"))
    yield Text(term.text)
    if term.source:
        yield Text(term.source, "dim")
    yield Text(f"Try: {term.command}")


def listed(all_: Sequence[Term]) -> Table:
    """Every term with its other names."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for term in all_:
        table.add_row(term.name, Text(", ".join(term.also), "dim"))
    return table


def answer(question: Question) -> Text:
    """A question, and below it the command that answers it."""
    python = f"  {question.python}\n" if question.python else ""
    return Text.assemble((question.asks, "bold"), f"\n  {question.command}\n{python}")
