"""``attnviz live``: the model itself in a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import browser, console
from attnviz.cli.flattening import flatten
from attnviz.cli.options import OutputOptions
from attnviz.cli.voice import option
from attnviz.errors import UsageError


@flatten
def live(
    output: OutputOptions,
    text: Annotated[
        str | None,
        typer.Argument(help="The text that the page opens with.", show_default=False),
    ] = None,
    model: Annotated[
        str,
        typer.Option(help="A bundled model, a folder or a hub id: BERT, GPT-2 and similar models."),
    ] = "demo-gpt2",
    out: Annotated[Path | None, browser.OUT] = None,
    bits: Annotated[
        int, typer.Option(help="Bits per weight of the model: 16, or 8 for half the size.")
    ] = 16,
    max_mb: Annotated[
        float, typer.Option(help="Largest size of the page, in megabytes.", min=0.1)
    ] = 100.0,
    title: Annotated[
        str | None, typer.Option(help="Title of the page; the model by default.")
    ] = None,
    chat: Annotated[str | None, typer.Option(hidden=True)] = None,
    span: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
    spans: Annotated[str | None, typer.Option(hidden=True)] = None,
    only: Annotated[
        str | None,
        typer.Option(
            help="Heads that are on when it opens: 2.0,3.*, or @circuit.json of attnviz patch.",
            metavar="HEADS",
            show_default="all",
        ),
    ] = None,
) -> None:
    """Put the model itself into one offline page: type, switch heads off, let it write.

    Every map and the next words change as you type. Nothing is sent anywhere: the page holds the
    network and its tokenizer, and runs them.

    [bold]Examples[/]

      attnviz live -o page.html

      attnviz live "The cat sat on the [MASK]." --model demo-bert -o page.html
    """
    from attnviz.features.live import function as inpage

    for name, given in (("chat", chat), ("span", span), ("spans", spans)):
        if given:
            raise UsageError(
                "live has no {}: its text changes as you type, and a span is a part of one text; "
                "use attnviz view", option(name),
            )  # fmt: skip
    browser.check(out)
    with console.waiting("making the page", output.quiet):
        page = inpage.live(
            inpage.TEXT if text is None else text,
            model=model,
            bits=bits,
            max_mb=max_mb,
            title=title,
            only=only,
        )
    browser.deliver(page, out, output.quiet)
