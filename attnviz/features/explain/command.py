"""``attnviz explain``: why did the model say that?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import console
from attnviz.cli.flattening import flatten
from attnviz.cli.options import InputOptions, OutputOptions, TrainedOptions
from attnviz.cli.paper_options import PaperOptions


@flatten
def explain(
    prompt: InputOptions,
    model: TrainedOptions,
    output: OutputOptions,
    paper: PaperOptions,
    answer: Annotated[
        str | None,
        typer.Option(
            help="The word to explain (#391: the token of that id).",
            metavar="WORD",
            show_default="the most probable",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="The word to compare it with.",
            metavar="WORD",
            show_default="the most probable beside it",
        ),
    ] = None,
    count: Annotated[
        int, typer.Option("--count", help="Number of heads to tell about.", metavar="N", min=1)
    ] = 3,
    seed: Annotated[int | None, typer.Option(help="Seed of sampling (--generate).")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.explain/1).")] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV, one line per ablation and method.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Also write it: a .html, .png, .svg or .pdf file.", metavar="FILE"
        ),
    ] = None,
) -> None:
    """Explain one prediction: which heads count most, what they look at, and what without them.

    Every sentence says how it was measured, and the end what none of it proves.

    [bold]Examples[/]

      attnviz explain "Mary gave the old blue clock to Peter, and later Mary gave the old blue"

      attnviz explain "The keys to the cabinet" --answer are --against is --model gpt2

      attnviz explain "The cat sat on the [MASK]." --model demo-bert -o why.html
    """
    drawn = paper.options()
    from attnviz import files
    from attnviz.features.explain import function
    from attnviz.features.explain.result import Explanation

    if json and csv:
        raise typer.BadParameter("--json and --csv exclude each other")
    if out is not None:
        Explanation.check_suffix(out)
        files.check_writable(out)
    look = prompt.look(model, seed=seed, quiet=output.quiet)
    with console.waiting("running the model", output.quiet):
        found = function.explain(
            look, answer=answer, against=against, count=count, **model.settings()
        )
    if out is not None:
        found.save(out, **drawn)
    if json or csv:
        console.put(found.to_json() if json else found.to_csv())
        return
    from attnviz.features.explain import terminal

    screen = console.stdout()
    for part in terminal.parts(found):
        screen.print(part)
    console.note(found.notes, output.quiet)
