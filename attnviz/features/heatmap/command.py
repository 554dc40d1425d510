"""``attnviz heatmap``: who looks at whom, as a picture."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.captures.settings import HeatmapSettings
from attnviz.cli import console
from attnviz.cli.declared import command, option
from attnviz.cli.options import InputOptions, ModelOptions
from attnviz.cli.output import FilesOutput
from attnviz.core.settings import Settings, setting
from attnviz.drawing.paper import Paper
from attnviz.drawing.style import Style


@dataclass(frozen=True)
class OverlayOptions(Settings):
    """How maps of pictures are shown."""

    query: str | None = setting(
        None,
        "For pictures, the query to show: cls, a patch as ROW,COLUMN (2:ROW,COLUMN of the second "
        "picture), mean (over all patches), a token's number; or all, the map of all queries by "
        "all keys instead of an overlay.",
        metavar="QUERY",
        shown="[CLS] or its equivalent",
    )


@command
def heatmap(
    prompt: InputOptions,
    settings: HeatmapSettings,
    overlay: OverlayOptions,
    model: ModelOptions,
    output: FilesOutput,
    style: Style,
    paper: Paper,
) -> None:
    """Draw the attention weights of some heads: queries downwards, keys across.

    [bold]Examples[/]

      attnviz heatmap "The keys to the cabinet are on the table" --select 0.3

      attnviz heatmap "The keyring was unusable" --words --mean heads -o w.csv

      attnviz heatmap -f sample_inputs/story.txt --truncate -s 0.3 --rows 0-60
    """
    from attnviz.captures.captured import notes
    from attnviz.drawing import terminal
    from attnviz.drawing.console import rows_shown
    from attnviz.drawing.tables import MAP_SUFFIXES
    from attnviz.features.heatmap import function
    from attnviz.features.heatmap.function import ACROSS, LINES

    output.check_pictures(*MAP_SUFFIXES)
    text = prompt.read(model, quiet=output.quiet)
    with console.waiting("running the model", output.quiet) as tell:
        picture = function.heatmap(
            text,
            across=ACROSS if output.out else LINES,
            progress=tell,
            settings=settings,
            style=style,
            model=model.chosen(pair=prompt.pair),
        )
        pictured = picture.capture.inputs.picture is not None or overlay.query is not None
        over = picture.over(overlay.query) if pictured and overlay.query != "all" else None
        output.save(over or picture, **paper.options())
    screen = console.stdout()
    if not output.out and over is not None:
        from attnviz.drawing.overlay import on_terminal

        titled = [(over.titles[head], grid) for head, grid in over.maps]
        screen.print(on_terminal(over.picture, titled, over.style, over.selected.name))
    elif not output.out:
        count = rows_shown(len(picture.maps))
        for head, weights, sides in picture.maps[:count]:
            screen.print(
                terminal.heatmap(
                    weights,
                    sides,
                    title=picture.title(head),
                    style=picture.style,
                    top=picture.top if len(picture.maps) > 1 else None,
                )
            )
        if count < len(picture.maps):
            all_of = f"{len(picture.maps):,} heads that are selected; {option('out')} draws all"
            screen.print(f"the first {count} of the {all_of}")
        if below := "; ".join(part for part in (picture.cut, picture.cells) if part):
            screen.print(below)
    if not output.quiet:
        screen.print(terminal.closing_line(picture.capture))
    remarks = list(notes(picture.capture.inputs, picture.capture.empty_rows))
    if picture.among > 1:
        remarks.append(
            f"the head with the clearest evidence of {picture.among:,}; {option('select')} names "
            "others, and attnviz heads lists what each does"
        )
    if picture.dim:
        remarks.append("most tiles are below a tenth of the largest; --scale log tells them apart")
    console.note(remarks, output.quiet)
    output.say_written()
