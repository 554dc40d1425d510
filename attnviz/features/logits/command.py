"""``attnviz logits``: the next word, and who voted for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attnviz.captures.settings import ModelSettings
from attnviz.cli import console
from attnviz.cli.declared import changed, command
from attnviz.cli.options import InputOptions
from attnviz.cli.output import Output, TableOptions
from attnviz.core.settings import Seeded, setting
from attnviz.drawing.paper import Paper
from attnviz.features.logits.result import LogitsSettings


@dataclass(frozen=True)
class LogitsTable(TableOptions):
    """What the table has."""

    by: Literal["head", "token"] = setting(
        "head", "Split contributions by head, or also by the token they came from.", common=True
    )


@command
def logits(
    prompt: InputOptions,
    settings: LogitsSettings,
    table: LogitsTable,
    model: ModelSettings,
    seeded: Seeded,
    output: Output,
    paper: Paper,
) -> None:
    """Show what the model predicts, and split a logit into what every head and MLP adds to it.

    [bold]Examples[/]

      attnviz logits "Mary gave the old clock to Peter, and Mary gave the old"

      attnviz logits "The keys to the cabinet" --answer were --against was

      attnviz logits "the cat river moon stone the cat river moon" --by token
    """
    from attnviz.features.logits import function
    from attnviz.features.logits.result import Logits

    output.check_written(Logits)
    text = prompt.read(model, seed=seeded.seed if changed(seeded) else None, quiet=output.quiet)
    with console.waiting("running the model", output.quiet):
        result = function.logits(text, **settings.asked(), **model.asked())
    output.deliver(
        result,
        paper.options(),
        by_token=table.by == "token",
        top=table.first,
        everything=table.everything,
    )
