"""``attnviz flow``: what reaches every position from every token, through all layers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import ending
from attnviz.cli.flattening import flatten
from attnviz.cli.options import InputOptions, ModelOptions, OutputOptions
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.stages import Stages
from attnviz.cli.style_options import DEFAULT, DPI, PALETTE, SCALE


@flatten
def flow(
    prompt: InputOptions,
    model: ModelOptions,
    output: OutputOptions,
    paper: PaperOptions,
    method: Annotated[
        str | None,
        typer.Option(
            help="alti, rollout or max-flow (up to 128 tokens).",
            metavar="METHOD",
            show_default="alti where possible",
        ),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option(
            help="Trace what reaches this token: its position, from 0 (-1 is the last), or "
            "its text.",
            metavar="TOKEN",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", help="Trace where this token goes.", metavar="TOKEN"),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.flow/2).")] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV, one line per pair of tokens.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Also write it: a page to explore (.html), .png, .svg, .pdf, .json or .csv.",
            metavar="FILE",
        ),
    ] = None,
    palette: Annotated[str, PALETTE] = DEFAULT.palette,
    scale: Annotated[str, SCALE] = DEFAULT.scale,
    dpi: Annotated[float, DPI] = DEFAULT.dpi,
) -> None:
    """Follow tokens from layer to layer: what reaches each position, beside the raw weights.

    Maps show whole texts; --to and --from one token, with lines across the layers.

    [bold]Examples[/]

      attnviz flow "The keys to the cabinet are on the table"

      attnviz flow "The keys to the cabinet are on the table" --to table -o table.png

      attnviz flow "The cat sat on the mat." --model demo-bert --from cat -o page.html

      attnviz flow --recorded capture.npz --method max-flow
    """
    drawn = paper.options()
    from attnviz.drawing.style import Style
    from attnviz.features.flow import function
    from attnviz.features.flow.result import Flow

    ending.check(Flow, json, csv, out)
    if to is not None and from_ is not None:
        raise typer.BadParameter("--to and --from exclude each other")
    style = Style(palette=palette, scale=scale, dpi=dpi)
    look, settings = prompt.asked(model, quiet=output.quiet)
    with Stages(output.quiet) as stages:
        found = function.flow(
            look, method=method, to=to, from_=from_, progress=stages.show, **settings
        )
    if out is not None:
        found.save(out, style=style, **drawn)
    ending.show(found, output.quiet, style, json=json, csv=csv, wrote=out)
