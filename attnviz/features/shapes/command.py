"""``attnviz shapes``: how a tensor walks through attention, what it costs, and why."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys

import typer

from attnviz.attention.spec import RunSizes
from attnviz.cli import console, declared
from attnviz.cli.console import DIFFERS
from attnviz.cli.declared import command
from attnviz.features.shapes import function as answers
from attnviz.features.shapes import settings
from attnviz.features.shapes.result import Answer
from attnviz.features.shapes.table import Paint, as_csv, as_markdown, as_text

PIPE_WIDTH = 110


@command
def shapes(
    layer: settings.Layer,
    run: RunSizes,
    model: settings.Model,
    view: settings.ViewSettings,
    example: settings.Example,
    output: settings.ShapesOutput,
) -> None:
    """Show the shape of every step of attention, why it is so, and what it costs.

    [bold]Examples[/]

      attnviz shapes --d-model 512 --heads 8 --explain

      attnviz shapes --model llama3-70b --show compare:80GB --dtype bf16

      attnviz shapes --show numbers "cat sat on mat" --causal
    """
    answer = answers.answer_of(answers.Request(layer, run, model, view, example, output))
    notes = tuple(console.one_line(declared.words(note)) for note in answer.notes)
    title = console.one_line(answer.title)
    _print(dataclasses.replace(answer, title=title, notes=notes), output)
    if getattr(answer, "equal", True) is False:
        raise typer.Exit(DIFFERS)


def _print(answer: Answer, output: settings.ShapesOutput) -> None:
    if output.json:
        console.put(answer.to_json())
    elif output.csv:
        console.put(as_csv(answer))
    elif output.markdown:
        console.put(as_markdown(answer))
    else:
        encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
        paint = Paint(colour=_colour(), ascii_only=encoding not in ("utf8", "cp65001"))
        width = max(40, shutil.get_terminal_size((PIPE_WIDTH, 24)).columns)
        sys.stdout.write(as_text(answer, width, paint))


def _colour() -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
