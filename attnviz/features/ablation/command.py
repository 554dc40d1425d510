"""``attnviz ablate``: does a head matter?"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import console
from attnviz.cli.flattening import flatten
from attnviz.cli.options import OutputOptions, TextsOptions, TrainedOptions
from attnviz.cli.stages import Stages

AWAY, MEASURED, CURVE = "What is taken away", "What is measured", "How many heads can go"


@dataclass(frozen=True)
class AwayOptions:
    """Which heads, and what takes their place."""

    heads: Annotated[
        str | None,
        typer.Option(
            help="5.1 or 2.* one by one, 3.0+3.1 or layer:2 together, role:induction, "
            "all-but:5.1; lists by comma. Every head alone by default.",
            metavar="HEADS",
            rich_help_panel=AWAY,
        ),
    ] = None
    method: Annotated[str, typer.Option(help="zero, mean or resample.", rich_help_panel=AWAY)] = (
        "zero"
    )
    mean_over: Annotated[
        str,
        typer.Option(help="A mean at each of the positions, or over tokens.", rich_help_panel=AWAY),
    ] = "positions"
    draws: Annotated[
        int, typer.Option(help="Other texts for each text, to resample.", rich_help_panel=AWAY)
    ] = 1
    seed: Annotated[
        int, typer.Option(help="Of masks, draws and random orders.", rich_help_panel=AWAY)
    ] = 0


@dataclass(frozen=True)
class MetricOptions:
    """What is measured."""

    metric: Annotated[
        str | None,
        typer.Option(
            help="loss, kl, logit-diff or hidden.", rich_help_panel=MEASURED, show_default="loss"
        ),
    ] = None
    answer: Annotated[
        str | None,
        typer.Option(help="For logit-diff: the token that should win.", rich_help_panel=MEASURED),
    ] = None
    against: Annotated[
        str | None, typer.Option(help="And the one it should beat.", rich_help_panel=MEASURED)
    ] = None
    mask: Annotated[
        str,
        typer.Option(
            help="Of masked models: some (15 %) or each token in turn.", rich_help_panel=MEASURED
        ),
    ] = "some"
    positions: Annotated[
        bool,
        typer.Option("--positions", help="Which tokens pay for it.", rich_help_panel=MEASURED),
    ] = False
    gradient: Annotated[
        bool,
        typer.Option(
            "--gradient", help="Also the gradient of every gate.", rich_help_panel=MEASURED
        ),
    ] = False
    normalize: Annotated[
        str,
        typer.Option(
            help="Gradients as they are (none) or by layer (layer).", rich_help_panel=MEASURED
        ),
    ] = "none"


@dataclass(frozen=True)
class CurveOptions:
    """Taking heads away one after the other."""

    curve: Annotated[
        bool,
        typer.Option("--curve", help="Take heads away one by one.", rich_help_panel=CURVE),
    ] = False
    order: Annotated[
        str,
        typer.Option(
            help="Least important first: effect, gradient, role; or random.", rich_help_panel=CURVE
        ),
    ] = "effect"
    remeasure: Annotated[
        bool,
        typer.Option("--remeasure", help="Rank again after every tenth.", rich_help_panel=CURVE),
    ] = False
    random_orders: Annotated[
        int, typer.Option(help="Random orders beside it.", rich_help_panel=CURVE)
    ] = 3
    tolerance: Annotated[
        float, typer.Option(help="What the heads that go may cost.", rich_help_panel=CURVE)
    ] = 0.05


@flatten
def ablate(
    prompt: TextsOptions,
    model: TrainedOptions,
    output: OutputOptions,
    away: AwayOptions,
    measured: MetricOptions,
    walk: CurveOptions,
    probe: Annotated[
        bool, typer.Option("--probe", help="Repeat random tokens; loss on the second half.")
    ] = False,
    reference: Annotated[
        str | None,
        typer.Option(help="For the method mean: texts, one a line.", metavar="FILE"),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", help="Processes.")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(
            help="Run on Ray: local, or the ADDRESS of a cluster (ray://host:10001).",
            metavar="ADDRESS",
        ),
    ] = None,
    batch_tokens: Annotated[
        int | None,
        typer.Option(help="Tokens that run at once at most.", show_default="by memory"),
    ] = None,
    top: Annotated[
        int | None, typer.Option(help="Only the first N rows of the table.", metavar="N", min=1)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.ablate/1).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, a line a group.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Also draw it: a .png, .svg or .pdf file.", metavar="FILE"),
    ] = None,
) -> None:
    """Take heads away and see what that costs: does anyone need them?

    [bold]Examples[/]

      attnviz ablate "The keys to the cabinet are on the table because the keys were lost"

      attnviz ablate --lines sentences.txt --model gpt2 --method mean --gradient --plot heads.png

      attnviz ablate --probe --heads "3.0+3.1+3.3+3.5, role:induction"

      attnviz ablate "The doctor asked the nurse to help" --answer her --against him

      attnviz ablate --lines sentences.txt --curve --plot curve.svg
    """
    from attnviz import evidence, files
    from attnviz.ablation.settings import AblationSettings
    from attnviz.notebook import picture_format
    from attnviz.render.ablation import tables

    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    if plot is not None:
        picture_format(plot)
        files.check_writable(plot)
    options = asdict(away) | asdict(measured) | asdict(walk)
    settings = AblationSettings(**options, jobs=jobs, ray=ray, batch_tokens=batch_tokens)
    settings.check()
    looks = (
        None
        if probe and not prompt.given()
        else prompt.looks(model, seed=away.seed if prompt.draws else None, quiet=output.quiet)
    )
    others = None if reference is None else TextsOptions(lines=reference).looks(model)
    with Stages(output.quiet) as stages:
        report = evidence.ablate(
            looks,
            probe=probe,
            reference=others,
            progress=stages.show,
            settings=settings,
            **model.settings(),
        )
    if plot is not None:
        report.save(plot)
    if json or csv:
        console.put((tables.ablation_json if json else tables.ablation_csv)(report))
        return
    _print(report, top, output.quiet)


def _print(report: object, top: int | None, quiet: bool) -> None:
    from attnviz.effects import AblationReport, affordable_share
    from attnviz.render.ablation import terminal
    from attnviz.render.terminal import Line

    assert isinstance(report, AblationReport)
    screen = console.stdout()
    screen.print(terminal.EffectsGrid(report))
    ranked = report.ranked()[: top or len(report.effects)]
    screen.print(terminal.effects_table(report, ranked))
    if report.by_position:
        screen.print(terminal.TextByPosition(report, ranked[:8]))
    if report.curve:
        screen.print(terminal.curve_table(report))
        share = affordable_share(report.curve, report.tolerance or 0.0, report.worse)
        if share is not None:
            order = report.curve[0].order
            screen.print(
                f"{share:.0%} of the heads can go, by {order}, before it costs more than "
                f"{report.tolerance:g} {report.unit}"
            )
    screen.print("")
    screen.print(Line(terminal.closing(report), "dim"))
    console.note(report.notes, quiet)
