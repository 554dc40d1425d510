"""``attnviz atlas``: everything known about every head of a model, on one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import browser, console, ending
from attnviz.cli.flattening import flatten
from attnviz.cli.options import EVIDENCE, OutputOptions, TrainedOptions
from attnviz.cli.stages import Stages


@flatten
def atlas(
    model: TrainedOptions,
    output: OutputOptions,
    lines: Annotated[
        list[str] | None,
        typer.Option(
            help="A file of texts, as for profile; repeatable.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    conllu: Annotated[
        Path | None, typer.Option(help="A treebank, as for syntax.", metavar="FILE")
    ] = None,
    gap: Annotated[
        Path | None, typer.Option(help="Pronouns or entities, as for coref.", metavar="FILE")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="The first N texts only.", metavar="N", min=1)
    ] = None,
    ablated: Annotated[
        int, typer.Option(help="Number of texts to ablate heads on.", metavar="N", min=1)
    ] = 64,
    evidence: Annotated[list[Path] | None, EVIDENCE] = None,
    out: Annotated[Path | None, browser.OUT] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON (attnviz.atlas/4); the page only with -o.")
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV, a line a head; the page only with -o.")
    ] = False,
) -> None:
    """Put everything that is known about every head of a model on one page.

    Runs profile, ablate and circuits, with --conllu syntax and with --gap coref, and gathers what
    they find: sortable, searchable, a card for each head. With -o an interrupted run can be
    resumed.

    [bold]Examples[/]

      attnviz atlas --lines sample_inputs/sentences.txt -o atlas.html

      attnviz atlas --lines a.txt --conllu dev.conllu --gap gap.tsv --model gpt2 -o gpt2.html
    """
    from attnviz.errors import UsageError
    from attnviz.features.atlas import function as atlases
    from attnviz.features.atlas import terminal
    from attnviz.features.atlas.result import Atlas

    ending.check(Atlas, json, csv)
    if not lines:
        raise UsageError("atlas needs texts: add {lines}", lines="sample_inputs/sentences.txt")
    browser.check(out)
    keep = None if out is None else out.with_name(f".{out.name}.parts")
    with Stages(output.quiet) as stages:
        made = atlases.atlas(
            lines,
            conllu=conllu,
            gap=gap,
            limit=limit,
            ablated=ablated,
            evidence=evidence,
            keep=keep,
            progress=stages.show,
            **model.settings(),
        )
    if json or csv:
        if out is not None:
            made.save(out)
        console.put(made.to_json() if json else made.to_csv())
    else:
        screen = console.stdout()
        for part in terminal.parts(made):
            screen.print(part)
        browser.deliver(made, out, output.quiet)
    if keep is not None:
        atlases.forget(keep)
    console.note(made.notes, output.quiet)
