"""Pages that lie in one folder: an index beside them, and a link back from each, all relative."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from attnviz import files
from attnviz.core.made import Made
from attnviz.web.embedded import read_page
from attnviz.web.page import html_page, shared_style

INDEXES = ("index.html", "pages.html")
"""What the index is called; the second where a page of another kind has the first name."""

_TITLE = re.compile(rb"<title>(.*?)</title>", re.DOTALL)
_MADE = re.compile(rb'<p id="made"')
_OURS = b'<main id="pages" class="still">'
_PAGE = """<!doctype html>
<html lang="en">
{{head}}
</head>
<body>
<header><div class="title"><h1>{{title}}</h1></div></header>
<main id="pages" class="still">
{{list}}</main>
<script>{{script}}</script>
</body>
</html>
"""
_LARGEST = 200 << 20


def keep(folder: Path, name: str, save: Callable[[Path], object]) -> Path:
    """Save a page in a folder and write the index of the folder anew.

    Args:
        folder: where to.
        name: of the command; where a page of another text has the name, the next number follows.
        save: writes the page.

    Returns:
        The page.

    Raises:
        OutputError: it cannot be written.
    """
    index = _index(folder)
    path = _free(folder, name)
    save(path)
    line = f'<p><a href="{index.name}">all pages of this folder</a></p>\n'.encode()
    files.write(path, _MADE.sub(lambda made: line + made[0], files.contents(path, _LARGEST), 1))
    listed = [(page, *known) for page in _pages(folder, index) if (known := _known(page))]
    files.write(index, _listing(folder, listed))
    return path


def _index(folder: Path) -> Path:
    """The index: what is there already, or the first name that no other page has."""
    for name in INDEXES:
        path = folder / name
        if not path.exists() or _OURS in files.contents(path, _LARGEST):
            return path
    return folder / INDEXES[-1]


def _free(folder: Path, name: str) -> Path:
    """The file for a page: a new one, or that of the same command."""
    command, number = Made.now().command, 1
    while True:
        path = folder / (f"{name}.html" if number == 1 else f"{name}-{number}.html")
        known = _known(path) if path.exists() else None
        if not path.exists() or (known is not None and known[1].get("command") == command):
            return path
        number += 1


def _pages(folder: Path, index: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.html") if path != index and path.is_file())


def _known(path: Path) -> tuple[str, dict[str, Any]] | None:
    """The title of a page and what made it; None for a page of something else."""
    page = files.contents(path, _LARGEST)
    document, title = read_page(page), _TITLE.search(page)
    if title is None or not isinstance(document, dict) or "made" not in document:
        return None
    return html.unescape(title[1].decode("utf-8", "replace")), document["made"]


def _listing(folder: Path, listed: list[tuple[Path, str, dict[str, Any]]]) -> bytes:
    """The index: by model, each page with its title and what made it."""
    by_model: dict[str, list[str]] = {}
    for path, title, made in listed:
        said = " · ".join(str(made.get(part, "")) for part in ("command", "date"))
        by_model.setdefault(str(made.get("model", "")), []).append(
            f'<li><a href="{html.escape(path.name)}">{html.escape(title)}</a> '
            f'<span class="small">{html.escape(said)}</span></li>\n'
        )
    parts = (
        f"<h2>{html.escape(model)}</h2>\n<ul>\n{''.join(lines)}</ul>\n"
        for model, lines in sorted(by_model.items())
    )
    return html_page(
        _PAGE, title=f"Pages in {folder.resolve().name}", style=shared_style(), script="",
        of=Made.now(*sorted(by_model)), still="", list="".join(parts),
    )  # fmt: skip
