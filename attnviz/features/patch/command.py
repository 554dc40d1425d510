"""``attnviz patch``: which heads carry the answer?"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import ending
from attnviz.cli.flattening import flatten
from attnviz.cli.options import BATCH_TOKENS, JOBS, RAY, OutputOptions, TrainedOptions, named_spans
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.stages import Stages
from attnviz.errors import UsageError

PAIRS, PATCHED, THROUGH = "Pairs", "What is patched", "Through whom"
CIRCUIT = "The circuit"


@dataclass(frozen=True)
class PairsOptions:
    """Which pairs."""

    answer: Annotated[
        str | None,
        typer.Option(help="The token that should follow the clean text.", rich_help_panel=PAIRS),
    ] = None
    against: Annotated[
        str | None,
        typer.Option(help="The token that the answer is compared with.", rich_help_panel=PAIRS),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            help="How the decoder's text begins, for encoder-decoder models.", rich_help_panel=PAIRS
        ),
    ] = None
    span: Annotated[
        list[str] | None,
        typer.Option(
            help="Name a part of the clean text for --at: NAME=TEXT; repeatable. In a file: the "
            "field spans.",
            metavar="NAME=TEXT",
            rich_help_panel=PAIRS,
        ),
    ] = None
    spans: Annotated[
        Path | None,
        typer.Option(
            help="The same from a JSON file, an object of names.",
            metavar="FILE",
            rich_help_panel=PAIRS,
        ),
    ] = None
    task: Annotated[
        str | None,
        typer.Option(
            help="Pairs of a built-in task: induction, induction-swap, ioi, agreement or gender.",
            rich_help_panel=PAIRS,
        ),
    ] = None
    count: Annotated[
        int, typer.Option(help="Number of pairs of a task.", rich_help_panel=PAIRS)
    ] = 60
    seed: Annotated[
        int,
        typer.Option(help="Seed of a task's pairs and of the bootstrap.", rich_help_panel=PAIRS),
    ] = 0
    group: Annotated[
        str | None,
        typer.Option(
            help="The field of a file that names what a pair belongs to; these are then taken as "
            "independent.",
            metavar="KEY",
            rich_help_panel=PAIRS,
        ),
    ] = None
    align: Annotated[
        str,
        typer.Option(
            help="How prompts of different lengths are aligned: by position or by word.",
            rich_help_panel=PAIRS,
        ),
    ] = "position"


@dataclass(frozen=True)
class PatchedOptions:
    """What is patched, and what is measured."""

    component: Annotated[
        str,
        typer.Option(
            help="Heads' outputs (z), q, k, v or pattern; attention or mlp sublayers; residual.",
            rich_help_panel=PATCHED,
        ),
    ] = "z"
    by: Annotated[
        str,
        typer.Option(help="Patch all positions at once (head), or each in turn (position).",
                     rich_help_panel=PATCHED),
    ] = "head"  # fmt: skip
    heads: Annotated[
        str | None,
        typer.Option(
            "--select",
            "-s",
            "--heads",
            help="2.0 or 2.* each alone, 2.0+2.4 or layer:2 together; lists by comma. Every head "
            "alone by default.",
            metavar="HEADS",
            rich_help_panel=PATCHED,
        ),
    ] = None
    at: Annotated[
        str | None,
        typer.Option(
            help="Positions: 3 or -1,-2, span for those that differ, or span:NAME for a part named "
            "by --span.",
            metavar="POSITIONS",
            rich_help_panel=PATCHED,
        ),
    ] = None
    direction: Annotated[
        str,
        typer.Option(
            help="denoise (clean into corrupted), noise (corrupted into clean) or both.",
            rich_help_panel=PATCHED,
        ),
    ] = "both"
    metric: Annotated[
        str | None,
        typer.Option(
            help="logit-diff, prob, log-prob, kl, loss, or one of a --plugin (av.metric).",
            rich_help_panel=PATCHED,
            show_default="logit-diff with --against, else log-prob",
        ),
    ] = None
    fill: Annotated[
        str | None,
        typer.Option(
            help="What is put in place, a fill of a --plugin (av.fill).",
            rich_help_panel=PATCHED,
            show_default="the other run's values",
        ),
    ] = None
    estimate: Annotated[
        bool,
        typer.Option(
            "--estimate",
            help="Also estimate every effect from one gradient (attribution patching).",
            rich_help_panel=PATCHED,
        ),
    ] = False


@dataclass(frozen=True)
class PathOptions:
    """Through whom."""

    paths: Annotated[
        list[str] | None,
        typer.Option(
            help='In place of heads: "1.4 -> *.k", "2.0 -> logits"; repeatable.',
            metavar="PATH",
            rich_help_panel=THROUGH,
        ),
    ] = None
    edges: Annotated[
        int,
        typer.Option(
            help="Estimate the paths between all heads by gradients, and measure the N strongest.",
            metavar="N",
            rich_help_panel=THROUGH,
            show_default="none",
        ),
    ] = 0
    steps: Annotated[
        int,
        typer.Option(
            help="Steps of integrated gradients (EAP-IG); 0 for plain gradients (EAP).",
            rich_help_panel=THROUGH,
        ),
    ] = 5
    mlps: Annotated[
        str,
        typer.Option(
            help="MLPs between the ends of a path: frozen, as in the run that is patched, or free.",
            rich_help_panel=THROUGH,
        ),
    ] = "frozen"


@dataclass(frozen=True)
class CircuitOptions:
    """The whole of it."""

    circuit: Annotated[
        bool,
        typer.Option(
            "--circuit",
            help="Find the heads that do the task on half of the pairs, judge them on the others.",
            rich_help_panel=CIRCUIT,
        ),
    ] = False
    size: Annotated[
        int | None,
        typer.Option(
            help="Number of heads in the circuit.",
            metavar="N",
            show_default="the fewest that are faithful enough",
            rich_help_panel=CIRCUIT,
        ),
    ] = None
    faithful: Annotated[
        float,
        typer.Option(
            help="Share of the effect that the circuit is to keep, with all other heads corrupted.",
            rich_help_panel=CIRCUIT,
        ),
    ] = 0.85


_OF_ONE = ("answer", "against", "target", "span", "spans")
"""Options of a single pair."""


@flatten
def patch(
    model: TrainedOptions,
    output: OutputOptions,
    paper: PaperOptions,
    given: PairsOptions,
    patched: PatchedOptions,
    through: PathOptions,
    whole: CircuitOptions,
    pairs: Annotated[
        str | None,
        typer.Argument(
            help="The clean text; or a .jsonl file of pairs, with clean, corrupted, answer and "
            "against.",
            show_default=False,
            metavar="CLEAN|FILE",
        ),
    ] = None,
    corrupted: Annotated[
        str | None, typer.Argument(help="The corrupted text.", show_default=False)
    ] = None,
    jobs: Annotated[int, JOBS] = 1,
    ray: Annotated[str | None, RAY] = None,
    batch_tokens: Annotated[int | None, BATCH_TOKENS] = None,
    top: Annotated[
        int | None, typer.Option(help="Only the first N rows of the table.", metavar="N", min=1)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.patch/1).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line an effect.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help=ending.WRITTEN, metavar="FILE"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Also save it: .json, .csv, a picture; a circuit as .html page or .dot graph.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Patch one run's activations into another: which of them carry the answer?

    [bold]Examples[/]

      attnviz patch --task induction

      attnviz patch "The man smiled because" "The woman smiled because" --answer he --against she

      attnviz patch pairs.jsonl --group template --component pattern

      attnviz patch --task induction --by position --component residual --plot grid.png

      attnviz patch --task induction --heads "2.0+3.0+3.3, layer:3" --estimate

      attnviz patch --task induction --paths "2.4 -> *.v" --paths "2.0 -> logits" --mlps free

      attnviz patch --task induction --edges 20 --plot edges.svg

      attnviz patch --task induction-swap --circuit --plot circuit.svg -o circuit.html
    """
    drawn = paper.options()
    from attnviz.features.patch import function
    from attnviz.features.patch.pairs import Pair
    from attnviz.features.patch.result import Patch

    ending.check(Patch, json, csv, plot, out)
    what: Pair | str | None = pairs
    if corrupted is not None:
        if given.answer is None:
            raise UsageError("two texts need the token that should follow the first: {answer}",
                             answer=...)  # fmt: skip
        what = Pair(
            pairs or "",
            corrupted,
            given.answer,
            given.against,
            given.target,
            spans=named_spans(given.span, given.spans),
        )
    elif alone := [x for x in _OF_ONE if getattr(given, x) is not None]:
        raise UsageError(
            "{} is of one pair; give the clean and the corrupted text, or name it in the file",
            f"--{alone[0]}",
        )
    elif pairs is not None and " " in pairs.strip() and not os.path.exists(pairs):
        raise UsageError("a clean text needs a corrupted one, and {answer}", answer=...)
    with Stages(output.quiet) as stages:
        found = function.patch(
            what,
            task=given.task,
            count=given.count,
            seed=given.seed,
            group=given.group,
            align=given.align,  # type: ignore[arg-type]
            component=patched.component,  # type: ignore[arg-type]
            by=patched.by,  # type: ignore[arg-type]
            heads=patched.heads,
            at=patched.at,
            direction=patched.direction,  # type: ignore[arg-type]
            metric=patched.metric,
            fill=patched.fill,
            estimate=patched.estimate,
            paths=tuple(through.paths or ()),
            edges=through.edges,
            steps=through.steps,
            mlps=through.mlps,  # type: ignore[arg-type]
            circuit=whole.circuit,
            size=whole.size,
            faithful=whole.faithful,
            jobs=jobs,
            ray=ray,
            batch_tokens=batch_tokens,
            progress=stages.show,
            **model.settings(),
        )
    for path in (plot, out):
        if path is not None:
            found.save(path, **drawn)
    ending.show(found, output.quiet, top, json=json, csv=csv)
