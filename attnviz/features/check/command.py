"""``attnviz check``: is a file of recorded attention in order?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import ending
from attnviz.cli.exits import DIFFERS


def check(
    path: Annotated[
        Path,
        typer.Argument(
            help="A recording, or what another tool has written (docs/recording.md).",
            metavar="FILE",
            show_default=False,
        ),
    ],
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.check/1).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one line per problem.")] = False,
) -> None:
    """Check recorded attention: every problem with its path in the file, what was expected, found.

    Exit code 0: it can be read. 1: no such file, or none that could be. 4: something is wrong with
    it.

    [bold]Examples[/]

      attnviz capture "The cat sat" -o cat.npz

      attnviz check cat.npz
    """
    from attnviz.features.check.function import check as checked
    from attnviz.features.check.result import FileCheck

    ending.check(FileCheck, json, csv)
    found = checked(path)
    ending.show(found, False, json=json, csv=csv)
    if not found.holds:
        raise typer.Exit(DIFFERS)
