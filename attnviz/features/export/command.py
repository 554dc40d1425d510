"""``attnviz export``: pictures of many texts into a folder."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from attnviz.captures.settings import Attaching
from attnviz.cli import console
from attnviz.cli.console import IN_PART, Interrupted, TextsBar, pace
from attnviz.cli.declared import changed, command
from attnviz.cli.options import FilesOptions, ModelOptions, Quiet
from attnviz.cli.output import OUTPUT
from attnviz.core.settings import Settings, like, setting
from attnviz.drawing.labels import counted
from attnviz.drawing.style import Style
from attnviz.errors import UsageError
from attnviz.features.export.settings import ExportRun, ExportSettings

if TYPE_CHECKING:
    from attnviz.features.export.run import Exported


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

      attnviz export sample_inputs/repeats.jsonl -o clearest -s clearest:3

      attnviz export sample_inputs/questions.jsonl --column q -o questions
    """
    from attnviz.drawing import terminal
    from attnviz.features.export import function
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
                settings=settings,
                how=how,
                style=style,
                attaching=attaching,
                model=model.chosen(),
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
    set_names = [name for name, value in tokens.items() if value is not None]
    extra = [
        *changed(how, but=[name for name in how.changed() if name not in set_names]),
        *changed(settings, but=[name for name in settings.changed() if name not in set_names]),
    ]
    if extra:
        raise UsageError(f"--recorded brings its own tokens; leave out {', '.join(extra)}")


class ExportBar(TextsBar):
    """Progress on standard error: sentences, pictures, rate, time left."""

    def __init__(
        self, inputs: Sequence[str], *, recorded: bool, limit: int | None, quiet: bool
    ) -> None:
        count = partial(_count, inputs, recorded, limit)
        rate = "{task.fields[pictures]} pictures, {task.fields[rate]:.0f}/s"
        super().__init__(
            "{task.completed} sentences", (rate,), count, quiet=quiet, pictures=0, rate=0.0
        )
        self._start = time.perf_counter()

    def show(self, result: Exported) -> None:
        """Draw what is done, and report inputs that could not be used."""
        self.skipped(result.bad[self._told :])
        rate = result.pictures / max(time.perf_counter() - self._start, 1e-9)
        pictures = result.pictures + result.kept
        self.step("inputs", result.inputs + len(result.bad), pictures=pictures, rate=rate)

    def closing(self, result: Exported) -> str:
        """Return what was done, in one line."""
        rate = result.pictures / max(result.seconds, 1e-9)
        parts = [f"wrote {counted(result.pictures, 'file')} to {result.out}"]
        parts.append(f"{counted(result.inputs, 'input')} in {result.seconds:.1f} s")
        parts.append(pace(rate))
        if result.kept:
            parts.append(f"{result.kept:,} were there already")
        parts.append(f"{len(result.bad):,} skipped")
        return " · ".join(filter(None, [*parts, result.model]))


def _count(inputs: Sequence[str], recorded: bool, limit: int | None) -> int | None:
    """Say about how many inputs will come."""
    from attnviz.corpus import texts

    count = None if recorded else texts.count(texts.resolve(inputs))
    return limit if count is None else min(count, limit or count)
