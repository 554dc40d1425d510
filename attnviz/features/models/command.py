"""``attnviz models``: what can be used right now."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from attnviz.cli import console, voice


def models(
    json: Annotated[bool, typer.Option("--json", help="Print JSON (attnviz.models/1).")] = False,
) -> None:
    """List the models on this machine: bundled ones, the hub's cache, a fresh layer.

    [bold]Examples[/]

      attnviz models

      attnviz models --json | jq -r '.models[] | select(.usable) | .name'
    """
    from attnviz.features.models import terminal
    from attnviz.features.models.function import models as listed

    found = [replace(entry, note=voice.words(entry.note)) for entry in listed()]
    if json:
        console.put(terminal.models_json(found))
        return
    console.stdout().print(terminal.models_table(found))
