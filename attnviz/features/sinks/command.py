"""``attnviz sinks``: where every head's attention rests."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import ending
from attnviz.cli.flattening import flatten
from attnviz.cli.options import OutputOptions, TextsOptions, TrainedOptions
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.stages import Stages


@flatten
def sinks(
    prompt: TextsOptions,
    model: TrainedOptions,
    output: OutputOptions,
    paper: PaperOptions,
    threshold: Annotated[
        float, typer.Option(help="Mean weight on a key that makes it a sink.", metavar="X")
    ] = 0.3,
    dormant: Annotated[
        float,
        typer.Option(
            help="A head is dormant below this share of its layer's mean output.", metavar="X"
        ),
    ] = 0.5,
    cost: Annotated[
        bool,
        typer.Option(
            "--cost", help="Also measure what it costs to take away each head, and its sink."
        ),
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling (--generate).")] = None,
    top: Annotated[int, typer.Option(help="Lines of the table.", metavar="N", min=1)] = 12,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.sinks/1).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one line per head.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Also save it: .json, .csv or a picture (.png, .svg, .pdf).",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Find each head's attention sink, and whether attending to it is a no-op.

    [bold]Examples[/]

      attnviz sinks "The keys to the cabinet are on the table."

      attnviz sinks --lines sample_inputs/sentences.txt -o sinks.png

      attnviz sinks "The keys to the cabinet are on the table." --cost
    """
    drawn = paper.options()
    from attnviz.features.sinks import function
    from attnviz.features.sinks.result import Sinks

    ending.check(Sinks, json, csv, out)
    with Stages(output.quiet) as stages:
        found = function.sinks(
            prompt.looks(model, seed=seed, quiet=output.quiet),
            threshold=threshold,
            dormant=dormant,
            cost=cost,
            progress=stages.show,
            **model.settings(),
        )
    if out is not None:
        found.save(out, **drawn)
    ending.show(found, output.quiet, top=top, json=json, csv=csv, wrote=out)
