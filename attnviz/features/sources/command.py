"""``attnviz sources``: where a head's query and key come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from attnviz.cli import console, ending
from attnviz.cli.flattening import flatten
from attnviz.cli.options import OutputOptions, TextsOptions, TrainedOptions
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.positions import number_or
from attnviz.cli.stages import Stages

if TYPE_CHECKING:
    from attnviz.features.sources.result import Others


@flatten
def sources(
    prompt: TextsOptions,
    model: TrainedOptions,
    output: OutputOptions,
    paper: PaperOptions,
    head: Annotated[
        str, typer.Option(help="The head, such as 2.0.", metavar="HEAD", show_default=False)
    ],
    at: Annotated[
        int | None,
        typer.Option(
            help="Position of the query, from 0 (-1 is the last).",
            metavar="N",
            show_default="the last",
        ),
    ] = None,
    key: Annotated[
        int | None,
        typer.Option(
            help="Position of the key.", metavar="N", show_default="the one with most weight"
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Split the difference from this key's score (N), or from the mean of all other "
            "keys: unweighted (mean; the default with --lines) or by their weights (rest).",
            metavar="N|mean|rest",
        ),
    ] = None,
    role: Annotated[
        str | None,
        typer.Option(
            help="With --lines, the role whose target keys count, such as induction.",
            metavar="ROLE",
            show_default="the head's own",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the bootstrap and of sampling.", metavar="N")
    ] = 0,
    json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print JSON (attnviz.sources/1; of texts attnviz.source-shares/1)."
        ),
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV, one line per pair of sources.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help=ending.WRITTEN, metavar="FILE"),
    ] = None,
) -> None:
    """Split a head's attention score by what its query and key come from: embeddings, heads, MLPs.

    [bold]Examples[/]

      attnviz sources "the cat river moon stone bread the cat river moon stone" --head 2.0

      attnviz sources "the cat river moon the cat river" --head 2.0 --at 6 --key 3 --against 2

      attnviz sources --lines sample_inputs/sentences.txt --head 2.0

      attnviz sources "The cat sat on the mat." --head 2.1 --model demo-bert -o sources.png
    """
    drawn = paper.options()
    from attnviz.features.sources import function
    from attnviz.features.sources.result import Sources, SourceShares

    ending.check(Sources, json, csv, out)
    other = cast("int | Others | None", number_or("against", against, "mean", "rest"))
    many = prompt.lines is not None
    if many and (at is not None or key is not None or isinstance(other, int)):
        raise typer.BadParameter(
            "--lines looks at every row; leave out --at, --key and --against N"
        )
    if role is not None and not many:
        raise typer.BadParameter("--role is for many texts; give --lines FILE")
    found: Sources | SourceShares
    if many:
        looks = list(prompt.looks(model, seed=seed, quiet=output.quiet))
        with Stages(output.quiet) as stages:
            found = function.source_shares(
                looks, head, role=role, against=_mean(other), seed=seed,
                progress=stages.show, **model.settings(),
            )  # fmt: skip
    else:
        look = prompt.look(model, seed=seed, quiet=output.quiet)
        with console.waiting("running the model", output.quiet):
            found = function.sources(
                look, head, -1 if at is None else at, key=key, against=other, **model.settings()
            )
    if out is not None:
        found.save(out, **drawn)
    ending.show(found, output.quiet, json=json, csv=csv, wrote=out)


def _mean(other: int | Others | None) -> Others:
    """What texts are compared with."""
    return "mean" if other is None or isinstance(other, int) else other
