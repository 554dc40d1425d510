"""``attnviz heatmap``: who looks at whom, as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import console
from attnviz.cli.flattening import flatten
from attnviz.cli.options import (
    SELECT_HELP,
    WEIGH_HELP,
    WEIGHTS,
    InputOptions,
    ModelOptions,
    OutputOptions,
)
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.style_options import StyleOptions
from attnviz.cli.voice import option


@flatten
def heatmap(
    prompt: InputOptions,
    model: ModelOptions,
    output: OutputOptions,
    paper: PaperOptions,
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
    query: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="For pictures, the query to show: cls, a patch as ROW,COLUMN, mean (over "
            "all patches), or a token's number.",
            metavar="QUERY",
            show_default="[CLS] or its equivalent",
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(
            help="Only these queries: tokens such as 100-200, or the name of a --span.",
            metavar="TOKENS",
        ),
    ] = None,
    keys: Annotated[
        str | None, typer.Option(help="Only these keys, as for --rows.", metavar="TOKENS")
    ] = None,
    tiles: Annotated[
        str,
        typer.Option(
            help="What cells of a text of more than 2,048 tokens show, which are tiles: max, the "
            "largest weight in each; or sum, over its keys, as a mean over its rows.",
        ),
    ] = "max",
    matrix: Annotated[
        bool,
        typer.Option(
            "--matrix",
            help="For pictures: the map of all queries by all keys instead of an overlay.",
        ),
    ] = False,
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

      attnviz heatmap --file essay.txt --select 0.3 --rows 100-160 --keys 0-80

      attnviz heatmap --file book.txt --model my-model -s 4.11 --tiles sum -o book.png

      attnviz heatmap --recorded capture.npz --select 4.11 --words

      attnviz heatmap "The cat sat." --select 2.1 --weigh norm

      attnviz heatmap --image cat.png --model facebook/dinov2-small -s "11.*" -o cat.png

      attnviz heatmap --image cat.png --model google/vit-base-patch16-224 -s 11.0 --from 3,4
    """
    drawn = paper.options()
    from attnviz import files
    from attnviz.captures.notes import notes
    from attnviz.drawing import terminal
    from attnviz.drawing.folded import rows_shown
    from attnviz.drawing.forms import picture_format
    from attnviz.features.heatmap import function
    from attnviz.features.heatmap.long import ACROSS, LINES

    style = looks.style()
    if out is not None:
        picture_format(out)
        files.check_writable(out)
    look, settings = prompt.asked(model, quiet=output.quiet)
    with console.waiting("running the model", output.quiet) as tell:
        picture = function.heatmap(
            look,
            select,
            weigh=weigh,
            rows=rows,
            keys=keys,
            tiles=tiles,
            across=LINES if out is None else ACROSS,
            style=style,
            progress=tell,
            **settings,
        )
        seen = picture.capture.inputs.picture is not None and not matrix
        over = picture.over(query) if seen or query is not None else None
        if out is not None:
            (over or picture).save(out, **drawn)
    screen = console.stdout()
    if out is None and over is not None:
        titled = [(over.titles[head], grid) for head, grid in over.maps]
        for one in terminal.overlay(over.picture, titled, over.style, query=over.gaze.name):
            screen.print(one)
    elif out is None:
        shown = rows_shown(len(picture.maps))
        for head, weights, sides in picture.maps[:shown]:
            screen.print(
                terminal.heatmap(
                    weights,
                    sides,
                    title=picture.title(head),
                    style=picture.style,
                    top=picture.top if len(picture.maps) > 1 else None,
                )
            )
        if shown < len(picture.maps):
            all_of = f"{len(picture.maps):,} heads that are selected; {option('out')} draws all"
            screen.print(f"the first {shown} of the {all_of}")
        if below := "; ".join(part for part in (picture.cut, picture.cells) if part):
            screen.print(below)
    elif not output.quiet:
        console.wrote(out)
    if not output.quiet:
        screen.print(terminal.closing_line(picture.capture))
    seen_in = picture.capture
    said = list(notes(seen_in.inputs, seen_in.source, seen_in.empty_rows))
    if picture.dim:
        said.append("most tiles are below a tenth of the largest; --scale log tells them apart")
    console.note(said, output.quiet)
