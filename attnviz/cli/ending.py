"""How a command ends: its result as JSON, as CSV, or for people, with its notes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from attnviz.cli import console

if TYPE_CHECKING:
    from attnviz.drawing.forms import Shown

WRITTEN = "Also write it: a picture (.png, .svg, .pdf), a table (.csv, .parquet) or .json."
"""Help of an option for a file that a result goes to."""


def check(
    kind: type[Shown], json: bool, csv: bool, *paths: Path | None, picture: Path | None = None
) -> None:
    """Refuse what could not be written, before any work is done.

    Args:
        kind: of the result.
        json: whether standard output is to be JSON.
        csv: whether it is to be CSV.
        paths: files that the result goes to, in any of its forms; None for what is not asked for.
        picture: a file that can be nothing but a picture.

    Raises:
        typer.BadParameter: JSON and CSV at once. UsageError, OutputError: a suffix that the result
            has no form for, or a place where nothing can be written.
    """
    from attnviz import files
    from attnviz.drawing.forms import picture_format

    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    for path in filter(None, paths):
        kind.check_suffix(path)
    if picture is not None:
        picture_format(picture)
    for path in filter(None, (*paths, picture)):
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
