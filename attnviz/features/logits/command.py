"""``attnviz logits``: the next word, and who voted for it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.cli import console
from attnviz.cli.flattening import flatten
from attnviz.cli.options import InputOptions, OutputOptions, TrainedOptions

if TYPE_CHECKING:
    from attnviz.votes import Position


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
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.logits/1).")] = False,
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
    from attnviz import evidence, files
    from attnviz.notebook import picture_format
    from attnviz.render.logits import tables

    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    if by not in ("head", "token"):
        raise typer.BadParameter(f"--by is head or token, not {by!r}")
    place = _position(position)
    if out is not None:
        picture_format(out)
        files.check_writable(out)
    look = prompt.look(model, seed=seed, quiet=output.quiet)
    with console.waiting("running the model", output.quiet):
        report = evidence.logits(
            look, token=token, against=against, position=place, top=top, **model.settings()
        )
    if out is not None:
        report.save(out)
    if json or csv:
        console.put((tables.logits_json if json else tables.logits_csv)(report))
        return
    _print(report, output.quiet, by_token=by == "token")


def _print(report: object, quiet: bool, *, by_token: bool) -> None:
    from attnviz.render.logits import terminal, words
    from attnviz.render.terminal import Line
    from attnviz.votes import LogitsReport

    assert isinstance(report, LogitsReport)
    screen = console.stdout()
    screen.print(terminal.Predictions(report))
    if report.parts:
        screen.print("")
        screen.print(Line(words.checked(report), "bold"))
        screen.print("")
        screen.print(terminal.Waterfall(report))
        screen.print("")
        screen.print(terminal.Heads(report))
        screen.print(terminal.Votes(report))
        if by_token:
            screen.print("")
            screen.print(terminal.ByToken(report))
    screen.print("")
    screen.print(Line(words.closing(report), "dim"))
    console.note(report.notes, quiet)


def _position(text: str | None) -> Position:
    if text is None:
        return None
    if text == "all":
        return "all"
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(f"--position is a whole number or all, not {text!r}") from None
