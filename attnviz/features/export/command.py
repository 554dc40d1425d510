"""``attnviz export``: pictures of many texts into a folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import typer

from attnviz.captures.settings import Attaching
from attnviz.cli import console
from attnviz.cli.declared import changed, command
from attnviz.cli.exits import IN_PART, Interrupted
from attnviz.cli.model_options import ModelOptions
from attnviz.cli.options import FilesOptions, Quiet
from attnviz.cli.output import OUTPUT
from attnviz.core.settings import Settings, like, setting
from attnviz.drawing.style import Style
from attnviz.errors import UsageError
from attnviz.features.export.settings import ExportRun, ExportSettings


@dataclass(frozen=True)
class ExportFiles(Settings):
    """What is read, and where the pictures go."""

    files: tuple[str, ...] = like(
        FilesOptions,
        "files",
        help="Text (a sentence a line), .jsonl, .csv or .tsv files, patterns, - for stdin.",
    )
    out_dir: Path = setting(
        ...,
        "Output folder.",
        short="o",
        spelled=("out-dir", "out"),
        panel=OUTPUT,
        metavar="FOLDER",
        common=True,
    )


@command
def export(
    inputs: ExportFiles,
    settings: ExportSettings,
    how: ExportRun,
    attaching: Attaching,
    model: ModelOptions,
    quiet: Quiet,
    style: Style,
) -> None:
    """Draw the maps of many sentences into a folder, with a manifest and an offline gallery.

    Every file is written whole or not at all. The same command resumes where it stopped.

    [bold]Examples[/]

      attnviz export sample_inputs/sentences.txt --out maps --select "2.*,L3H1"

      attnviz export sample_inputs/repeats.jsonl -o maps --role induction -s clearest:3

      attnviz export sample_inputs/questions.jsonl --column q -o maps --layout layers,overview
    """
    from attnviz.drawing import terminal
    from attnviz.features.export import function
    from attnviz.features.export.bar import ExportBar
    from attnviz.features.export.run import ExportInterrupted

    if how.recorded:
        _check_recorded(settings, how, model)
    files = list(inputs.files)
    bar = ExportBar(files, recorded=how.recorded, limit=how.limit, quiet=quiet.quiet)
    try:
        with bar:
            result = function.export(
                files,
                inputs.out_dir,
                progress=bar.show,
                **settings.asked(),
                **how.asked(),
                **style.asked(),
                **attaching.asked(),
                **model.asked(),
            )
    except ExportInterrupted as stopped:
        raise Interrupted(
            f"interrupted; {stopped.result.pictures} new files in {inputs.out_dir}, all complete; "
            "the same command resumes from here"
        ) from None
    if not quiet.quiet:
        console.stdout().print(terminal.Line(console.one_line(bar.closing(result))), soft_wrap=True)
    console.note(result.notes, quiet.quiet)
    if settings.role is not None and result.inputs and not result.pictures + result.kept:
        console.note([f"no head has the role {settings.role!r} on these inputs"], quiet.quiet)
    if result.bad:
        raise typer.Exit(IN_PART)


def _check_recorded(settings: ExportSettings, how: ExportRun, model: ModelOptions) -> None:
    """Refuse what recorded attention has no use for."""
    if extra := changed(model):
        raise UsageError(f"--recorded needs no model; leave out {', '.join(extra)}")
    tokens = {"column": how.column, "special_tokens": settings.special_tokens is False or None,
              "truncate": settings.truncate or None}  # fmt: skip
    given = [name for name, value in tokens.items() if value is not None]
    extra = [
        *changed(how, but=[name for name in how.changed() if name not in given]),
        *changed(settings, but=[name for name in settings.changed() if name not in given]),
    ]
    if extra:
        raise UsageError(f"--recorded brings its own tokens; leave out {', '.join(extra)}")
