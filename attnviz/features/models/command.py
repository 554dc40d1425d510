"""``attnviz models``: what can be used right now."""

from __future__ import annotations

from dataclasses import dataclass, replace

from attnviz.cli import console, declared
from attnviz.cli.declared import command
from attnviz.cli.output import Output
from attnviz.core.settings import Settings, setting
from attnviz.errors import UsageError
from attnviz.features.models.result import Families, ModelCard, Models, ModelsSettings


@dataclass(frozen=True)
class ListedModel(Settings):
    """Which models."""

    family: str | None = setting(
        None,
        "A part of the name of families of transformers, such as qwen or all: how far each works.",
        argument=True,
    )
    show: str | None = setting(
        None,
        "Describe one model, without its weights: a bundled name, a folder, a hub id or fresh.",
        metavar="NAME",
        common=True,
    )


@command
def models(options: ListedModel, settings: ModelsSettings, output: Output) -> None:
    """List the models on this machine: bundled ones, the hub's cache, a fresh layer.

    And what is kept of earlier measurements, so that they need not be made again.

    [bold]Examples[/]

      attnviz models

      attnviz models --show demo-gpt2

      attnviz models qwen3

      attnviz models --json
    """
    from attnviz.features.models import function

    if options.family is not None:
        if options.show is not None or settings.max_mb is not None:
            raise UsageError(f"{options.family} stands for families; leave out the other options")
        output.check_written(Families)
        output.deliver(function.families(options.family))
        return
    if options.show is not None and settings.max_mb is not None:
        raise UsageError("--max-mb is of all models; leave out --show")
    output.check_written(Models if options.show is None else ModelCard)
    if options.show is not None:
        output.deliver(function.show(options.show))
        return
    listed = function.models(settings=settings)
    worded = tuple(replace(entry, note=declared.words(entry.note)) for entry in listed.models)
    result = replace(listed, models=worded)
    output.deliver(result)
    if result.cached and not output.machine:
        console.note(["attnviz models --max-mb 0 empties the cache"], output.quiet)
