"""``attnviz logits``: the next word, and who voted for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.cli import console
from attnviz.cli.flattening import flatten
from attnviz.cli.options import InputOptions, OutputOptions, TrainedOptions

if TYPE_CHECKING:
    from attnviz.features.logits.result import Position


@flatten
def logits(
    prompt: InputOptions,
    model: TrainedOptions,
    output: OutputOptions,
    token: Annotated[
        str | None,
        typer.Option(
            help="The word whose logit is split.", metavar="WORD", show_default="the likeliest"
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Take off the logit of this one: who decided?", metavar="WORD"),
    ] = None,
    position: Annotated[
        str | None,
        typer.Option(
            help="After which token, from 0 (-1 is the last), or all; masked models: at which.",
            metavar="N|all",
            show_default="the last, or every mask",
        ),
    ] = None,
    by: Annotated[
        str, typer.Option(help="Also list the votes by the token they came through: head, token.")
    ] = "head",
    seed: Annotated[int | None, typer.Option(help="Of drawn tokens (--generate).")] = None,
    top: Annotated[int, typer.Option(help="Predictions at a position.", metavar="N", min=1)] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.logits/2).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line a part.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Also draw it: a .png, .svg or .pdf file.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Show what the model predicts, and split a logit into what every head and MLP adds to it.

    [bold]Examples[/]

      attnviz logits "Mary gave the old blue clock to Peter, and later Mary gave the old blue"

      attnviz logits "The keys to the cabinet" --token are --against is --model gpt2

      attnviz logits "one two three one two" --by token -o votes.png

      attnviz logits "The cat sat on the [MASK]." --model demo-bert
    """
    from attnviz import files
    from attnviz.features.logits import function
    from attnviz.features.logits.result import Logits

    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    if by not in ("head", "token"):
        raise typer.BadParameter(f"--by is head or token, not {by!r}")
    place = _position(position)
    if out is not None:
        Logits.check_suffix(out)
        files.check_writable(out)
    look = prompt.look(model, seed=seed, quiet=output.quiet)
    with console.waiting("running the model", output.quiet):
        found = function.logits(
            look, token=token, against=against, position=place, top=top, **model.settings()
        )
    if out is not None:
        found.save(out)
    if json or csv:
        console.put(found.to_json() if json else found.to_csv())
        return
    from attnviz.features.logits import terminal

    screen = console.stdout()
    for part in terminal.parts(found, by_token=by == "token"):
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
