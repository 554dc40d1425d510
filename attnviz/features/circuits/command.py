"""``attnviz circuits``: who can feed whom, from weights alone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import ending
from attnviz.cli.flattening import flatten
from attnviz.cli.options import SELECT_HELP, OutputOptions, TrainedOptions
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.stages import Stages


@flatten
def circuits(
    model: TrainedOptions,
    output: OutputOptions,
    paper: PaperOptions,
    select: Annotated[
        str | None,
        typer.Option(
            "--select", "-s", help=f"Only edges from or into these. {SELECT_HELP}", metavar="HEADS"
        ),
    ] = None,
    top: Annotated[
        int,
        typer.Option(
            help="Number of edges to list and draw, for each of Q, K and V.", metavar="N", min=1
        ),
    ] = 10,
    keep: Annotated[
        int,
        typer.Option(
            help="Number of edges in JSON and CSV, for each of Q, K and V.", metavar="N", min=1
        ),
    ] = 1000,
    tokens: Annotated[
        int,
        typer.Option(help="Number of vocabulary tokens to measure copying on.", metavar="N", min=1),
    ] = 4096,
    seed: Annotated[
        int, typer.Option(help="Seed of random matrices and of the sample of tokens.", metavar="N")
    ] = 0,
    with_: Annotated[
        list[Path] | None,
        typer.Option(
            "--with",
            help="Show what attnviz sources --lines measured (its JSON) beside edges; repeatable.",
            metavar="FILE",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.circuits/3).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one line per edge.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Also draw the graph: a .png, .svg or .pdf file.", metavar="FILE"),
    ] = None,
) -> None:
    """Read circuits off a model's weights: what heads copy, and which feed which. No text needed.

    [bold]Examples[/]

      attnviz circuits

      attnviz circuits --select 1.4 --plot circuits.svg

      attnviz circuits --model gpt2 --top 20

      attnviz circuits --select 2.0 --with sources.json
    """
    drawn = paper.options()
    from attnviz.features.circuits import function
    from attnviz.features.circuits.result import Circuits

    ending.check(Circuits, json, csv, plot)
    with Stages(output.quiet) as stages:
        found = function.circuits(
            **model.settings(), select=select, keep=max(keep, top), tokens=tokens, seed=seed,
            progress=stages.show, evidence=with_ or None,
        )  # fmt: skip
    if plot is not None:
        found.save(plot, top=top, **drawn)
    ending.show(found, output.quiet, top, json=json, csv=csv)
