"""``attnviz syntax``: which heads follow grammar?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import ending
from attnviz.cli.flattening import flatten
from attnviz.cli.options import JOBS, RAY, OutputOptions, TrainedOptions
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.stages import Stages

COUNTED, CONTROL, RESULT = "What counts", "Comparisons", "Result"


@flatten
def syntax(
    model: TrainedOptions,
    output: OutputOptions,
    paper: PaperOptions,
    inputs: Annotated[
        list[str],
        typer.Argument(help="CoNLL-U files, patterns, - for stdin.", metavar="FILE..."),
    ],
    relation: Annotated[
        str | None,
        typer.Option(
            help="Show only these relations, such as obj or nsubj,obj.",
            rich_help_panel=RESULT,
            metavar="NAMES",
        ),
    ] = None,
    subtypes: Annotated[
        bool,
        typer.Option(
            "--subtypes",
            help="Keep subtypes separate: nmod:poss and nmod.",
            rich_help_panel=COUNTED,
        ),
    ] = False,
    punct: Annotated[
        bool,
        typer.Option(
            " /--no-punct",
            help="Leave out the dependencies of punctuation.",
            show_default=False,
            rich_help_panel=COUNTED,
        ),
    ] = True,
    select_on: Annotated[
        str,
        typer.Option(
            help="Choose heads on even documents and measure them on odd ones (halves), or both "
            "on all.",
            rich_help_panel=COUNTED,
        ),
    ] = "halves",
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Stop at the first sentence that cannot be used.",
            rich_help_panel=COUNTED,
        ),
    ] = False,
    random: Annotated[
        bool,
        typer.Option(
            "--random",
            help="Also run the same model with untrained and with shuffled weights, as controls.",
            rich_help_panel=CONTROL,
        ),
    ] = False,
    seed: Annotated[
        int, typer.Option(help="Seed of the first of those weights.", rich_help_panel=CONTROL)
    ] = 0,
    seeds: Annotated[
        int, typer.Option(help="Number of models of each kind.", rich_help_panel=CONTROL)
    ] = 3,
    trees: Annotated[
        bool,
        typer.Option(
            "--trees",
            help="Also score the undirected maximum spanning tree of every head against the chain "
            "of neighbours.",
            rich_help_panel=CONTROL,
        ),
    ] = False,
    rooted: Annotated[
        bool,
        typer.Option(
            "--rooted-trees",
            help="Also score the directed tree from the gold root (Htut et al. 2019).",
            rich_help_panel=CONTROL,
        ),
    ] = False,
    combine: Annotated[
        bool,
        typer.Option(
            "--combine",
            help="Also train a classifier over all heads, scored on held-out text against "
            "untrained weights.",
            rich_help_panel=CONTROL,
        ),
    ] = False,
    jobs: Annotated[int, JOBS] = 1,
    ray: Annotated[str | None, RAY] = None,
    show: Annotated[
        int,
        typer.Option(
            help="Show N sentences, the treebank's arcs above and the best heads' below.",
            rich_help_panel=RESULT,
            metavar="N",
            show_default=False,
        ),
    ] = 0,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Draw these sentences: a .png, .svg or .pdf file.",
            rich_help_panel=RESULT,
            metavar="FILE",
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON (attnviz.syntax/3).", rich_help_panel=RESULT),
    ] = False,
    csv: Annotated[
        bool,
        typer.Option("--csv", help="Print CSV, one line per relation.", rich_help_panel=RESULT),
    ] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help=ending.WRITTEN, rich_help_panel=RESULT, metavar="FILE"),
    ] = None,
) -> None:
    """Compare where heads look with the dependencies of a treebank.

    [bold]Examples[/]

      attnviz syntax en_ewt-ud-dev.conllu --model bert-base-uncased

      attnviz syntax dev.conllu --relation obj,nsubj --no-punct

      attnviz syntax dev.conllu --relation obj,det --show 3 -o arcs.svg

      attnviz syntax dev.conllu --random --trees --combine

      attnviz syntax dev.conllu --select-on all --json
    """
    drawn = paper.options()
    from attnviz.features.syntax import function
    from attnviz.features.syntax.result import Syntax

    ending.check(Syntax, json, csv, plot, picture=out)
    if out is not None and not show:
        raise typer.BadParameter("--out draws sentences; say how many with --show")
    with Stages(output.quiet) as stages:
        found = function.syntax(
            inputs,
            subtypes=subtypes,
            punct=punct,
            select_on=select_on,
            strict=strict,
            jobs=jobs,
            ray=ray,
            random=random,
            seed=seed,
            seeds=seeds,
            trees=trees,
            rooted=rooted,
            combine=combine,
            show=show,
            relation=relation,
            progress=stages.show,
            **model.settings(),
        )
    found.named(relation)  # a name that there is not is said before anything is written
    if plot is not None:
        found.save(plot, **drawn)
    if out is not None:
        found.arcs().save(out, **drawn)
    ending.show(found, output.quiet, relation=relation, json=json, csv=csv)
