"""``attnviz check``: is a file of recorded attention in order?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from attnviz.cli.declared import command
from attnviz.cli.exits import DIFFERS
from attnviz.cli.output import Output
from attnviz.core.settings import Settings, setting


@dataclass(frozen=True)
class RecordedFile(Settings):
    """What is checked."""

    path: Path = setting(
        ..., "A recording, or what another tool has written (docs/recording.md).", argument=True
    )


@command
def check(recorded: RecordedFile, output: Output) -> None:
    """Check recorded attention: every problem with its path in the file, what was expected, found.

    Exit code 0: it can be read. 1: no such file, or none that could be. 4: something is wrong with
    it.

    [bold]Examples[/]

      attnviz capture "The cat sat" -o cat.npz

      attnviz check cat.npz
    """
    from attnviz.features.check import function
    from attnviz.features.check.result import FileCheck

    output.check_written(FileCheck)
    result = function.check(recorded.path)
    output.deliver(result)
    if not result.holds:
        raise typer.Exit(DIFFERS)
