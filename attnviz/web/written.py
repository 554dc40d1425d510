"""Pages that are made: one self-contained file, saved or shown in a notebook."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import ClassVar

from attnviz import files
from attnviz.core.provenance import Made
from attnviz.web.embedded import PAGE


@dataclass(frozen=True, eq=False)
class Page:
    """One self-contained HTML file; it asks for nothing: no server, no network.

    ``page`` is the whole file, ``made`` what made one that was read, ``command`` what makes such
    pages.
    """

    command: ClassVar[str] = "page"

    page: bytes = field(compare=False)
    title: str
    made: Made | None = field(default=None, kw_only=True)

    def to_json(self) -> str:
        """What the page says of itself: its title, and what made it."""
        made = {} if self.made is None else self.made.to_dict()
        return json.dumps({"schema": PAGE, "title": self.title, "made": made}, ensure_ascii=False)

    def save(self, path: str | Path) -> Path:
        """Write the page; its name must end in .html or .htm."""
        path = Path(path)
        page_path(path)
        files.write(path, self.page)
        return path

    @property
    def size(self) -> str:
        """Of the page, for people: ``2.1 MB``."""
        return files.human_bytes(len(self.page))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.title!r}, {self.size}>"

    def _repr_html_(self) -> str:
        return framed(self.page, self.title)


def page_path(path: Path) -> None:
    """UsageError for a file that a browser would not open as a page."""
    files.check_suffix(path, (".html", ".htm"))


def framed(page: bytes, title: str) -> str:
    """A page as a part of another, as notebooks show it."""
    inside = escape(page.decode("utf-8"), quote=True)
    return (
        f'<iframe data-attnviz="1" title="{escape(title)}" srcdoc="{inside}" '
        'style="width:100%;height:760px;border:1px solid #ccc;border-radius:6px"></iframe>'
    )
