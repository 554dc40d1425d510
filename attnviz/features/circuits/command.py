"""``attnviz circuits``: who can feed whom, from weights alone."""

from __future__ import annotations

from attnviz.captures.settings import Attaching, ModelSettings
from attnviz.cli.declared import command
from attnviz.cli.output import Output, TableOptions
from attnviz.drawing.paper import Paper
from attnviz.features.circuits.result import Circuits, CircuitsSettings


@command
def circuits(
    settings: CircuitsSettings,
    attaching: Attaching,
    model: ModelSettings,
    table: TableOptions,
    output: Output,
    paper: Paper,
) -> None:
    """Read circuits off a model's weights: what heads copy, and which feed which. No text needed.

    [bold]Examples[/]

      attnviz circuits

      attnviz circuits --select 1.4 --out circuits.svg

      attnviz circuits --model demo-gpt2 --top 20

      attnviz circuits --select 2.0 --json
    """
    from attnviz.features.circuits import function

    top = settings.edges if table.top == "all" else table.rows
    with output.running(Circuits) as tell:
        settings = settings.but(edges=max(settings.edges, top))
        result = function.circuits(
            progress=tell, settings=settings, attaching=attaching, model=model
        )
    output.deliver(result, {"top": top, **paper.options()}, top)
