"""``attnviz capture``: attention weights into a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import console
from attnviz.cli.flattening import flatten
from attnviz.cli.options import WEIGH_HELP, WEIGHTS, InputOptions, ModelOptions, OutputOptions


@flatten
def capture(
    prompt: InputOptions,
    model: ModelOptions,
    output: OutputOptions,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The .npz or .safetensors file.", metavar="FILE")
    ],
    weigh: Annotated[str, typer.Option(help=WEIGH_HELP, metavar="QUANTITY")] = WEIGHTS,
) -> None:
    """Write the attention weights of all heads to a file that --recorded reads.

    [bold]Examples[/]

      attnviz capture "The cat sat on the mat" -o cat.npz

      attnviz heads --recorded cat.npz
    """
    from attnviz import files
    from attnviz.captures import look as looking
    from attnviz.captures.captured import capture_path
    from attnviz.captures.files import write_capture
    from attnviz.captures.notes import notes
    from attnviz.drawing import terminal

    capture_path(out)
    files.check_writable(out)
    look, settings = prompt.asked(model, quiet=output.quiet)
    with console.waiting("running the model", output.quiet):
        captured = looking.capture(look, weigh=weigh, **settings)
        write_capture(captured, out)
    if not output.quiet:
        console.wrote(out)
        console.stdout().print(terminal.closing_line(captured))
    console.note(notes(captured.inputs, captured.source, captured.empty_rows), output.quiet)
