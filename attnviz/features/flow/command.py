"""``attnviz flow``: what reaches every position from every token, through all layers."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.cli.declared import command
from attnviz.cli.options import InputOptions, ModelOptions
from attnviz.cli.output import Output
from attnviz.core.settings import Settings, like
from attnviz.drawing.paper import Paper
from attnviz.drawing.style import Style
from attnviz.features.flow.result import FlowSettings


@dataclass(frozen=True)
class FlowStyle(Settings):
    """How the maps look."""

    palette: str = like(Style, "palette")
    scale: str = like(Style, "scale", metavar="linear|sqrt|log")
    dpi: float = like(Style, "dpi")


@command
def flow(
    prompt: InputOptions,
    settings: FlowSettings,
    model: ModelOptions,
    output: Output,
    looks: FlowStyle,
    paper: Paper,
) -> None:
    """Follow tokens from layer to layer: what reaches each position, beside the raw weights.

    Maps show whole texts; --position and --key one token, with lines across the layers.

    [bold]Examples[/]

      attnviz flow "The keys to the cabinet are on the table"

      attnviz flow "The keys are on the table" --position table -o table.png

      attnviz flow "The cat sat." --model demo-bert --key cat -o page.html
    """
    from attnviz.features.flow import function
    from attnviz.features.flow.result import Flow

    with output.running(Flow) as tell:
        style = Style(**looks.asked())
        text = prompt.read(model, quiet=output.quiet)
        named = model.chosen(pair=prompt.pair)
        result = function.flow(text, progress=tell, settings=settings, model=named)
    output.deliver(result, {"style": style, **paper.options()}, style)
