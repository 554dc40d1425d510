"""``attnviz heads``: what every head does."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.captures.settings import Attaching, MapSettings
from attnviz.cli import console
from attnviz.cli.declared import command, teaching
from attnviz.cli.options import InputOptions, ModelOptions
from attnviz.cli.output import Output, SortOptions
from attnviz.core.settings import Settings, setting
from attnviz.drawing.paper import Paper


@dataclass(frozen=True)
class ProbeOptions(Settings):
    """More than the text."""

    probe: bool = setting(
        False, "Also measure induction and duplicates on repeated random tokens.", common=True
    )


@command
def heads(
    prompt: InputOptions,
    maps: MapSettings,
    options: ProbeOptions,
    attaching: Attaching,
    model: ModelOptions,
    table: SortOptions,
    output: Output,
    paper: Paper,
) -> None:
    """Show what every attention head does with a text: a grid of roles, and the evidence.

    [bold]Examples[/]

      attnviz heads "The keys to the cabinet are on the table"

      attnviz heads "The cat sat." --model demo-bert --pair "It slept."

      attnviz heads --file sample_inputs/story.txt --truncate --probe

      attnviz heads "The cat sat." --select 0.5 --out heads.png

      attnviz heads "The cat sat." --json
    """
    from attnviz.cli.listing import check_order, show_heads
    from attnviz.features.heads import function
    from attnviz.features.heads.result import Heads

    output.check_written(Heads)
    check_order(table, attaching.evidence)
    text = prompt.read(model, quiet=output.quiet)
    with console.waiting("running the model", output.quiet) as on_progress:
        result = function.heads(
            text,
            progress=on_progress,
            probe=options.probe,
            maps=maps,
            attaching=attaching,
            model=model.chosen(pair=prompt.pair),
        )
    output.save(result, **paper.options())
    show_heads(result, table, output)
    if model.model is None and not output.machine:
        console.note(teaching(result.source.model), output.quiet)
