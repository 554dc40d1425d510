"""``attnviz explain``: why did the model say that?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import ending
from attnviz.cli.flattening import flatten
from attnviz.cli.options import InputOptions, OutputOptions, TrainedOptions
from attnviz.cli.stages import Stages


@flatten
def explain(
    prompt: InputOptions,
    model: TrainedOptions,
    output: OutputOptions,
    answer: Annotated[
        str | None,
        typer.Option(help="The word to explain.", metavar="WORD", show_default="the most probable"),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="The word that the answer is compared with.",
            metavar="WORD",
            show_default="the most probable other word",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of resample ablation and of sampling.", metavar="N")
    ] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.explain/1).")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV, one line per head.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="Also write a page (.html), a picture (.png, .svg, .pdf), .csv or .json.",
            metavar="FILE",
        ),
    ] = None,
) -> None:
    """Explain why the model predicts a word: who votes for it, how they find it, what it needs.

    [bold]Examples[/]

      attnviz explain "the cat river moon stone bread the cat river moon stone"

      attnviz explain "the cat river moon stone bread the cat river moon stone" -o why.html

      attnviz explain "The keys to the cabinet" --answer are --against is --model gpt2

      attnviz explain "The cat sat on the [MASK]." --model demo-bert
    """
    from attnviz.features.explain import function
    from attnviz.features.explain.result import Explain

    ending.check(Explain, json, csv, out)
    look = prompt.look(model, seed=seed, quiet=output.quiet)
    with Stages(output.quiet) as stages:
        found = function.explain(
            look, answer=answer, against=against, seed=seed, progress=stages.show,
            **model.settings(),
        )  # fmt: skip
    if out is not None:
        found.save(out)
    ending.show(found, output.quiet, json=json, csv=csv, wrote=out)
