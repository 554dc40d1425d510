"""``attnviz diff``: what changed between two runs, head by head."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import typer

from attnviz.captures.settings import INPUT, ModelSettings
from attnviz.cli import console
from attnviz.cli.console import DIFFERS, NOTHING_COMPARED
from attnviz.cli.declared import command
from attnviz.cli.options import TextsOptions, say_file
from attnviz.cli.output import OUTPUT, Output, TableOptions
from attnviz.core.settings import Settings, like, setting
from attnviz.drawing.paper import Paper
from attnviz.errors import UsageError
from attnviz.features.diff import DiffSettings


@dataclass(frozen=True)
class DiffInput(Settings):
    """What is compared."""

    before: str | None = setting(
        None,
        "A capture (.npz, .safetensors), a result (.json, .profile, .html) or a text.",
        argument=True,
    )
    after: str | None = setting(None, "What to compare it with.", argument=True)
    texts: str | None = like(TextsOptions, "texts", panel=INPUT)
    limit: int | None = like(TextsOptions, "limit")


@dataclass(frozen=True)
class DiffOptions(Settings):
    """What follows from the differences."""

    fail_over: float | None = setting(
        None,
        "Exit with 4 if a head differs by more. Of captures its mean distance, of results a "
        "figure; exit with 5 if a head cannot be compared.",
        least=0,
        common=True,
    )
    markdown: bool = setting(
        False, "Print Markdown, for the comment on a pull request.", panel=OUTPUT, common=True
    )


@command
def diff(
    runs: DiffInput,
    settings: DiffSettings,
    options: DiffOptions,
    model: ModelSettings,
    table: TableOptions,
    output: Output,
    paper: Paper,
) -> None:
    """Show what changed between two captures, two results, or one text through two models.

    [bold]Examples[/]

      attnviz diff "The cat sat on a mat" "The cat lay on a mat" --align position

      attnviz diff "The cat sat" --other-model demo-gpt2 --fail-over 0.01

      attnviz diff --texts sample_inputs/sentences.txt --other-model demo-gpt2

      attnviz diff --other-model sample_inputs/lora
    """
    from attnviz.features.diff import function
    from attnviz.features.diff.result import Diff

    output.check_written(Diff)
    if options.markdown and output.machine:
        raise UsageError("--json, --csv and --markdown exclude each other; give one of them")
    file_only = runs.after is None and settings.other_model is not None
    if (runs.before is None) == (runs.texts is None) and (runs.before is not None or not file_only):
        raise UsageError("give what to compare, or --texts FILE with --other-model MODEL")
    first: Any = runs.before
    for text in dict.fromkeys((runs.before, runs.after)):
        if not function.is_file(text):  # but perhaps one whose suffix is none of a result
            say_file(text, output.quiet, "texts")
    if runs.texts is not None:
        first = list(TextsOptions(texts=runs.texts, limit=runs.limit).read_all(model))
        if any(path.suffix.lower() == ".html" for path in output.out or ()):
            from attnviz.features.diff.page import check_single

            check_single(len(first))
    with console.waiting("comparing", output.quiet):
        result = function.diff(first, runs.after, settings=settings, model=model)
    output.save(result, **paper.options())
    top = table.rows
    if options.markdown:
        console.put(result.to_markdown(top=top, limit=options.fail_over))
    else:
        output.show(result, top)
    limit = options.fail_over
    if limit is not None and result.largest is not None and result.largest > limit:
        message = f"{result.heads[0].name} differs by {result.largest:.3g}, more than {limit:g}"
        console.note([message], quiet=False)
        raise typer.Exit(DIFFERS)
    if limit is not None and (result.uncompared or not result.heads):
        which = ", ".join(result.uncompared[:5]) or "no head"
        console.note([f"nothing to compare in both runs: {which}"], quiet=False)
        raise typer.Exit(NOTHING_COMPARED)
