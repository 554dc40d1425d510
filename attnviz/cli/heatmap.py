"""``attnviz heatmap``: who looks at whom, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import console
from attnviz.cli.options import (
    SELECT_HELP,
    WEIGH_HELP,
    WEIGHTS,
    InputOptions,
    ModelOptions,
    OutputOptions,
    StyleOptions,
    flatten,
)


@flatten
def heatmap(
    prompt: InputOptions,
    model: ModelOptions,
    output: OutputOptions,
    looks: StyleOptions,
    select: Annotated[
        str | None,
        typer.Option(
            "--select",
            "-s",
            help=SELECT_HELP,
            metavar="HEADS",
            show_default="the first",
        ),
    ] = None,
    weigh: Annotated[str, typer.Option(help=WEIGH_HELP, metavar="QUANTITY")] = WEIGHTS,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A .png, .svg or .pdf file instead of the terminal.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Draw the attention weights of some heads: queries downwards, keys across.

    [bold]Examples[/]

      attnviz heatmap "The keys to the cabinet are on the table" --select 0.3

      attnviz heatmap "The cat sat." --model bert-base-uncased -s "5.*" -o layer5.png

      attnviz heatmap --file essay.txt --select 0.3 --scale log -o long.png

      attnviz heatmap --recorded capture.npz --select 4.11 --words

      attnviz heatmap "The cat sat." --select 2.1 --weigh norm
    """
    from attnviz import api, files
    from attnviz.notebook import picture_format
    from attnviz.render import terminal

    style = looks.style()
    if out is not None:
        picture_format(out)
        files.check_writable(out)
    look, settings = prompt.look(model), model.settings(context=prompt.context)
    with console.waiting("running the model", output.quiet):
        picture = api.heatmap(look, select, weigh=weigh, style=style, **settings)
        if out is not None:
            picture.save(out)
    screen = console.stdout()
    if out is None:
        for head, weights, sides in picture.maps:
            screen.print(
                terminal.heatmap(
                    weights,
                    sides,
                    title=picture.title(head),
                    style=picture.style,
                    top=picture.top if len(picture.maps) > 1 else None,
                )
            )
    elif not output.quiet:
        console.wrote(out)
    if not output.quiet:
        screen.print(terminal.closing_line(picture.capture))
    console.note(api.notes(picture.capture), output.quiet)
