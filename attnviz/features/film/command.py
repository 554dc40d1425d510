"""``attnviz film``: when do heads form?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from attnviz.cli import ending
from attnviz.cli.exits import Interrupted
from attnviz.cli.flattening import flatten
from attnviz.cli.options import JOBS, OutputOptions
from attnviz.cli.paper_options import PaperOptions
from attnviz.cli.stages import Stages
from attnviz.errors import UsageError

INPUT, MODEL, MEASURE, RESULT = "Input", "Model", "What is measured", "Result"


def _option(help: str, panel: str, *names: str, **more: Any) -> Any:
    return typer.Option(*names, help=help, rich_help_panel=panel, **more)


@flatten
def film(
    output: OutputOptions,
    paper: PaperOptions,
    file: Annotated[
        Path | None,
        typer.Argument(
            help="A film that is there already: its JSON, or a folder of measured steps (--keep, "
            "av.track, av.HeadsCallback).",
            metavar="[FILE]",
            show_default=False,
        ),
    ] = None,
    lines: Annotated[
        list[str] | None,
        _option(
            "Texts: one per line, .jsonl, .csv, .tsv or .parquet; repeatable.",
            INPUT,
            "--lines",
            metavar="FILE",
        ),
    ] = None,
    column: Annotated[
        str | None, _option("The column or field that holds the text.", INPUT, metavar="NAME")
    ] = None,
    whole: Annotated[
        bool,
        _option("Read each file as one text, in windows of the model's length.", INPUT, "--whole"),
    ] = False,
    special_tokens: Annotated[
        bool,
        _option(
            "Leave out the tokens that the tokenizer adds.",
            INPUT,
            " /--no-special-tokens",
            show_default=False,
        ),
    ] = True,
    limit: Annotated[
        int | None, _option("Take at most the first N texts.", INPUT, min=1, metavar="N")
    ] = None,
    model: Annotated[
        list[str] | None,
        _option(
            "The checkpoints: a pattern of folders ('runs/step-*'), or revisions on the hub "
            "(name@step1000,step2000); repeatable.",
            MODEL,
            "--model",
            "-m",
            metavar="PATTERN",
        ),
    ] = None,
    device: Annotated[str, _option("auto, cpu, cuda, cuda:1 or mps.", MODEL)] = "auto",
    dtype: Annotated[str, _option("auto, float32, bfloat16 or float16.", MODEL)] = "auto",
    score: Annotated[
        str | None,
        _option(
            "Only these scores, comma-separated.",
            MEASURE,
            "--scores",
            metavar="NAMES",
            show_default="all",
        ),
    ] = None,
    probe: Annotated[
        bool,
        _option(
            "Measure induction and duplicate tokens on repeated random tokens.", MEASURE, "--probe"
        ),
    ] = False,
    ablate: Annotated[
        bool, _option("Also ablate every head, on the first 64 texts.", MEASURE, "--ablate")
    ] = False,
    conllu: Annotated[
        list[str] | None,
        _option("A treebank, for syntactic roles; repeatable.", MEASURE, metavar="FILE"),
    ] = None,
    gap: Annotated[
        list[str] | None,
        _option("Pronouns, for roles of coreference; repeatable.", MEASURE, metavar="FILE"),
    ] = None,
    show: Annotated[
        int,
        _option(
            "Tokens of the first text whose maps are kept; 0 for none.", MEASURE, min=0, metavar="N"
        ),
    ] = 24,
    seed: Annotated[int, _option("Seed of the bootstrap over texts.", MEASURE)] = 0,
    baseline: Annotated[
        list[str] | None,
        _option(
            "A loss to compare with, in nats: bigram=1.46; repeatable.", RESULT, metavar="NAME=NATS"
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        _option(
            "Keep every step in a folder: the same command resumes from it.",
            RESULT,
            metavar="FOLDER",
        ),
    ] = None,
    jobs: Annotated[int, JOBS] = 1,
    out: Annotated[
        Path | None,
        _option(
            "Also write it: .html, .json, .csv, .png, .svg or .pdf.",
            RESULT,
            "--out",
            "-o",
            metavar="FILE",
        ),
    ] = None,
    everything: Annotated[
        bool, _option("List all heads, not only those with a role.", RESULT, "--all")
    ] = False,
    json: Annotated[bool, _option("Print JSON (attnviz.film/1).", RESULT, "--json")] = False,
    csv: Annotated[
        bool, _option("Print CSV, a line for each step, head and number.", RESULT, "--csv")
    ] = False,
    plot: Annotated[Path | None, _option(ending.WRITTEN, RESULT, metavar="FILE")] = None,
) -> None:
    """Show what every head does at every checkpoint of a training run, and when heads form.

    [bold]Examples[/]

      attnviz film --model 'runs/step-*' --lines corpus.txt -o film.html

      attnviz film --model 'EleutherAI/pythia-70m@step512,step2000' --lines corpus.txt --probe

      attnviz film sample_inputs/phases/repeats-2.json --plot film.png

      attnviz film run/heads
    """
    drawn = paper.options()
    from attnviz.features.film import function
    from attnviz.features.film.result import Film

    ending.check(Film, json, csv, plot, out)
    baselines = dict(_baseline(one) for one in baseline or ())
    if file is not None:
        if model or lines:
            raise UsageError("a film that is there already takes no --model and no --lines")
        found = function.read_film(file, baselines)
    elif not model or not lines:
        raise UsageError("give --model 'runs/step-*' and --lines FILE, or a film that is there")
    else:
        try:
            with Stages(output.quiet) as stages:
                found = function.film(
                    lines,
                    model=model,
                    column=column,
                    whole=whole,
                    special_tokens=special_tokens,
                    limit=limit,
                    scores=None if score is None else [one.strip() for one in score.split(",")],
                    probe=probe,
                    ablate=ablate,
                    conllu=conllu,
                    gap=gap,
                    show=show,
                    baselines=baselines,
                    seed=seed,
                    jobs=jobs,
                    keep=keep,
                    device=device,
                    dtype=dtype,
                    progress=stages.show,
                )
        except KeyboardInterrupt:
            hint = f"{keep} has what is done" if keep else "use --keep to keep what has been done"
            raise Interrupted(f"interrupted before two checkpoints were done; {hint}") from None
    for path in (out, plot):
        if path is not None:
            found.save(path, **drawn)
    ending.show(found, output.quiet, everything=everything, json=json, csv=csv, wrote=out)


def _baseline(text: str) -> tuple[str, float]:
    name, sign, value = text.rpartition("=")
    try:
        return name.strip(), float(value if sign and name.strip() else "?")
    except ValueError:
        raise UsageError(
            f"--baseline takes NAME=NATS, such as bigram=1.46, not {text[:40]!r}"
        ) from None
