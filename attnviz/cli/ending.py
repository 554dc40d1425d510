"""How a command ends: its result as JSON, as CSV, or for people, with its notes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnviz.cli import console

if TYPE_CHECKING:
    from attnviz.drawing.forms import Shown


def check(
    kind: type[Shown], json: bool, csv: bool, *plots: Path | None, out: Path | None = None
) -> None:
    """Refuse what could not be written, before any work is done.

    Args:
        kind: of the result.
        json: whether standard output is to be JSON.
        csv: whether it is to be CSV.
        plots: files that pictures go to; None for one that is not asked for.
        out: a file of any form that the result has.

    Raises:
        typer.BadParameter: JSON and CSV at once. UsageError, OutputError: a suffix that the result
            has no form for, or a place where nothing can be written.
    """
    from attnviz import files
    from attnviz.drawing.forms import picture_format

    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    if out is not None:
        kind.check_suffix(out)
    for path in filter(None, plots):
        picture_format(path)
    for path in filter(None, (*plots, out)):
        files.check_writable(path)


def show(
    found: Any, quiet: bool, *shown: Any, json: bool, csv: bool, wrote: Path | None = None,
    **options: Any,
) -> None:  # fmt: skip
    """Print a result.

    Args:
        found: the result.
        quiet: whether notes are left out.
        shown: what its ``terminal.parts`` takes behind the result, as for ``options``.
        json: print it as JSON and nothing else; ``csv`` likewise.
        csv: see ``json``.
        wrote: a file to say of that it is written.
        options: see ``shown``.
    """
    if json or csv:
        console.put(found.to_json() if json else found.to_csv())
        return
    screen = console.stdout()
    for part in found.for_terminal(*shown, **options):
        screen.print(part)
    console.note(found.notes, quiet)
    if wrote is not None and not quiet:
        console.wrote(wrote)
