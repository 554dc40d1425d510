"""``attnviz heads``: what every head does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import console
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
from attnviz.cli.voice import option
from attnviz.errors import UsageError
from attnviz.records import HeadScores, HeadsReport


@flatten
def heads(
    prompt: InputOptions,
    model: ModelOptions,
    output: OutputOptions,
    select: Annotated[
        str | None, typer.Option("--select", "-s", help=SELECT_HELP, metavar="HEADS")
    ] = None,
    without: Annotated[str | None, typer.Option(help=WITHOUT_HELP, metavar="HEADS")] = None,
    weigh: Annotated[str, typer.Option(help=WEIGH_HELP, metavar="QUANTITY")] = WEIGHTS,
    role: Annotated[
        str | None, typer.Option(help="Only heads with this role: induction, 'syntactic: obj'.")
    ] = None,
    sort: Annotated[
        str, typer.Option(help="Order the table by layer, role or the name of a score.")
    ] = "layer",
    top: Annotated[
        int | None, typer.Option(help="Only the first N rows of the table.", metavar="N", min=1)
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Table of all heads, not only of those that do something.")
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
            help="Instead of running a text, read what attnviz profile kept.", metavar="FILE"
        ),
    ] = None,
    evidence: Annotated[list[Path] | None, EVIDENCE] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.heads/1).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line a head.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            "--out",
            "-o",
            help="Also draw the grid: a .png, .svg or .pdf file.",
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
    from attnviz import api, files
    from attnviz.notebook import picture_format
    from attnviz.render import tables, terminal
    from attnviz.scoring.arrange import arrange
    from attnviz.scoring.scores import SCORES

    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    if plot is not None:
        picture_format(plot)
        files.check_writable(plot)
    if profile is not None:
        extra = changed(prompt) + changed(model)
        extra += [option("probe")] * probe + [option("select")] * (select is not None)
        extra += [option("without")] * (without is not None) + [option("weigh")] * (
            weigh != WEIGHTS
        )
        if extra:
            raise UsageError(f"--profile needs no model and no text; leave out {', '.join(extra)}")
        from attnviz import profiled  # only here: it costs a tenth of a second
        from attnviz.cli.profile import show

        kept = profiled.read_profile(profile, evidence)
        if plot is not None:
            kept.save(plot)
        if json or csv:
            console.put(kept.json() if json else kept.csv())
        else:
            show(kept, role=role, sort=sort, top=top, everything=everything)
        console.note(kept.notes, output.quiet)
        return
    look, settings = prompt.asked(model, quiet=output.quiet)
    with console.waiting("running the model", output.quiet):
        report = api.heads(
            look,
            probe=probe,
            select=select,
            without=without,
            weigh=weigh,
            evidence=evidence,
            **settings,
        )
    machine = json or csv
    rows = arrange(report.heads, role=role, sort=sort, top=top, everything=everything or machine)
    if plot is not None:
        report.save(plot)
    if machine:
        console.put((tables.heads_json if json else tables.heads_csv)(report, rows))
        return
    screen = console.stdout()
    screen.print(terminal.heads_grid(report))
    by = sort if sort in SCORES else None
    screen.print(terminal.heads_table(report, rows, score=by))
    if not everything and role is None and (resting := terminal.resting_line(report)):
        screen.print(terminal.Line(f"{resting} (--all lists them)", "dim"))
        screen.print()
    _print_findings(report, rows)
    if report.probe:
        probed = arrange(report.probe, role=role, sort=sort, top=top, everything=False)
        _print_probe(report, probed, by)
    screen.print(terminal.mixing_table(report), end="")
    screen.print(terminal.closing_line(report))
    console.note(report.notes, output.quiet)


def _print_findings(report: HeadsReport, rows: Sequence[HeadScores]) -> None:
    """What other results say of the heads in the table."""
    from attnviz.render.findings import Findings

    names = [report.layout.name(one.head) for one in rows]
    console.stdout().print(Findings(report.findings, names), end="")


def _print_probe(report: HeadsReport, rows: Sequence[HeadScores], by: str | None) -> None:
    """What heads do on repeated random tokens."""
    from attnviz.render import terminal
    from attnviz.render.published import matching_line

    screen = console.stdout()
    screen.print("On repeated random tokens:")
    screen.print(terminal.heads_table(report, rows, score=by))
    if report.matching is not None:
        heads = {scores.head for scores in report.heads}
        screen.print(terminal.Line(matching_line(report.matching, report.layout, heads)))
