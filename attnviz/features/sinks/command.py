"""``attnviz sinks``: where every head's attention rests."""

from __future__ import annotations

from attnviz.captures.settings import ModelSettings
from attnviz.cli.declared import command
from attnviz.cli.options import TextsOptions
from attnviz.cli.output import Output, TableOptions
from attnviz.core.settings import Seeded
from attnviz.drawing.paper import Paper
from attnviz.features.sinks.result import Sinks, SinksSettings


@command
def sinks(
    prompt: TextsOptions,
    settings: SinksSettings,
    model: ModelSettings,
    seeded: Seeded,
    table: TableOptions,
    output: Output,
    paper: Paper,
) -> None:
    """Find each head's attention sink, and whether attending to it is a no-op.

    [bold]Examples[/]

      attnviz sinks "The keys to the cabinet are on the table."

      attnviz sinks --texts sample_inputs/sentences.txt -o sinks.png

      attnviz sinks "The keys to the cabinet are on the table." --ablate
    """
    from attnviz.features.sinks import function

    with output.running(Sinks) as tell:
        result = function.sinks(
            prompt.read_all(model, seed=prompt.drawn(seeded.seed), quiet=output.quiet),
            progress=tell,
            settings=settings,
            model=model,
        )
    output.deliver(result, paper.options(), top=table.rows)
