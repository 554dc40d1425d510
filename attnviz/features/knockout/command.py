"""``attnviz knockout``: what is lost when some tokens may not attend to others?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from attnviz.captures.settings import ModelSettings
from attnviz.cli.declared import changed, command
from attnviz.cli.options import TextsOptions, named_spans
from attnviz.cli.output import Output, TableOptions
from attnviz.core.settings import like
from attnviz.drawing.paper import Paper
from attnviz.errors import UsageError
from attnviz.features.knockout.settings import KnockoutSettings

_WITH_FILE = ("text", "texts", "span", "limit")


@dataclass(frozen=True)
class KnockoutInput(TextsOptions):
    """The same, or a file of texts with spans and answers."""

    text: str | None = like(
        TextsOptions,
        "text",
        help="The text, or a .jsonl file with the fields text, spans, answer and against.",
    )
    span: tuple[str, ...] | None = like(
        TextsOptions,
        "span",
        help="Name a part of the text, see docs/spans.md; repeatable.",
        common=True,
    )


@command
def knockout(
    prompt: KnockoutInput,
    settings: KnockoutSettings,
    model: ModelSettings,
    table: TableOptions,
    output: Output,
    paper: Paper,
) -> None:
    """Cut attention from some tokens to others: what is lost when they cannot look there?

    [bold]Examples[/]

      attnviz knockout "The keys to the cabinet" --span subject=keys --answer were

      attnviz knockout "a b c a b" --keys before --window 1 --out layers.png

      attnviz knockout sample_inputs/repeats.jsonl --keys match --window 1
    """
    from attnviz.features.knockout import function
    from attnviz.features.knockout.result import Knockout

    with output.running(Knockout) as tell:
        texts = _texts(prompt, settings, model, output.quiet)
        result = function.knockout(texts, progress=tell, settings=settings, model=model)
    output.deliver(result, paper.options(), table.first)


def _texts(
    prompt: KnockoutInput, settings: KnockoutSettings, model: ModelSettings, quiet: bool
) -> Any:
    """Return a file with answers, or texts and prompts as they come."""
    name = prompt.text if prompt.texts is None else prompt.texts
    if name is None or not name.endswith((".jsonl", ".ndjson")):
        return list(prompt.read_all(model, seed=prompt.drawn(settings.seed), quiet=quiet))
    if extra := changed(prompt, but=_WITH_FILE):
        raise UsageError(f"{name} brings its own fields; leave out {', '.join(extra)}")
    from attnviz.features.knockout.texts import cut_texts

    spans = named_spans(prompt.span)
    texts, _ = cut_texts(Path(name), None, None, model)
    return [replace(text, prompt=text.prompt.with_spans(spans)) for text in texts[: prompt.limit]]
