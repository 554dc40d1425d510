"""``attnviz card``: what a model's heads do, for its model card."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import console
from attnviz.cli.exits import DIFFERS, NOTHING_COMPARED
from attnviz.cli.flattening import flatten
from attnviz.cli.options import OutputOptions

_PICTURE = "attention-heads.png"


@flatten
def card(
    output: OutputOptions,
    model: Annotated[
        str | None,
        typer.Argument(help="demo-gpt2, a model folder, or a hub id.", show_default=False),
    ] = None,
    lines: Annotated[
        list[str] | None,
        typer.Option(
            help="A file of texts, as for profile; repeatable.",
            metavar="FILE",
            show_default="sentences of attnviz",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="The first N texts only.", metavar="N", min=1)
    ] = None,
    picture: Annotated[
        str,
        typer.Option(
            help="Name of the picture beside the card; none for no picture.", metavar="NAME"
        ),
    ] = _PICTURE,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The card, such as README.md: its block is renewed, or appended.",
            metavar="FILE",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="Write nothing; exit with 4 if the card's block is stale, with 5 if it has none.",
        ),
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 or mps.")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
) -> None:
    """Write what a model's heads do into its model card, between markers, or check what is there.

    A block has roles with intervals, a picture, how they were measured, and the command. It is
    stale once the model's files, the texts or attnviz are others, or it was edited: no model runs
    for that.

    [bold]Examples[/]

      attnviz card demo-gpt2

      attnviz card my-model --lines reviews.txt -o my-model/README.md

      attnviz card my-model --lines reviews.txt -o my-model/README.md --check
    """
    from attnviz import files
    from attnviz.drawing.forms import picture_format
    from attnviz.errors import UsageError
    from attnviz.features.card import function

    if model is None:
        raise UsageError("card needs a model: a name, a folder or a hub id, such as demo-gpt2")
    if check:
        if out is None:
            raise UsageError("{check} is of a card; name it by {out}", check=True, out="README.md")
        _check(function.stale_card(out, model, texts=lines, limit=limit), out)
        return
    name = "" if picture == "none" else picture
    if name:
        picture_format(Path(name))
    if out is not None:
        files.check_writable(out)
    with console.waiting("profiling the heads", output.quiet):
        found = function.card(
            model, texts=lines, limit=limit, picture=name, path=out, device=device, dtype=dtype,
            command=_command(model, lines, limit, picture, out),
        )  # fmt: skip
    if out is None:
        console.put(str(found))
        return
    found.save(out)
    if not output.quiet:
        console.wrote(out)


def _command(
    model: str, lines: list[str] | None, limit: int | None, picture: str, out: Path | None
) -> str:
    """The same command as anybody may run it, without folders of this machine."""
    from attnviz.core.provenance import called

    words = ["attnviz", "card", called(model)]
    for name in lines or ():
        words += ["--lines", Path(name).name]
    words += [] if limit is None else ["--limit", str(limit)]
    words += [] if picture == _PICTURE else ["--picture", picture]
    return shlex.join([*words, "-o", "README.md" if out is None else out.name])


def _check(stale: tuple[str, ...] | None, path: Path) -> None:
    """Exit with a code of its own where the block is stale, or there is none."""
    if stale is None:
        console.note([f"{path} has no block of attnviz card"], quiet=False)
        raise typer.Exit(NOTHING_COMPARED)
    if stale:
        said = {"text": "its text was changed by hand", "attnviz": "another version of attnviz"}
        why = ", ".join(said.get(name, f"another {name}") for name in stale)
        console.note([f"{path} is stale: {why}; run the same command without --check"], quiet=False)
        raise typer.Exit(DIFFERS)
