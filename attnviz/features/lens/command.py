"""``attnviz lens``: what each layer already knows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from attnviz.cli import console, ending
from attnviz.cli.flattening import flatten
from attnviz.cli.options import OutputOptions, TextsOptions, TrainedOptions
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.positions import number_or


@flatten
def lens(
    prompt: TextsOptions,
    model: TrainedOptions,
    output: OutputOptions,
    paper: PaperOptions,
    token: Annotated[
        str | None,
        typer.Option(
            help="The word whose rank and probability to follow across layers.",
            metavar="WORD",
            show_default="what each position predicts in the end",
        ),
    ] = None,
    position: Annotated[
        str | None,
        typer.Option(
            help="Read this token alone, from 0 (-1 is the last), or all.",
            metavar="N|all",
            show_default="all, or every mask; with --by head the last",
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="Decode the state after each layer (layer) or what each head writes (head; with "
            "--lines the mean over all positions)."
        ),
    ] = "layer",
    top: Annotated[
        int,
        typer.Option(help="Number of words to list for each layer or head.", metavar="N", min=1),
    ] = 10,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling (--generate).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.lens/1).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one line per word.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Also write it: a page (.html), .png, .svg, .pdf, .json or .csv.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Logit lens: decode the residual stream after every layer as if it were the last.

    [bold]Examples[/]

      attnviz lens "Mary gave the old blue clock to Peter, and later Mary gave the old blue"

      attnviz lens "Mary gave the old blue clock to Peter, and later Mary gave the old blue" --token clock --position -1

      attnviz lens "The cat sat on the [MASK]." --model demo-bert -o lens.html

      attnviz lens --lines sample_inputs/sentences.txt --by head -o heads.html
    """  # noqa: E501
    drawn = paper.options()
    from attnviz.features.lens import function
    from attnviz.features.lens.result import Lens, Position

    ending.check(Lens, json, csv, out)
    if by not in ("layer", "head"):
        raise typer.BadParameter(f"--by is layer or head, not {by!r}")
    if by == "layer" and prompt.lines is not None:
        raise typer.BadParameter("--lines is for --by head; layers are read on one text")
    place = cast("Position", number_or("position", position, "all"))
    looks = list(prompt.looks(model, seed=seed, quiet=output.quiet))
    with console.waiting("running the model", output.quiet):
        found = function.lens(
            looks, by=cast("Literal['layer', 'head']", by), token=token, position=place, top=top,
            **model.settings(),
        )  # fmt: skip
    if out is not None:
        found.save(out, **drawn)
    ending.show(found, output.quiet, json=json, csv=csv, wrote=out)
