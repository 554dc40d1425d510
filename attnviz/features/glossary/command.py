"""``attnviz help``: what a term means, and which command answers a question."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.cli import COMMANDS, console
from attnviz.cli.declared import command
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
    from attnviz.core import questions
    from attnviz.features.glossary import terminal

    screen = console.stdout()
    if options.term is None:
        screen.print(terminal.listed(questions.terms()))
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
            screen.print(terminal.answer(question), soft_wrap=True)
        screen.print("attnviz help lists the glossary, attnviz --help all commands.", style="dim")
    else:
        for line in terminal.definition(questions.term(options.term)):
            screen.print(line)
