"""``attnviz coref``: which heads know whom a pronoun means?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from attnviz.cli import ending
from attnviz.cli.flattening import flatten
from attnviz.cli.options import JOBS, RAY, OutputOptions, TrainedOptions
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.stages import Stages

COUNTED, RESULT = "What counts", "Result"


def _option(help: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


@flatten
def coref(
    model: TrainedOptions,
    output: OutputOptions,
    paper: PaperOptions,
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="Tables as those of GAP (.tsv) or CoNLL-U with the entities of CorefUD, patterns, "
            "- for stdin.",
            metavar="FILE...",
        ),
    ],
    select_on: Annotated[
        str,
        _option(
            "Choose heads on even documents and measure them on odd ones (halves), or both on all.",
            COUNTED,
        ),
    ] = "halves",
    candidates: Annotated[
        str,
        _option(
            "CoNLL-U: heads point to any of the words, or only to the heads of earlier mentions.",
            COUNTED,
        ),
    ] = "words",
    window: Annotated[
        int, _option("CoNLL-U: tokens of a document that are read at a time.", COUNTED, metavar="N")
    ] = 128,
    strict: Annotated[
        bool, _option("Stop at the first row or mention that cannot be used.", COUNTED, "--strict")
    ] = False,
    jobs: Annotated[int, JOBS] = 1,
    ray: Annotated[str | None, RAY] = None,
    top: Annotated[
        int, _option("Only the first N heads of the table.", RESULT, metavar="N", min=1)
    ] = 10,
    json: Annotated[bool, _option("Print JSON (attnviz.coref/2).", RESULT, "--json")] = False,
    csv: Annotated[
        bool, _option("Print CSV, one line per kind and head.", RESULT, "--csv")
    ] = False,
    plot: Annotated[Path | None, _option(ending.WRITTEN, RESULT, metavar="FILE")] = None,
) -> None:
    """Compare where heads look with what pronouns, names and other mentions refer to.

    [bold]Examples[/]

      attnviz coref gap-development.tsv --model bert-base-uncased --plot coref.png

      attnviz coref en_gum-corefud-dev.conllu --candidates mentions

      attnviz coref sample_inputs/pronouns.tsv --select-on all --json
    """
    drawn = paper.options()
    from attnviz.features.coref import function
    from attnviz.features.coref.result import Coref

    ending.check(Coref, json, csv, plot)
    with Stages(output.quiet) as stages:
        found = function.coref(
            inputs,
            select_on=select_on,
            candidates=candidates,
            window=window,
            strict=strict,
            jobs=jobs,
            ray=ray,
            progress=stages.show,
            **model.settings(),
        )
    if plot is not None:
        found.save(plot, **drawn)
    ending.show(found, output.quiet, top=top, json=json, csv=csv)
