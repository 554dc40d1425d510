"""The end of every command that makes a page: write it, or show it in the user's browser."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from os.path import isdir
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from attnviz.cli import console
from attnviz.cli.options import Quiet
from attnviz.cli.output import FilesOutput
from attnviz.core.settings import like

if TYPE_CHECKING:
    from attnviz.drawing.forms import Renderable
    from attnviz.web.written import Page

_STARTS = 5.0
"""Seconds after which a browser that is still starting counts as there."""


@dataclass(frozen=True)
class PageOutput(Quiet):
    """Where a page goes."""

    out: tuple[Path, ...] | None = like(
        FilesOutput, "out", help="The .html file; without it a temporary one opens in the browser."
    )

    def check_page(self) -> None:
        """Before any work: UsageError or OutputError where the page cannot be written."""
        from attnviz import files
        from attnviz.web.folder import INDEXES
        from attnviz.web.written import page_path

        for out in self.out or ():
            path = out / INDEXES[0] if isdir(out) else out
            page_path(path)
            files.check_writable(path)

    def deliver(self, page: Page | Renderable, *, show: bool = True) -> None:
        """Write the page, or a temporary file of it that the browser is asked to open."""
        from attnviz.web.folder import keep

        for path in self.out or (_temporary(),):
            saved = keep(path, page.command, page.save) if isdir(path) else page.save(path)
            if not self.quiet or self.out is None:
                console.wrote(saved)
            if self.out is None and show and not open_page(saved):
                console.note(["no browser could be opened; open the file yourself"], self.quiet)


def open_page(page: Path) -> bool:
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
