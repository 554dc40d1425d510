"""Pages that lie in one folder: an index beside them, and links from each, all relative.

A folder may also be one page alone with a card: a static Space of Hugging Face.

Each page has a line in its footer with a link back to the index, and with one to every head of its
model that a page of the folder shows row by row over a corpus.
"""

from __future__ import annotations

import html
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path
from urllib.parse import quote

from attnviz import files
from attnviz.core.provenance import Made
from attnviz.errors import OutputError, system_errors
from attnviz.web.page import html_page, shared_style
from attnviz.web.written import page_title, read_made, read_page

INDEXES = ("index.html", "pages.html")
"""What the index is called; the second where a page of another kind has the first name."""

_MADE = re.compile(rb'<p id="made"')
_LINE = re.compile(rb'<p id="folder" class="small">.*?</p>\n', re.DOTALL)
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


@dataclass(frozen=True, slots=True)
class KeptPage:
    """A page of a folder."""

    path: Path  # of its file
    title: str  # of the page
    made: Made  # what made it
    heads: tuple[str, ...]  # that it shows row by row


def keep(folder: Path, name: str, save: Callable[[Path], object]) -> Path:
    """Save a page in a folder, and write the folder's index and the links in its pages anew."""
    index = _index(folder)
    path = _free(folder, name)
    save(path)
    pages = list(_pages(folder, index))
    for page in pages:
        _link(page, index, _rows(page, pages))
    files.write(index, _listing(folder, pages))
    return path


def _index(folder: Path) -> Path:
    """Return the index: what is there already, or the first name that no other page has."""
    for name in INDEXES:
        path = folder / name
        if not path.exists() or _OURS in files.contents(path, _LARGEST):
            return path
    return folder / INDEXES[-1]


def _free(folder: Path, name: str) -> Path:
    """Return the file for a page: a new one, or that of the same command."""
    command, number = Made.now().command, 1
    while True:
        path = folder / (f"{name}.html" if number == 1 else f"{name}-{number}.html")
        page = _known(path) if path.exists() else None
        if not path.exists() or (page is not None and page.made.command == command):
            return path
        number += 1


def _pages(folder: Path, index: Path) -> Iterator[KeptPage]:
    for path in sorted(folder.glob("*.html")):
        page = _known(path) if path != index and path.is_file() else None
        if page is not None:
            yield page


def _known(path: Path) -> KeptPage | None:
    """Return a page of a file; None for a file of something else."""
    content = files.contents(path, _LARGEST)
    document, title = read_page(content) or {}, page_title(content)
    made = read_made(document)
    try:
        rows = (document.get("distribution") or {}).get("heads", ())
        heads = tuple(str(head["head"]) for head in rows)
    except (AttributeError, KeyError, TypeError):
        return None
    if title is None or made is None:
        return None
    return KeptPage(path, title, made, heads)


def _rows(page: KeptPage, pages: Sequence[KeptPage]) -> dict[str, str]:
    """Where each head of a page's model is shown row by row; nothing for such a page itself."""
    addresses: dict[str, str] = {}
    for neighbour in [] if page.heads else pages:
        if (neighbour.made.model, neighbour.made.hash) == (page.made.model, page.made.hash):
            for head in neighbour.heads:
                addresses.setdefault(
                    head, f"{quote(os.fsencode(neighbour.path.name))}#{quote(head)}"
                )
    return addresses


def _link(page: KeptPage, index: Path, rows: Mapping[str, str]) -> None:
    """Write the line with links in a page, where it is another one."""
    links = [f'<a href="{index.name}">all pages of this folder</a>']
    if rows:
        heads = " ".join(
            f'<a href="{address}" data-head="{html.escape(head)}">{html.escape(head)}</a>'
            for head, address in rows.items()
        )
        links.append(f"heads over many texts: {heads}")
    line = f'<p id="folder" class="small">{" · ".join(links)}</p>\n'.encode()
    content = files.contents(page.path, _LARGEST)
    linked = _MADE.sub(lambda match: line + match[0], _LINE.sub(b"", content, count=1), count=1)
    if linked != content:
        files.write(page.path, linked)


def _listing(folder: Path, pages: Sequence[KeptPage]) -> bytes:
    """Return the index: by model, each page with its title and what made it."""
    by_model: dict[str, list[str]] = {}
    for page in pages:
        origin = " · ".join((page.made.command, page.made.date))
        by_model.setdefault(page.made.model, []).append(
            f'<li><a href="{quote(os.fsencode(page.path.name))}">{html.escape(page.title)}</a> '
            f'<span class="small">{html.escape(origin)}</span></li>\n'
        )
    parts = (
        f"<h2>{html.escape(model)}</h2>\n<ul>\n{''.join(lines)}</ul>\n"
        for model, lines in sorted(by_model.items())
    )
    return html_page(
        _PAGE, title=f"Pages in {folder.resolve().name}", style=shared_style(), script="",
        of=Made.now(*sorted(by_model)), still="", list="".join(parts),
    )  # fmt: skip


CARD = "README.md"
_BY = "made with attnviz"
_WHAT = {
    "live": "the model itself, which runs as you type, with every head's map and switch.",
    "view": "every head on some texts, as maps, lines and cards.",
    "atlas": "everything that was measured of every head of a model.",
}
"""What the page of a command shows."""


def check_space(folder: Path) -> None:
    """Raise OutputError for a folder that no Space can be written to, before any work is done.

    Hidden files (``.git``) and what an earlier run wrote may be there, and nothing else: all that
    lies in a Space's folder is published.
    """
    files.check_folder(folder)
    with system_errors(OutputError, f"cannot write into {folder}"):
        entries = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        names = [name for name in entries if not name.startswith(".")]
        ours = CARD in names and _BY.encode() in files.contents(folder / CARD)
    extra = [name for name in names if not ours or name not in (CARD, INDEXES[0])]
    if extra:
        raise OutputError(
            f"{folder} holds {', '.join(extra[:3])}, which no Space of attnviz has; choose an "
            "empty folder, or remove that first"
        )


def space(
    folder: Path, command: str, save: Callable[[Path], object], licences: Mapping[str, str]
) -> None:
    """Write a static Space of Hugging Face: a page, and its card with the header that is asked for.

    ``licences`` are those of models that are known, by the names under which these are loaded.
    """
    check_space(folder)
    with system_errors(OutputError, f"cannot write into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    save(folder / INDEXES[0])
    content = files.contents(folder / INDEXES[0], _LARGEST)
    origin = read_made(read_page(content) or {}) or Made.now()
    title = page_title(content) or command
    licence = licences.get(origin.model_typed, "")
    heading = " ".join(re.sub(r"[<>`*_\[\]#]", " ", title).split())
    card = resources(__package__).joinpath("space.md").read_text("utf-8").format(
        title=json.dumps(" ".join(title.split()), ensure_ascii=False), heading=heading, by=_BY,
        what=_WHAT[command], licence=licence or "unknown", version=origin.version, command=command,
        date=origin.date, model=f"{origin.model or 'handed over'} {origin.hash[:12]}".strip(),
        terms=licence or "the model's holds for its weights; put it into the header, `license:`",
    )  # fmt: skip
    files.write(folder / CARD, card.encode())
