"""The component sheet: whatever pages share, in every state, on one page."""

from __future__ import annotations

from pathlib import Path

from attnviz.core.provenance import Made
from attnviz.drawing.grid import SCHEMES
from attnviz.drawing.palette import DEFAULT_PALETTE, anchors
from attnviz.web.page import html_page, parts, safe_json


def sheet(folder: Path) -> Path:
    """The page, written into a folder."""
    template, style, script = parts(__package__, "main")
    signed = {scheme: list(colors) for scheme, colors in SCHEMES.items()}
    data = safe_json({"palette": list(anchors(DEFAULT_PALETTE)), "signed": signed})
    page = html_page(
        template, title="Components of the pages", style=style, script=script, of=Made.now(),
        still="", data=data,
    )  # fmt: skip
    path = folder / "sheet.html"
    path.write_bytes(page)
    return path
