"""``attnviz heatmap``: who looks at whom, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import console
from attnviz.cli.options import SELECT_HELP, InputOptions, ModelOptions, OutputOptions, flatten


@flatten
def heatmap(
    prompt: InputOptions,
    model: ModelOptions,
    output: OutputOptions,
    select: Annotated[
        str, typer.Option("--select", "-s", help=SELECT_HELP, metavar="HEADS")
    ] = "0.0",
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A .png, .svg or .pdf file instead of the terminal.", metavar="FILE"
        ),
    ] = None,
    words: Annotated[
        bool,
        typer.Option(
            "--words", help="Merge subwords into words: sum over keys, mean over queries."
        ),
    ] = False,
    scale: Annotated[
        str, typer.Option(help="Colours by the largest weight shown (global) or of each row (row).")
    ] = "global",
    palette: Annotated[
        str, typer.Option(help="viridis, magma, cividis, blues, greys.")
    ] = "viridis",
) -> None:
    """Draw the attention weights of some heads: queries downwards, keys across.

    [bold]Examples[/]

      attnviz heatmap "The keys to the cabinet are on the table" --select 0.3

      attnviz heatmap "The cat sat." --model bert-base-uncased -s "5.*" -o layer5.png

      attnviz heatmap --recorded capture.npz --select 4.11 --words
    """
    from attnviz import api, files
    from attnviz.notebook import picture_format
    from attnviz.render import terminal

    if out is not None:
        picture_format(out)
        files.check_writable(out)
    look, settings = prompt.look(model), model.settings(context=prompt.context)
    with console.waiting("running the model", output.quiet):
        picture = api.heatmap(look, select, words=words, scale=scale, palette=palette, **settings)
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
                    scale=scale,
                    palette=palette,
                    top=picture.top,
                )
            )
    elif not output.quiet:
        screen.print(f"wrote {out}")
    if not output.quiet:
        screen.print(terminal.closing_line(picture.capture))
    console.note(api.notes(picture.capture), output.quiet)
