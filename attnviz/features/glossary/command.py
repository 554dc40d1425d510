"""``attnviz help``: what a term means."""

from __future__ import annotations

from typing import Annotated

import typer

from attnviz.cli import COMMANDS, console


def help(
    term: Annotated[
        str | None,
        typer.Argument(help="Such as 'induction head' or sink.", show_default="list all terms"),
    ] = None,
) -> None:
    """Say what a term means, in a few lines and with its source.

    [bold]Examples[/]

      attnviz help "attention sink"

      attnviz help ALTI
    """
    from attnviz.core import glossary
    from attnviz.features.glossary import terminal

    screen = console.stdout()
    if term in COMMANDS and term is not None:
        screen.print(f"{term} is a command: attnviz {term} --help")
        return
    if term is None:
        screen.print(terminal.listed(glossary.terms()))
        screen.print("attnviz help TERM says what one of them means.", style="dim")
        return
    for line in terminal.definition(glossary.term(term)):
        screen.print(line)
