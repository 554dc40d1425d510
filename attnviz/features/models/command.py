"""``attnviz models``: what can be used right now."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from attnviz.cli import console, voice


def models(
    show: Annotated[
        str | None,
        typer.Option(
            help="Describe one model, without loading its weights: a bundled name, a folder or a "
            "hub id.",
            metavar="NAME",
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON (attnviz.models/1; of one, attnviz.model/1)."),
    ] = False,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV, one line per model; not with --show.")
    ] = False,
) -> None:
    """List the models on this machine: bundled ones, the hub's cache, a fresh layer.

    [bold]Examples[/]

      attnviz models

      attnviz models --show demo-gpt2

      attnviz models --json | jq -r '.models[] | select(.usable) | .name'
    """
    from attnviz.features.models import terminal
    from attnviz.features.models.function import models as listed
    from attnviz.features.models.function import show as described

    if csv and (json or show is not None):
        other = "--json" if json else "--show"
        raise typer.BadParameter(f"{other} and --csv exclude each other")
    if show is not None:
        card = described(show)
        if json:
            console.put(terminal.card_json(card))
            return
        for part in terminal.card_parts(card):
            console.stdout().print(part)
        return
    found = [replace(entry, note=voice.words(entry.note)) for entry in listed()]
    if json or csv:
        console.put(terminal.models_json(found) if json else terminal.models_csv(found))
        return
    console.stdout().print(terminal.models_table(found))
