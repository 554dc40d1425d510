"""``attnviz help``: what a term means."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.cli import COMMANDS, console
from attnviz.cli.declared import command
from attnviz.core.settings import Settings, setting


@dataclass(frozen=True)
class TermOptions(Settings):
    """What is asked about."""

    term: str | None = setting(
        None, "Such as 'induction head' or sink; without it all are listed.", argument=True
    )


@command
def help(options: TermOptions) -> None:
    """Say what a term means, in a few lines and with its source.

    [bold]Examples[/]

      attnviz help "attention sink"

      attnviz help ALTI
    """
    from attnviz.core import glossary
    from attnviz.features.glossary import terminal

    screen = console.stdout()
    if options.term is None:
        screen.print(terminal.listed(glossary.terms()))
        screen.print("attnviz help TERM says what one of them means.", style="dim")
    elif options.term in COMMANDS:
        screen.print(f"{options.term} is a command: attnviz {options.term} --help")
    else:
        for line in terminal.definition(glossary.term(options.term)):
            screen.print(line)
