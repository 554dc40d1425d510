"""``attnviz view``: every head in one offline page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import browser, console
from attnviz.cli.flattening import flatten
from attnviz.cli.options import (
    EVIDENCE,
    SELECT_HELP,
    WEIGH_HELP,
    WEIGHTS,
    WITHOUT_HELP,
    ModelOptions,
    OutputOptions,
    TextsOptions,
)
from attnviz.cli.stages import Stages

LARGE_PAGE = 16e6
"""Pages above so many bytes open slowly, which is said."""


@flatten
def view(
    prompt: TextsOptions,
    model: ModelOptions,
    output: OutputOptions,
    out: Annotated[Path | None, browser.OUT] = None,
    select: Annotated[
        str | None, typer.Option("--select", "-s", help=SELECT_HELP, metavar="HEADS")
    ] = None,
    top: Annotated[
        int | None,
        typer.Option(
            help="Of these the N heads that do something with the strongest evidence, for models "
            "of many heads.",
            min=1,
            metavar="N",
        ),
    ] = None,
    without: Annotated[
        str | None,
        typer.Option(
            help=f"{WITHOUT_HELP} With --against: from the first run alone.", metavar="HEADS"
        ),
    ] = None,
    weigh: Annotated[str, typer.Option(help=WEIGH_HELP, metavar="QUANTITY")] = WEIGHTS,
    rows: Annotated[
        str | None,
        typer.Option(
            help="Only these queries of a single text: tokens such as 4000-4400, or the name of a "
            "--span; in a page of its own kind, finer the smaller the part.",
            metavar="TOKENS",
        ),
    ] = None,
    keys: Annotated[
        str | None, typer.Option(help="Only these keys, as for --rows.", metavar="TOKENS")
    ] = None,
    why: Annotated[
        str | None,
        typer.Option(
            help="Heads whose queries and keys are stored too, to explain each of their weights.",
            metavar="HEADS",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Compare with this model on the same texts, without any ablation, or with "
            "this capture (.npz, .safetensors).",
            metavar="MODEL|FILE",
        ),
    ] = None,
    evidence: Annotated[list[Path] | None, EVIDENCE] = None,
    ablate: Annotated[
        bool,
        typer.Option("--ablate", help="Also ablate every head on these texts."),
    ] = False,
    exact: Annotated[
        bool | None,
        typer.Option(
            "--exact/--rounded",
            help="Weights in 16 bits, or in 8: half the size. By default in 16 up to 8 MB.",
            show_default=False,
        ),
    ] = None,
    max_mb: Annotated[
        float, typer.Option(help="Largest size of the page, in megabytes.", min=0.1)
    ] = 100.0,
    title: Annotated[
        str | None, typer.Option(help="Title of the page; the model by default.")
    ] = None,
) -> None:
    """Put every head into one offline page to explore: maps, lines, the text itself, head cards.

    With --lines each line that is not blank is a text of its own, to pick in the page.

    [bold]Examples[/]

      attnviz view "The animal didn't cross the street because it was too tired" -o page.html

      attnviz view "The cat sat." --model bert-base-uncased --pair "It slept." -o page.html

      attnviz view "The keys to the cabinet are on the table" --why "2.4, 3.*" -o page.html

      attnviz view "The cat sat." --model my-model --against my-model-tuned -o both.html

      attnviz view "The keys are on the table" --without 1.4 --against demo-gpt2 -o without.html

      attnviz view --file book.txt --model my-model --top 64 -o book.html

      attnviz view --file book.txt --model my-model --rows 4000-4400 -o part.html

      attnviz view --recorded before.npz --against after.npz -o both.html

      attnviz view --lines sentences.txt --model gpt2 --select "0-5.*" -o page.html

      attnviz view --lines sentences.txt --ablate --with gpt2.profile.json -o worth.html
    """
    from attnviz.drawing import terminal
    from attnviz.features.view import function as viewed

    browser.check(out)
    looks = prompt.looks(model, quiet=output.quiet)
    settings = model.settings(context=prompt.context, writing=prompt.generate is not None)
    settings |= {"select": select, "top": top, "without": without, "weigh": weigh, "why": why}
    settings |= {"rows": rows, "keys": keys, "against": against, "evidence": evidence}
    settings |= {"exact": exact, "title": title, "max_mb": max_mb}
    if ablate:
        with Stages(output.quiet) as stages:
            page = viewed.view(looks, ablate=True, progress=stages.show, **settings)
    else:
        with console.waiting("making the page", output.quiet) as tell:
            page = viewed.view(looks, progress=tell, **settings)
    browser.deliver(page, out, output.quiet)
    if not output.quiet:
        texts = page.captures[:: 1 if against is None else 2]
        console.stdout().print(terminal.closing_line(*texts))
    notes = dict.fromkeys(note for one in page.captures for note in one.inputs.notes)
    notes |= dict.fromkeys(page.notes)
    if len(page.page) > LARGE_PAGE:
        notes[f"a page of {page.size} opens slowly; --select makes it smaller"] = None
    console.note(notes, output.quiet)
