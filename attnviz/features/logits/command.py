"""``attnviz logits``: the next word, and who voted for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from attnviz.captures.settings import ModelSettings
from attnviz.cli import console
from attnviz.cli.declared import changed, command
from attnviz.cli.options import TextsOptions
from attnviz.cli.output import Output, TableOptions
from attnviz.core.settings import Seeded, setting
from attnviz.core.split import field_of
from attnviz.drawing.paper import Paper
from attnviz.errors import Setting, UsageError
from attnviz.features.logits.result import Logits, LogitsSettings, Writers


@dataclass(frozen=True)
class LogitsTable(TableOptions):
    """What the table has."""

    by: Literal["head", "token"] = setting(
        "head", "Split contributions by head, or also by the token they came from.", common=True
    )


@command
def logits(
    prompt: TextsOptions,
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

      attnviz logits --texts sample_inputs/repeats.jsonl --answer field:answer
    """
    from attnviz.features.logits import function

    output.check_written(Logits if prompt.texts is None else Writers)
    words = {name: getattr(settings, name) for name in ("answer", "against")}
    fields = {name: field_of(word or "") for name, word in words.items()}
    fields = {name: field for name, field in fields.items() if words[name] == f"field:{field}"}
    display: dict[str, Any] = {"top": table.first, "everything": table.everything}
    if prompt.texts is not None:
        if extra := [*changed(settings, but=tuple(words)), *changed(table, but=("top",))]:
            raise UsageError("{texts} is for the last token; leave out {}", extra[0], texts=...)
        texts = list(prompt.read_all(model, seed=prompt.drawn(seeded.seed), quiet=output.quiet))
        words |= {name: prompt.grouped(model, field)[1] for name, field in fields.items()}
        with console.waiting("running the model", output.quiet):
            writers = function.writers(texts, **words, model=model)
        output.deliver(writers, paper.options(), **display)
        return
    for name in fields:
        raise UsageError("{} is a field; add {texts}", Setting(name, words[name]), texts="FILE")
    drawn = seeded.seed if changed(seeded) else None
    [text] = prompt.read_all(model, seed=drawn, quiet=output.quiet)
    with console.waiting("running the model", output.quiet):
        result = function.logits(text, settings=settings, model=model)
    output.deliver(result, paper.options(), by_token=table.by == "token", **display)
