"""``attnviz export``: pictures of many texts into a folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import typer

from attnviz.cli import console
from attnviz.cli.exits import IN_PART, Interrupted
from attnviz.cli.flattening import flatten
from attnviz.cli.options import (
    EVIDENCE,
    SELECT_HELP,
    SPECIAL_TOKENS,
    WEIGH_HELP,
    WEIGHTS,
    ModelOptions,
    OutputOptions,
)
from attnviz.cli.style_options import StyleOptions
from attnviz.errors import UsageError

INPUT, PICTURES, RUN = "Input", "Pictures", "Running"


def _option(help: str, panel: str, *names: str, metavar: str | None = None) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, metavar=metavar)


@dataclasses.dataclass(frozen=True)
class ExportModel(ModelOptions):
    """Model options; a fresh layer's kind gives way to the kind of picture."""

    kind: Annotated[
        str | None,
        typer.Option(
            "--fresh-kind",
            help="mha, gqa, mqa, mla or cross.",
            rich_help_panel="Fresh layer (--model fresh)",
            show_default="mha",
        ),
    ] = None


@flatten
def export(
    model: ExportModel,
    output: OutputOptions,
    looks: StyleOptions,
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="Text (a sentence a line), .jsonl, .csv or .tsv files, patterns, - for stdin.",
            metavar="FILE...",
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder.", metavar="FOLDER")],
    column: Annotated[
        str | None,
        _option(
            "The column or field that holds the text, for tables and JSONL.", INPUT, metavar="NAME"
        ),
    ] = None,
    recorded: Annotated[
        bool, _option("The files are recorded attention (.npz, .safetensors).", INPUT, "--recorded")
    ] = False,
    skip: Annotated[
        int, typer.Option(help="Skip the first N inputs.", min=0, rich_help_panel=INPUT)
    ] = 0,
    limit: Annotated[
        int | None, typer.Option(help="Take at most N inputs.", min=1, rich_help_panel=INPUT)
    ] = None,
    strict: Annotated[
        bool, _option("Stop at the first line that cannot be used.", INPUT, "--strict")
    ] = False,
    special_tokens: Annotated[bool, SPECIAL_TOKENS] = True,
    truncate: Annotated[
        bool, _option("Truncate texts that are too long for the model.", INPUT, "--truncate")
    ] = False,
    select: Annotated[
        str | None, _option(SELECT_HELP, PICTURES, "--select", "-s", metavar="HEADS")
    ] = None,
    role: Annotated[
        str | None,
        _option(
            "Only heads with this role on the sentence, or given by --with: induction, obj.",
            PICTURES,
        ),
    ] = None,
    evidence: Annotated[list[Path] | None, EVIDENCE] = None,
    top: Annotated[
        int | None,
        typer.Option(
            help="Only the N heads of a sentence with the largest lift.",
            min=1,
            rich_help_panel=PICTURES,
            metavar="N",
        ),
    ] = None,
    pictures: Annotated[
        str,
        _option(
            "heads (one each), layers (a layer's heads in a grid), grid (all chosen heads), "
            "overview (a mosaic); comma-separated.",
            PICTURES,
            "--kind",
        ),
    ] = "heads",
    rows: Annotated[
        str | None,
        _option(
            "Only these queries: tokens such as 0-40, in pictures alone.",
            PICTURES,
            metavar="TOKENS",
        ),
    ] = None,
    keys: Annotated[
        str | None, _option("Only these keys, as for --rows.", PICTURES, metavar="TOKENS")
    ] = None,
    format: Annotated[str, _option("png, svg or pdf.", PICTURES)] = "png",
    weigh: Annotated[str, _option(WEIGH_HELP, PICTURES, metavar="QUANTITY")] = WEIGHTS,
    weights: Annotated[
        str | None, _option("Also save the weights: npz or safetensors.", PICTURES)
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            help="Number of processes that draw.",
            min=1,
            rich_help_panel=RUN,
            show_default="all cores",
            metavar="N",
        ),
    ] = None,
    force: Annotated[
        bool, _option("Replace pictures made with other settings.", RUN, "--force")
    ] = False,
    sync: Annotated[
        str,
        _option(
            "When to flush files to disk: never, end (the manifest only) or always.", RUN, "--fsync"
        ),
    ] = "end",
) -> None:
    """Draw the maps of many sentences into a folder, with a manifest and an offline gallery.

    Every file is written whole or not at all. The same command resumes where it stopped.

    [bold]Examples[/]

      attnviz export sentences.txt --out maps --select "4.*,L5H1"

      attnviz export corpus.jsonl -o maps -m bert-base-uncased --role induction --top 3

      attnviz export dev.txt -o maps --with syntax.json --role obj

      attnviz export essays.txt -o maps --rows 0-40 --keys 0-40

      attnviz export table.csv --column question -o maps --kind layers,overview --format svg
    """
    from attnviz.attention.sizes import KINDS as FRESH_KINDS
    from attnviz.drawing import terminal
    from attnviz.features.export import function as exported
    from attnviz.features.export.bar import ExportBar
    from attnviz.features.export.execution import Execution
    from attnviz.features.export.run import ExportInterrupted
    from attnviz.features.export.settings import ExportSettings

    kinds = tuple(kind.strip() for kind in pictures.split(","))
    if set(kinds).intersection(FRESH_KINDS):
        raise UsageError(
            f"--kind chooses pictures here; for the layer write --fresh-kind {pictures}"
        )
    if recorded:
        model.for_recorded()
        given = {
            "--column": column,
            "--no-special-tokens": not special_tokens,
            "--truncate": truncate,
        }
        if extra := ", ".join(name for name, value in given.items() if value):
            raise UsageError(f"--recorded brings its own tokens; leave out {extra}")
    settings = ExportSettings(
        select=select,
        role=role,
        top=top,
        kinds=kinds,
        rows=rows,
        keys=keys,
        style=dataclasses.replace(looks.style(), quantity=weigh),
        format=format,
        weights=weights,
        special_tokens=special_tokens,
        truncate=truncate,
    )
    execution = Execution(jobs=jobs, force=force, strict=strict, skip=skip, limit=limit, sync=sync)
    bar = ExportBar(inputs, recorded=recorded, skip=skip, limit=limit, quiet=output.quiet)
    try:
        with bar:
            result = exported.export_maps(
                inputs,
                out,
                model=model.choose(),
                device=model.device,
                dtype=model.dtype,
                settings=settings,
                execution=execution,
                column=column,
                recorded=recorded,
                evidence=evidence,
                progress=bar.show,
            )
    except ExportInterrupted as stopped:
        raise Interrupted(
            f"interrupted; {stopped.result.pictures} new files in {out}, all complete; "
            "the same command resumes from here"
        ) from None
    if not output.quiet:
        console.stdout().print(terminal.Line(console.one_line(bar.closing(result))), soft_wrap=True)
    console.note(result.notes, output.quiet)
    if role is not None and result.inputs and not result.pictures + result.kept:
        console.note([f"no head has the role {role!r} on these inputs"], output.quiet)
    if result.bad:
        raise typer.Exit(IN_PART)
