"""``attnviz ablate``: does a head matter?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from attnviz.cli import console, ending
from attnviz.cli.flattening import flatten
from attnviz.cli.options import (
    BATCH_TOKENS,
    EVIDENCE,
    JOBS,
    RAY,
    OutputOptions,
    TextsOptions,
    TrainedOptions,
    has_fields,
)
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.stages import Stages
from attnviz.errors import Setting, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attnviz.captures.look import Look

AWAY, MEASURED, CURVE = "What is ablated", "What is measured", "How many heads can be removed"


@dataclass(frozen=True)
class AwayOptions:
    """Which heads, and what takes their place."""

    heads: Annotated[
        str | None,
        typer.Option(
            "--select",
            "-s",
            "--heads",
            help="5.1 or 2.* each alone, 3.0+3.1 or layer:2 together, role:induction, "
            "all-but:5.1; comma-separated. Every head alone by default.",
            metavar="HEADS",
            rich_help_panel=AWAY,
        ),
    ] = None
    method: Annotated[
        str,
        typer.Option(
            help="What replaces a head's output: zero, mean, resample (its output on "
            "another text), one of a --plugin (av.fill), or several, comma-separated; a head is "
            "called needed where two agree.",
            rich_help_panel=AWAY,
        ),
    ] = "mean, resample"
    mean_over: Annotated[
        str,
        typer.Option(help="Mean at each position, or over all tokens.", rich_help_panel=AWAY),
    ] = "positions"
    draws: Annotated[
        int | None,
        typer.Option(
            help="Number of other texts to resample from, for each text.",
            rich_help_panel=AWAY,
            show_default="1, and more for a few texts",
        ),
    ] = None
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of masks, halves, resampling and random orders.", rich_help_panel=AWAY
        ),
    ] = 0


@dataclass(frozen=True)
class MetricOptions:
    """What is measured."""

    metric: Annotated[
        str | None,
        typer.Option(
            help="loss, kl, logit-diff, hidden, or one of a --plugin (av.metric).",
            rich_help_panel=MEASURED,
            show_default="loss",
        ),
    ] = None
    answer: Annotated[
        str | None,
        typer.Option(help="For logit-diff: the token that should win.", rich_help_panel=MEASURED),
    ] = None
    against: Annotated[
        str | None,
        typer.Option(help="For logit-diff: the token it should beat.", rich_help_panel=MEASURED),
    ] = None
    at: Annotated[
        str | None,
        typer.Option(
            help="Measure on the tokens of a span alone: span:NAME, named by --span.",
            metavar="SPAN",
            rich_help_panel=MEASURED,
        ),
    ] = None
    mask: Annotated[
        str,
        typer.Option(
            help="For masked models: mask some tokens (15 %), or each in turn.",
            rich_help_panel=MEASURED,
        ),
    ] = "some"
    positions: Annotated[
        bool,
        typer.Option(
            "--positions", help="Show the effect on each token.", rich_help_panel=MEASURED
        ),
    ] = False
    gradient: Annotated[
        bool,
        typer.Option(
            "--gradient", help="Also measure the gradient of every gate.", rich_help_panel=MEASURED
        ),
    ] = False
    normalize: Annotated[
        str,
        typer.Option(
            help="Normalize gradients within each layer (layer) or not at all (none).",
            rich_help_panel=MEASURED,
        ),
    ] = "none"
    average: Annotated[
        str,
        typer.Option(
            help="Over texts: mean (of all positions), trimmed or median (of the texts' means).",
            rich_help_panel=MEASURED,
        ),
    ] = "mean"
    smallest: Annotated[
        float,
        typer.Option(
            help="Smallest effect of interest, as a share of the metric on the full model.",
            rich_help_panel=MEASURED,
        ),
    ] = 0.01


@dataclass(frozen=True)
class CurveOptions:
    """Ablating heads one after the other."""

    curve: Annotated[
        bool,
        typer.Option(
            "--curve",
            help="Ablate one head after the other: ordered on half of the texts, measured on the "
            "other half.",
            rich_help_panel=CURVE,
        ),
    ] = False
    order: Annotated[
        str,
        typer.Option(
            help="Least important first: effect, gradient, role; or random.", rich_help_panel=CURVE
        ),
    ] = "effect"
    remeasure: Annotated[
        bool,
        typer.Option(
            "--remeasure",
            help="Rank the remaining heads again after every tenth removed.",
            rich_help_panel=CURVE,
        ),
    ] = False
    random_orders: Annotated[
        int, typer.Option(help="Number of random orders for comparison.", rich_help_panel=CURVE)
    ] = 3
    tolerance: Annotated[
        float, typer.Option(help="Largest increase of the metric to allow.", rich_help_panel=CURVE)
    ] = 0.05


@flatten
def ablate(
    prompt: TextsOptions,
    model: TrainedOptions,
    output: OutputOptions,
    paper: PaperOptions,
    away: AwayOptions,
    measured: MetricOptions,
    walk: CurveOptions,
    evidence: Annotated[list[Path] | None, EVIDENCE] = None,
    probe: Annotated[
        bool, typer.Option("--probe", help="Repeat random tokens; loss on the second half.")
    ] = False,
    reference: Annotated[
        str | None,
        typer.Option(
            help="Reference texts for mean and resample, none of those measured: lines, or .jsonl, "
            ".csv, .tsv, .parquet. By default the other half of the texts; for a single text, "
            "English sentences that come with attnviz.",
            metavar="FILE",
        ),
    ] = None,
    group: Annotated[
        str | None,
        typer.Option(
            help="Column or field of --lines that says what a text belongs to, such as its "
            "document; these are then taken as independent.",
            metavar="NAME",
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(help="The column or field that holds the text.", metavar="NAME"),
    ] = None,
    jobs: Annotated[int, JOBS] = 1,
    ray: Annotated[str | None, RAY] = None,
    batch_tokens: Annotated[int | None, BATCH_TOKENS] = None,
    top: Annotated[
        int | None, typer.Option(help="Only the first N rows of the table.", metavar="N", min=1)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.ablate/2).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one line per group.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            "--out",
            "-o",
            help=ending.WRITTEN,
            metavar="FILE",
        ),
    ] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            help="Also write the checkpoint with the heads of --select removed into this folder, "
            "for transformers to load.",
            metavar="FOLDER",
        ),
    ] = None,
) -> None:
    """Ablate heads and measure what that costs: which heads are needed?

    [bold]Examples[/]

      attnviz ablate "The keys to the cabinet are on the table because the keys were lost"

      attnviz ablate --lines sentences.txt --model gpt2 --gradient --plot heads.png

      attnviz ablate --probe --select "3.0+3.1+3.3+3.5, role:induction"

      attnviz ablate "The doctor asked the nurse to help" --answer her --against him

      attnviz ablate --lines reviews.jsonl --group author --method "mean, resample, zero"

      attnviz ablate --lines sentences.txt --curve --plot curve.svg

      attnviz ablate --probe --select 3.0+3.1 --write pruned
    """
    drawn = paper.options()
    from attnviz.features.ablation import function
    from attnviz.features.ablation.result import Ablation
    from attnviz.features.ablation.settings import AblationSettings

    ending.check(Ablation, json, csv, plot)
    _check_written(write, away.heads)
    options = asdict(away) | asdict(measured) | asdict(walk)
    settings = AblationSettings(**options, jobs=jobs, ray=ray, batch_tokens=batch_tokens)
    settings.check()
    looks: Iterable[Look] | None
    groups = None
    if probe and not prompt.given():
        looks = None
    elif prompt.lines is not None and has_fields(prompt.lines):
        looks, groups = prompt.fields(model, column=column, group=group)
    else:
        looks = prompt.looks(model, seed=away.seed if prompt.draws else None, quiet=output.quiet)
    if groups is None and (group is not None or column is not None):
        raise UsageError(
            "{} is a field of texts, for --lines with a .csv, .tsv, .jsonl or .parquet file",
            Setting("column" if group is None else "group", column if group is None else group),
        )
    others = None
    if reference is not None:
        texts = TextsOptions(lines=reference)
        others = texts.fields(model)[0] if has_fields(reference) else texts.looks(model)
    with Stages(output.quiet) as stages:
        found = function.ablate(
            looks,
            probe=probe,
            reference=others,
            groups=groups,
            evidence=evidence,
            progress=stages.show,
            **settings.asked(),
            **model.settings(),
        )
    if plot is not None:
        found.save(plot, **drawn)
    ending.show(found, output.quiet, top, json=json, csv=csv)
    if write is not None:
        from attnviz.features.ablation.prune import prune_heads

        heads = dict.fromkeys(head for effect in found.effects for head in effect.heads)
        pruned = prune_heads(str(model.choose()), tuple(heads), write, device=model.device)
        if not output.quiet:
            console.note(str(pruned).splitlines(), False)


def _check_written(folder: Path | None, heads: str | None) -> None:
    """Find out before anything is measured that a checkpoint could not be written."""
    if folder is None:
        return
    if heads is None:
        raise UsageError("--write removes the heads of --select; say which ones")
    from attnviz.models.pruned.checkpoint import check_free

    check_free(folder)
