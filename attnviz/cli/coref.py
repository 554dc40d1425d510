"""``attnviz coref``: which heads know whom a pronoun means?"""

from __future__ import annotations

from typing import Annotated

import typer

from attnviz.cli import console
from attnviz.cli.options import RAY, OutputOptions, TrainedOptions, flatten
from attnviz.cli.stages import Stages


@flatten
def coref(
    model: TrainedOptions,
    output: OutputOptions,
    inputs: Annotated[
        list[str],
        typer.Argument(
            help="Tables as those of GAP (.tsv), patterns, - for stdin.", metavar="FILE..."
        ),
    ],
    select_on: Annotated[
        str,
        typer.Option(
            help="Choose heads on even documents and measure them on odd ones (halves), or both "
            "on all."
        ),
    ] = "halves",
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at the first row that cannot be used.")
    ] = False,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes.")] = 1,
    ray: Annotated[str | None, RAY] = None,
    top: Annotated[
        int, typer.Option(help="Only the first N rows of the table.", metavar="N", min=1)
    ] = 10,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.coref/1).")] = False,
) -> None:
    """Compare where heads look with the names that ambiguous pronouns mean.

    [bold]Examples[/]

      attnviz coref gap-development.tsv --model bert-base-uncased

      attnviz coref sample_inputs/pronouns.tsv --select-on all --json
    """
    from attnviz import evidence
    from attnviz.render.grammar import tables, terminal
    from attnviz.render.grammar.words import choice_line, coref_measured
    from attnviz.render.terminal import Line

    with Stages(output.quiet) as stages:
        report = evidence.coref(
            inputs,
            select_on=select_on,
            strict=strict,
            jobs=jobs,
            ray=ray,
            progress=stages.show,
            **model.settings(),
        )
    if json:
        console.put(tables.annotated_json(report))
        return
    screen = console.stdout()
    screen.print(terminal.coref_table(report, top))
    screen.print("")
    screen.print(Line(choice_line(report)))
    screen.print(Line(terminal.coref_legend(report), "dim"))
    screen.print(Line(coref_measured(report), "dim"))
    console.note(report.notes, output.quiet)
