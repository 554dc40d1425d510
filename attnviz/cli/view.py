"""``attnviz view``: every head in one offline page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from attnviz.cli import console
from attnviz.cli.options import (
    SELECT_HELP,
    WEIGH_HELP,
    WEIGHTS,
    WITHOUT_HELP,
    ModelOptions,
    OutputOptions,
    TextsOptions,
    flatten,
)

_STARTS = 5.0
"""Seconds after which a browser that is still starting counts as there."""
LARGE_PAGE = 16e6
"""Pages above so many bytes open slowly, which is said."""


@flatten
def view(
    prompt: TextsOptions,
    model: ModelOptions,
    output: OutputOptions,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The .html file; without it a temporary one opens in the browser.",
            metavar="FILE",
        ),
    ] = None,
    select: Annotated[
        str | None, typer.Option("--select", "-s", help=SELECT_HELP, metavar="HEADS")
    ] = None,
    without: Annotated[str | None, typer.Option(help=WITHOUT_HELP, metavar="HEADS")] = None,
    weigh: Annotated[str, typer.Option(help=WEIGH_HELP, metavar="QUANTITY")] = WEIGHTS,
    exact: Annotated[
        bool, typer.Option("--exact", help="Weights in 16 bits instead of 8: twice the size.")
    ] = False,
    max_mb: Annotated[
        float, typer.Option(help="The largest page to make, in megabytes.", min=0.1)
    ] = 100.0,
    title: Annotated[str | None, typer.Option(help="Of the page; the model by default.")] = None,
) -> None:
    """Put every head into one offline page to explore: maps, lines, the text itself, head cards.

    With --lines each line that is not blank is a text of its own, to pick in the page.

    [bold]Examples[/]

      attnviz view "The animal didn't cross the street because it was too tired" -o page.html

      attnviz view "The cat sat." --model bert-base-uncased --pair "It slept." -o page.html

      attnviz view --lines sentences.txt --model gpt2 --select "0-5.*" -o page.html
    """
    from attnviz import api, files
    from attnviz.notebook import page_path
    from attnviz.render import terminal

    if out is not None:
        page_path(out)
        files.check_writable(out)
    looks = prompt.looks(model)
    settings = model.settings(context=prompt.context)
    settings |= {"select": select, "without": without, "weigh": weigh}
    with console.waiting("making the page", output.quiet):
        page = api.view(looks, exact=exact, title=title, max_mb=max_mb, **settings)
        saved = page.save(_temporary() if out is None else out)
    screen = console.stdout()
    if not output.quiet or out is None:
        console.wrote(saved, f" ({page.size})")
    if not output.quiet:
        screen.print(terminal.closing_line(page.captures[0]))
    if out is None and not _opened(saved):
        console.note(["no browser answered; open the file yourself"], output.quiet)
    notes = dict.fromkeys(note for one in page.captures for note in one.inputs.notes)
    if len(page.page) > LARGE_PAGE:
        notes[f"a page of {page.size} opens slowly; --select makes it smaller"] = None
    console.note(notes, output.quiet)


def _opened(page: Path) -> bool:
    """Whether a browser took the page; what its starter says is kept from the terminal."""
    import subprocess

    if sys.platform == "win32":
        return bool(typer.launch(page.as_uri()) == 0)
    starter = "open" if sys.platform == "darwin" else "xdg-open"
    try:
        started = subprocess.Popen(
            [starter, page.as_uri()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return started.wait(_STARTS) == 0
    except subprocess.TimeoutExpired:  # it has become the browser
        return True
    except OSError:
        return False


def _temporary() -> Path:
    """A new file that stays after the program ends, for the browser to read."""
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="attnviz-", suffix=".html", delete=False) as file:
        return Path(file.name)
