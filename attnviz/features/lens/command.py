"""``attnviz lens``: what each layer already knows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.cli import console
from attnviz.cli.flattening import flatten
from attnviz.cli.options import OutputOptions, TextsOptions, TrainedOptions
from attnviz.cli.paper_options import PaperOptions

if TYPE_CHECKING:
    from attnviz.features.lens.result import Position


@flatten
def lens(
    prompt: TextsOptions,
    model: TrainedOptions,
    output: OutputOptions,
    paper: PaperOptions,
    token: Annotated[
        str | None,
        typer.Option(
            help="A word whose rank and probability to follow along the layers.",
            metavar="WORD",
            show_default="each position's own last prediction",
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            help="Read the state after every layer (layer), or what each head writes (head): at "
            "the last token, or the mean over --lines."
        ),
    ] = "layer",
    position: Annotated[
        str | None,
        typer.Option(
            help="Read at this token, from 0 (-1 is the last), or all.",
            metavar="N|all",
            show_default="all, every mask in masked models; for heads the last",
        ),
    ] = None,
    top: Annotated[
        int, typer.Option(help="Number of words to keep of each state.", metavar="N", min=1)
    ] = 10,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling (--generate).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.lens/1).")] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV, one line per state and position or head.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Also write it: a .html, .png, .svg or .pdf file.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Show what each layer already knows: every state read out as if it were the last.

    [bold]Examples[/]

      attnviz lens "Mary gave the old blue clock to Peter, and later Mary gave the old blue"

      attnviz lens "The kettle sang and the candle burned while the kettle" --token sang -o a.html

      attnviz lens "The cat sat on the [MASK]." --model demo-bert

      attnviz lens --by head --lines sample_inputs/sentences.txt
    """
    drawn = paper.options()
    from attnviz import files
    from attnviz.features.lens import function
    from attnviz.features.lens.result import Lens

    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    if by not in ("layer", "head"):
        raise typer.BadParameter(f"--by is layer or head, not {by!r}")
    place = _position(position)
    if out is not None:
        Lens.check_suffix(out)
        files.check_writable(out)
    looks = list(prompt.looks(model, seed=seed, quiet=output.quiet))
    with console.waiting("running the model", output.quiet):
        found = function.lens(
            looks if len(looks) > 1 else looks[0],
            by="head" if by == "head" else "layer",
            token=token,
            position=place,
            top=top,
            **model.settings(),
        )
    if out is not None:
        found.save(out, **drawn)
    if json or csv:
        console.put(found.to_json() if json else found.to_csv())
        return
    from attnviz.features.lens import terminal

    screen = console.stdout()
    for part in terminal.parts(found):
        screen.print(part)
    console.note(found.notes, output.quiet)


def _position(text: str | None) -> Position:
    if text is None:
        return None
    if text == "all":
        return "all"
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"--position is a whole number or all, not {text!r}") from None
