"""The end of every command that makes a page: write it, or show it in the user's browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from attnviz.cli import console

if TYPE_CHECKING:
    from attnviz.drawing.forms import Shown
    from attnviz.web.written import Page

OUT = typer.Option(
    "--out",
    "-o",
    help="The .html file; without it a temporary one opens in the browser.",
    metavar="FILE",
)
_STARTS = 5.0
"""Seconds after which a browser that is still starting counts as there."""


def check(out: Path | None) -> None:
    """Before any work: UsageError or an error of the system where the page cannot be written."""
    from attnviz import files
    from attnviz.web.written import page_path

    if out is not None:
        page_path(out)
        files.check_writable(out)


def deliver(page: Page | Shown, out: Path | None, quiet: bool) -> None:
    """Write the page to ``out``, or to a temporary file that the browser is asked to open."""
    from attnviz.web.written import human

    saved = page.save(_temporary() if out is None else out)
    if not quiet or out is None:
        console.wrote(saved, f" ({human(saved.stat().st_size)})")
    if out is None and not opened(saved):
        console.note(["no browser could be opened; open the file yourself"], quiet)


def opened(page: Path) -> bool:
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
