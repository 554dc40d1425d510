"""``attnviz heads``: what every head does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from attnviz.cli import console, ending
from attnviz.cli.flattening import changed, flatten
from attnviz.cli.options import (
    EVIDENCE,
    SELECT_HELP,
    WEIGH_HELP,
    WEIGHTS,
    WITHOUT_HELP,
    InputOptions,
    ModelOptions,
    OutputOptions,
)
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.voice import option
from attnviz.errors import UsageError


@flatten
def heads(
    prompt: InputOptions,
    model: ModelOptions,
    output: OutputOptions,
    paper: PaperOptions,
    select: Annotated[
        str | None, typer.Option("--select", "-s", help=SELECT_HELP, metavar="HEADS")
    ] = None,
    without: Annotated[str | None, typer.Option(help=WITHOUT_HELP, metavar="HEADS")] = None,
    weigh: Annotated[str, typer.Option(help=WEIGH_HELP, metavar="QUANTITY")] = WEIGHTS,
    role: Annotated[
        str | None, typer.Option(help="Only heads with this role: induction, or obj with --with.")
    ] = None,
    sort: Annotated[
        str,
        typer.Option(help="Sort the table by layer, role, a score, or a relation given by --with."),
    ] = "layer",
    top: Annotated[
        int | None, typer.Option(help="Only the first N rows of the table.", metavar="N", min=1)
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="List all heads, not only those that do something.")
    ] = False,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe", help="Also measure induction and duplicates on repeated random tokens."
        ),
    ] = False,
    profile: Annotated[
        Path | None,
        typer.Option(
            help="Show a profile, kept by attnviz profile or its JSON, instead of running a text.",
            metavar="FILE",
        ),
    ] = None,
    evidence: Annotated[list[Path] | None, EVIDENCE] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.heads/2).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one line per head.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            "--out",
            "-o",
            help="Also write it: the grid (.png, .svg, .pdf), a table (.csv, .parquet) or .json.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Show what every attention head does with a text: a grid of roles, and the evidence.

    [bold]Examples[/]

      attnviz heads "The keys to the cabinet are on the table"

      attnviz heads "The cat sat." --model bert-base-uncased --pair "It slept."

      attnviz heads --file essay.txt --model gpt2 --probe --role induction

      attnviz heads "The keys to the cabinet are on the table" --with ablate.json

      attnviz heads --profile bert.profile --with syntax.json --with coref.json

      attnviz heads "The cat sat." --json | jq '.heads[0].roles'
    """
    drawn = paper.options()
    from attnviz.cli.listing import listed
    from attnviz.features.heads import function, terminal
    from attnviz.features.heads.result import Heads
    from attnviz.scoring.scores import SCORES

    ending.check(Heads, json, csv, plot)
    if profile is not None:
        extra = changed(prompt) + changed(model)
        extra += [option("probe")] * probe + [option("select")] * (select is not None)
        extra += [option("without")] * (without is not None) + [option("weigh")] * (
            weigh != WEIGHTS
        )
        if extra:
            raise UsageError(f"--profile needs no model and no text; leave out {', '.join(extra)}")
        from attnviz.features.profile import terminal as profile_terminal
        from attnviz.features.profile.function import read_profile

        kept = read_profile(profile, evidence)
        if plot is not None:
            kept.save(plot, **drawn)
        if json or csv:
            console.put(kept.to_json() if json else kept.to_csv())
        else:
            scores = [head.scores for head in kept.heads]
            rows, more = listed(scores, role=role, sort=sort, top=top, everything=everything)
            for part in profile_terminal.parts(kept, rows, more=more):
                console.stdout().print(part)
        console.note(kept.notes, output.quiet)
        return
    look, settings = prompt.asked(model, quiet=output.quiet)
    with console.waiting("running the model", output.quiet) as told:
        found = function.heads(
            look,
            probe=probe,
            select=select,
            without=without,
            weigh=weigh,
            evidence=evidence,
            progress=told,
            **settings,
        )
    machine = json or csv
    order: dict[str, Any] = {"role": role, "sort": sort, "top": top}
    rows, more = listed(found.heads, **order, everything=everything or machine)
    if plot is not None:
        found.save(plot, **drawn)
    if machine:
        kept_rows = replace(found, heads=tuple(rows))
        console.put(kept_rows.to_json() if json else kept_rows.to_csv())
        return
    probed, more_probed = listed(found.probe, **order, named=found.heads)
    screen = console.stdout()
    for part in terminal.parts(
        found,
        rows,
        probed,
        score=sort if sort in SCORES else None,
        more=(more, more_probed),
        resting="" if everything or role is not None else "(--all lists them)",
    ):
        screen.print(part)
    console.note(found.notes, output.quiet)
