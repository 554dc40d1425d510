"""``attnviz diff``: what changed between two runs, head by head."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from attnviz.cli import console, ending
from attnviz.cli.exits import DIFFERS, NOTHING_COMPARED
from attnviz.cli.flattening import flatten
from attnviz.cli.options import OutputOptions, TrainedOptions, say_file
from attnviz.cli.paper_options import PaperOptions

if TYPE_CHECKING:
    from attnviz.features.diff.result import Diff


def _number(value: float | None) -> float | None:
    """No NaN, which nothing is larger than."""
    if value is not None and math.isnan(value):
        raise typer.BadParameter(f"{value} is no number")
    return value


@flatten
def diff(
    model: TrainedOptions,
    output: OutputOptions,
    paper: PaperOptions,
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
        typer.Option(help="Also run the text through this model, and compare.", metavar="MODEL"),
    ] = None,
    lines: Annotated[
        str | None,
        typer.Option(help="With --against: texts from a file, one per line.", metavar="FILE"),
    ] = None,
    align: Annotated[
        str, typer.Option(help="How rows are matched: by token, position or word.")
    ] = "token",
    top: Annotated[int, typer.Option(help="Number of heads to list.", metavar="N", min=1)] = 10,
    fail_over: Annotated[
        float | None,
        typer.Option(
            help="Exit with 4 if a head's mean distance (of reports: a figure) differs by more, "
            "with 5 if a head cannot be compared.",
            metavar="X",
            min=0.0,
            callback=_number,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.diff/2).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one line per figure.")] = False,
    markdown: Annotated[
        bool,
        typer.Option("--markdown", help="Print Markdown, for the comment on a pull request."),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Also draw signed maps: a .png, .svg or .pdf file.", metavar="FILE"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Also write it: a page with the maps of every head in both runs (.html), a "
            "picture, .json or .csv.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Show what changed between two captures, two reports, or one text through two models.

    [bold]Examples[/]

      attnviz diff before.npz after.npz

      attnviz diff "The cat sat" --model my-model --against my-model-tuned --fail-over 0.01

      attnviz diff "It was too tired" "It was too wide" --align position

      attnviz diff heads-before.json heads-after.json --markdown > comment.md
    """
    drawn = paper.options()
    from attnviz.errors import InputError, UsageError
    from attnviz.features.diff import function
    from attnviz.features.diff.result import Diff

    ending.check(Diff, json, csv, plot, out)
    if markdown and (json or csv):
        raise typer.BadParameter("--json, --csv and --markdown exclude each other")
    if (before is None) == (lines is None):
        raise UsageError("give what to compare, or --lines FILE with --against MODEL")
    what: Any = before
    _say_files((before, after), output.quiet)
    if lines is not None:
        from attnviz.corpus import lines as texts

        what = [text for _, text in texts.lines(lines)]
        if not what:
            raise InputError(f"{texts.shown(lines)} holds no text; give one text per line")
    with console.waiting("comparing", output.quiet):
        found = function.diff(what, after, against=against, align=align, **model.settings())
    for path in (plot, out):
        if path is not None:
            found.save(path, **drawn)
    if markdown:
        console.put(found.to_markdown(top=top, limit=fail_over))
    else:
        ending.show(found, output.quiet, top, json=json, csv=csv)
    if fail_over is not None:
        _check(found, fail_over)


def _say_files(texts: tuple[str | None, ...], quiet: bool) -> None:
    """Note which texts are names of files whose suffix is none of a capture or a found."""
    from attnviz.features.diff.function import is_file

    for text in dict.fromkeys(text for text in texts if not is_file(text)):
        say_file(text, quiet, "lines")


def _check(found: Diff, most: float) -> None:
    """Exit with a code of its own where a head differs by more, or nothing says whether it does."""
    if found.largest is not None and found.largest > most:
        said = f"{found.heads[0].name} differs by {found.largest:.3g}, more than {most:g}"
        console.note([said], quiet=False)
        raise typer.Exit(DIFFERS)
    if found.uncompared or not found.heads:
        which = ", ".join(found.uncompared[:5]) or "no head"
        console.note([f"nothing to compare in both runs: {which}"], quiet=False)
        raise typer.Exit(NOTHING_COMPARED)
