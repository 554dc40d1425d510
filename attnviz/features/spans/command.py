"""``attnviz spans``: how much every head attends to named parts of a text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from attnviz.captures.settings import MapSettings
from attnviz.cli.console import Stages
from attnviz.cli.declared import changed, command
from attnviz.cli.options import FreshOptions, TextsOptions
from attnviz.cli.output import Output, TableOptions
from attnviz.core.settings import Settings, like, setting
from attnviz.core.spans import ELSEWHERE
from attnviz.drawing.paper import Paper
from attnviz.errors import UsageError
from attnviz.features.spans.result import DocumentSettings, Spans, SpansSettings


@dataclass(frozen=True)
class SpansInput(TextsOptions):
    """The same, or a file of questions with documents."""

    text: str | None = like(
        TextsOptions, "text", help="The text to run, or a .jsonl file of questions."
    )


@dataclass(frozen=True)
class SpansTable(Settings):
    """What of the result is shown."""

    keys: str | None = setting(None, "Rank heads by this span alone.", metavar="NAME", common=True)
    select: str | None = like(
        MapSettings,
        "select",
        help="Show the matrix from span to span of these heads. Such as 4.11, 5.*; by default of "
        "the first.",
    )


@command
def spans(
    prompt: SpansInput,
    settings: SpansSettings,
    shown: SpansTable,
    documents: DocumentSettings,
    model: FreshOptions,
    table: TableOptions,
    output: Output,
    paper: Paper,
) -> None:
    r"""Measure how much heads attend to named parts of a text: messages, documents, a question.

    [bold]Examples[/]

      attnviz spans "The keys are on the table" --span thing="keys"

      attnviz spans --texts sample_inputs/sentences.txt --span first="regex:\w+"

      attnviz spans --texts sample_inputs/repeats.jsonl --rows last --keys match
    """
    from attnviz.captures.inputs import known_spans
    from attnviz.features.spans import function
    from attnviz.scoring import select as selection

    output.check_written(Spans)
    text: Any
    if documents.changed(but=("seed",)):
        if extra := changed(prompt, but=("text",)):
            raise UsageError(f"documents are read from a .jsonl file; leave out {', '.join(extra)}")
        if prompt.text is None:
            raise UsageError("documents are read from a .jsonl file; name it")
        text = Path(prompt.text)
    else:
        text = list(prompt.read_all(model, seed=prompt.drawn(documents.seed), quiet=output.quiet))
    names = None if isinstance(text, Path) else known_spans(text)
    if names is not None:
        _check_keys(shown.keys, (*names, ELSEWHERE))
    heads: tuple[Any, ...] = ()
    named = model.chosen(pair=prompt.pair, seed=documents.seed)
    if shown.select is not None and prompt.recorded is None:
        named.expect(partial(selection.select, shown.select))
    with Stages(output.quiet) as stages:
        result = function.spans(
            text, progress=stages.show, settings=settings, documents=documents, model=named
        )
    _check_keys(shown.keys, result.names)
    if shown.select is not None:
        heads = tuple(selection.select(shown.select, result.layout))
    output.deliver(result, paper.options(), top=table.rows, keys=shown.keys, heads=heads)


def _check_keys(name: str | None, names: Sequence[str]) -> None:
    """Raise UsageError for a span that there is not."""
    if name is not None and name not in names:
        raise UsageError(f"no span {name[:40]!r}; choose from {', '.join(names)}")
