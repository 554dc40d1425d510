"""``attnviz thoughts``: which sentences of a reasoning trace do later ones need?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from attnviz.captures.settings import ModelSettings
from attnviz.cli.declared import command
from attnviz.cli.options import TextsOptions
from attnviz.cli.output import Output, TableOptions
from attnviz.core.settings import like
from attnviz.drawing.paper import Paper
from attnviz.features.thoughts.result import ThoughtsSettings

_WHOLE, _MANY = (".txt", ".md"), (".jsonl", ".ndjson")


@dataclass(frozen=True)
class ThoughtsInput(TextsOptions):
    """The same, or a file with a trace or several."""

    text: str | None = like(
        TextsOptions,
        "text",
        help="A file with a trace (.txt), or with one a line (.jsonl: text or messages); or the "
        "trace itself.",
    )
    span: tuple[str, ...] | None = like(
        TextsOptions,
        "span",
        help="Split the trace into these parts, and not into sentences, see docs/spans.md: "
        "NAME=TEXT, or @FILE, a JSON object of such; repeatable.",
        common=True,
    )
    generate: int | None = like(
        TextsOptions,
        "generate",
        help="Let the model write N tokens; these are the trace.",
        common=True,
    )


@command
def thoughts(
    prompt: ThoughtsInput,
    settings: ThoughtsSettings,
    model: ModelSettings,
    table: TableOptions,
    output: Output,
    paper: Paper,
) -> None:
    """Find the sentences of a reasoning trace that later ones read, and those that they need.

    [bold]Examples[/]

      attnviz thoughts sample_inputs/trace.txt

      attnviz thoughts sample_inputs/story.txt --truncate

      attnviz thoughts sample_inputs/trace.txt --no-suppress -o thoughts.png
    """
    from attnviz.features.thoughts import function
    from attnviz.features.thoughts.result import Thoughts

    with output.running(Thoughts) as tell:
        chosen = _given(prompt)
        traces = chosen.read_all(model, seed=chosen.drawn(settings.seed), quiet=output.quiet)
        result = function.thoughts(traces, progress=tell, settings=settings, model=model)
    output.deliver(result, paper.options(), table.first)


def _given(prompt: ThoughtsInput) -> ThoughtsInput:
    """Return what was given, with the name of a file in place of a text that is one."""
    suffix = "" if prompt.text is None or len(prompt.text.split()) > 1 else Path(prompt.text).suffix
    if suffix.lower() in _WHOLE:
        return replace(prompt, text=None, file=prompt.text)
    if suffix.lower() in _MANY:
        return replace(prompt, text=None, texts=prompt.text)
    return prompt
