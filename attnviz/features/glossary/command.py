"""``attnviz help``: what a term means, and which command answers a question."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from attnviz.cli import COMMANDS, console
from attnviz.cli.declared import command
from attnviz.core import questions
from attnviz.core.questions import Question, Term
from attnviz.core.settings import Settings, setting


@dataclass(frozen=True)
class TermOptions(Settings):
    """What is asked about."""

    term: str | None = setting(
        None,
        "Such as 'induction head' or 'which heads matter'; without it all terms are listed.",
        argument=True,
    )


@command
def help(options: TermOptions) -> None:
    """Say what a term means, with its source, or which command answers a question.

    [bold]Examples[/]

      attnviz help "attention sink"

      attnviz help "which heads matter"
    """
    screen = console.stdout()
    if options.term is None:
        screen.print(_listed(questions.terms()))
        screen.print(
            "attnviz help TERM says what one of them means; attnviz help QUESTION, which command "
            "answers it.",
            style="dim",
        )
    elif options.term in COMMANDS:
        screen.print(f"{options.term} is a command: attnviz {options.term} --help")
    elif not questions.known(options.term) and (
        near := questions.about_head(options.term) or questions.nearest(options.term)
    ):
        for question in near:
            screen.print(_answer(question), soft_wrap=True)
        screen.print("attnviz help lists the glossary, attnviz --help all commands.", style="dim")
    else:
        for line in _definition(questions.term(options.term)):
            screen.print(line)


def _definition(term: Term) -> Iterator[Text]:
    """Yield what a term means, other names of it, where it is from, and a command that shows it."""
    also = f" (also: {', '.join(term.also)})" if term.also else ""
    yield Text.assemble((term.name, "bold"), (also, "dim"))
    yield Text(term.text)
    if term.source:
        yield Text(term.source, "dim")
    yield Text(f"Try: {term.command}")


def _listed(terms: Sequence[Term]) -> Table:
    """Every term with its other names."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for term in terms:
        table.add_row(term.name, Text(", ".join(term.also), "dim"))
    return table


def _answer(question: Question) -> Text:
    """Return a question, and below it the command that answers it."""
    python = f"  {question.python}\n" if question.python else ""
    return Text.assemble((question.asks, "bold"), f"\n  {question.command}\n{python}")
