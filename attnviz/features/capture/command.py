"""``attnviz capture``: attention weights into a file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from attnviz import files
from attnviz.captures.settings import KeptSettings
from attnviz.cli import console
from attnviz.cli.declared import command
from attnviz.cli.options import InputOptions, ModelOptions, Quiet
from attnviz.cli.output import FilesOutput
from attnviz.core.settings import Settings, like


@dataclass(frozen=True)
class CaptureFiles(Settings):
    """Where the capture goes."""

    out: tuple[Path, ...] = like(
        FilesOutput,
        "out",
        default=...,
        help="The .npz or .safetensors file, which {recorded} reads, or .csv or .json; repeatable.",
    )


@command
def capture(
    prompt: InputOptions,
    maps: KeptSettings,
    model: ModelOptions,
    written: CaptureFiles,
    quiet: Quiet,
) -> None:
    """Write the attention weights of heads to a file that --recorded reads.

    [bold]Examples[/]

      attnviz capture "The cat sat on the mat" -o cat.npz

      attnviz heads --recorded sample_inputs/recorded.npz

      attnviz capture "The keyring was unusable" --words --mean heads -o w.csv
    """
    from attnviz.captures import inputs
    from attnviz.captures.captured import capture_path, notes
    from attnviz.captures.files import write_capture
    from attnviz.drawing import terminal

    for path in written.out:
        capture_path(path)
        files.check_writable(path)
    text = prompt.read(model, quiet=quiet.quiet)
    with console.waiting("running the model", quiet.quiet):
        captured = inputs.capture(text, maps=maps, model=model.chosen(pair=prompt.pair))
        for path in written.out:
            write_capture(captured, path)
    if not quiet.quiet:
        for path in written.out:
            console.wrote(path)
        console.stdout().print(terminal.closing_line(captured))
    console.note(notes(captured.inputs, captured.empty_rows), quiet.quiet)
