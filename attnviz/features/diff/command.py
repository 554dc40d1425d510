"""``attnviz diff``: what changed between two runs, head by head."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from attnviz.cli import console
from attnviz.cli.flattening import flatten
from attnviz.cli.options import OutputOptions, TrainedOptions


@flatten
def diff(
    model: TrainedOptions,
    output: OutputOptions,
    before: Annotated[
        str | None,
        typer.Argument(
            help="A capture (.npz, .safetensors), a report (.json, .profile) or a text.",
            show_default=False,
        ),
    ] = None,
    after: Annotated[
        str | None, typer.Argument(help="What to compare it with.", show_default=False)
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Send the text through this model too, and compare.", metavar="MODEL"),
    ] = None,
    lines: Annotated[
        str | None,
        typer.Option(help="With --against: texts from a file, one a line.", metavar="FILE"),
    ] = None,
    align: Annotated[
        str, typer.Option(help="What belongs together: the same token, position or word.")
    ] = "token",
    top: Annotated[int, typer.Option(help="Heads to list.", metavar="N", min=1)] = 10,
    fail_over: Annotated[
        float | None,
        typer.Option(
            help="Exit with 1 if a head's mean distance (of reports: a figure) differs by more.",
            metavar="X",
            min=0.0,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.diff/1).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line a figure.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Also draw signed maps: a .png, .svg or .pdf file.", metavar="FILE"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Also write a page with the maps of every head in both runs: an .html file.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Show what changed between two captures, two reports, or one text through two models.

    [bold]Examples[/]

      attnviz diff before.npz after.npz

      attnviz diff "The cat sat" --model my-model --against my-model-tuned --fail-over 0.01

      attnviz diff "It was too tired" "It was too wide" --align position

      attnviz diff heads-before.json heads-after.json
    """
    from attnviz import compared, files
    from attnviz.errors import InputError, UsageError
    from attnviz.notebook import page_path, picture_format
    from attnviz.render.diff import tables, terminal

    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    if (before is None) == (lines is None):
        raise UsageError("give what to compare, or --lines FILE with --against MODEL")
    if plot is not None:
        picture_format(plot)
        files.check_writable(plot)
    if out is not None:
        page_path(out)
        files.check_writable(out)
    what: Any = before
    if lines is not None:
        from attnviz.corpus import lines as texts

        what = [text for _, text in texts.lines(lines)]
        if not what:
            raise InputError(f"{texts.shown(lines)} holds no text; give a text a line")
    with console.waiting("comparing", output.quiet):
        report = compared.diff(what, after, against=against, align=align, **model.settings())
    for path in (plot, out):
        if path is not None:
            report.save(path)
    if json or csv:
        console.put((tables.diff_json if json else tables.diff_csv)(report))
    else:
        screen = console.stdout()
        for part in terminal.parts(report, top):
            screen.print(part)
        console.note(report.notes, output.quiet)
    if fail_over is not None and report.largest > fail_over:
        console.note([f"{report.heads[0].name} differs by {report.largest:.3g}, more than "
                      f"{fail_over:g}"], quiet=False)  # fmt: skip
        raise typer.Exit(1)
