"""``attnviz film``: when do heads form?"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from attnviz.captures.settings import INPUT
from attnviz.cli.console import Interrupted, Stages
from attnviz.cli.declared import changed, command
from attnviz.cli.options import TextsOptions
from attnviz.cli.output import Output, TableOptions
from attnviz.core.settings import Settings, like, setting
from attnviz.drawing.paper import Paper
from attnviz.errors import UsageError
from attnviz.features.film.result import BaselineSettings, Checkpoints, Film, FilmSettings


@dataclass(frozen=True)
class FilmInput(Settings):
    """A film, or the texts of one."""

    file: Path | None = setting(
        None,
        "A film that is there already: its JSON, or a folder of measured steps ({state}, av.track, "
        "av.HeadsCallback).",
        argument=True,
        metavar="[FILE]",
    )
    texts: tuple[str, ...] | None = like(
        TextsOptions,
        "texts",
        help="Texts: one per line, .jsonl, .csv, .tsv or .parquet; repeatable.",
        panel=INPUT,
    )


@dataclass(frozen=True)
class AllHeads(Settings):
    """Which heads are listed."""

    top: Literal["all"] | None = like(
        TableOptions,
        "top",
        help="List all heads, not only those with a role.",
        parser=None,
        metavar="all",
        least=None,
    )


@command
def film(
    read: FilmInput,
    settings: FilmSettings,
    compared: BaselineSettings,
    model: Checkpoints,
    table: AllHeads,
    output: Output,
    paper: Paper,
) -> None:
    """Show what every head does at every checkpoint of a training run, and when heads form.

    [bold]Examples[/]

      attnviz film sample_inputs/phases/markov-2.json

      attnviz film sample_inputs/phases/demo-gpt2.json -o film.html

      attnviz film sample_inputs/phases/repeats-2.json --out film.png
    """
    from attnviz.features.film import function

    output.check_written(Film)
    if read.file is not None:
        result = function.read_film(read.file, compared=compared)
        if extra := changed(read, settings, model, but=("file",)):
            raise UsageError(f"{read.file} is measured already; leave out {', '.join(extra)}")
    elif not model.model or not read.texts:
        raise UsageError("give --model 'runs/step-*' and --texts FILE, or a film that is there")
    else:
        try:
            with Stages(output.quiet) as stages:
                result = function.film(
                    read.texts,
                    progress=stages.show,
                    settings=settings,
                    compared=compared,
                    model=model,
                )
        except KeyboardInterrupt:
            state = settings.state
            hint = f"{state} has what is done" if state else "use --state to keep what is done"
            raise Interrupted(f"interrupted before two checkpoints were done; {hint}") from None
    output.deliver(result, paper.options(), everything=table.top == "all")
