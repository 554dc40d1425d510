"""``attnviz logits``: the next word, and who voted for it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from attnviz.cli import console, ending
from attnviz.cli.flattening import flatten
from attnviz.cli.options import InputOptions, OutputOptions, TrainedOptions
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.positions import number_or


@flatten
def logits(
    prompt: InputOptions,
    model: TrainedOptions,
    output: OutputOptions,
    paper: PaperOptions,
    token: Annotated[
        str | None,
        typer.Option(
            help="The word whose logit is split.", metavar="WORD", show_default="the most probable"
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Subtract this token's logit: what favours one over the other?", metavar="WORD"
        ),
    ] = None,
    position: Annotated[
        str | None,
        typer.Option(
            help="Predict after this token, from 0 (-1 is the last), or all; masked models: "
            "at this token.",
            metavar="N|all",
            show_default="the last, or every mask",
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="Split contributions by head, or also by the token they came from (token)."
        ),
    ] = "head",
    seed: Annotated[int | None, typer.Option(help="Seed of sampling (--generate).")] = None,
    top: Annotated[
        int, typer.Option(help="Number of predictions to list at a position.", metavar="N", min=1)
    ] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.logits/2).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one line per part.")] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help=ending.WRITTEN, metavar="FILE"),
    ] = None,
) -> None:
    """Show what the model predicts, and split a logit into what every head and MLP adds to it.

    [bold]Examples[/]

      attnviz logits "Mary gave the old blue clock to Peter, and later Mary gave the old blue"

      attnviz logits "The keys to the cabinet" --token are --against is --model gpt2

      attnviz logits "the cat river moon stone bread the cat river moon stone" --by token

      attnviz logits "The cat sat on the [MASK]." --model demo-bert
    """
    drawn = paper.options()
    from attnviz.features.logits import function
    from attnviz.features.logits.result import Logits, Position

    ending.check(Logits, json, csv, out)
    if by not in ("head", "token"):
        raise typer.BadParameter(f"--by is head or token, not {by!r}")
    place = cast("Position", number_or("position", position, "all"))
    look = prompt.look(model, seed=seed, quiet=output.quiet)
    with console.waiting("running the model", output.quiet):
        found = function.logits(
            look, token=token, against=against, position=place, top=top, **model.settings()
        )
    if out is not None:
        found.save(out, **drawn)
    ending.show(found, output.quiet, by_token=by == "token", json=json, csv=csv)
