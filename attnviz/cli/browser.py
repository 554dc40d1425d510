"""Showing a page in the user's browser."""

from __future__ import annotations

import sys
from pathlib import Path

import typer

_STARTS = 5.0
"""Seconds after which a browser that is still starting counts as there."""


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


def temporary() -> Path:
    """A new file that stays after the program ends, for the browser to read."""
    import tempfile

    with tempfile.NamedTemporaryFile(prefix="attnviz-", suffix=".html", delete=False) as file:
        return Path(file.name)
