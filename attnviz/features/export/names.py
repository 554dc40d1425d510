"""Names of folders and files: readable, stable, and safe on every file system."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from attnviz.core.heads import SITE_PREFIX, Head, Layout, SiteKind

LAYOUTS = ("heads", "layers", "grid", "overview")
"""What a picture can hold: a head, a layer's heads, the chosen heads, all as a mosaic."""

FOLDER = re.compile(r"[0-9]{4,}(-[a-z0-9-]+)?")  # what an input's folder is called

SAFE = re.compile(FOLDER.pattern + r"/[A-Za-z0-9-]+\.[a-z]+")
"""What every name that is written matches; anything else is never read, written or removed."""

_WORDS, _LONGEST = 4, 32


def slug(text: str) -> str:
    """Return the first words of a text in lower-case ASCII letters and digits; may be empty."""
    plain = unicodedata.normalize("NFKD", text[:400]).encode("ascii", "ignore").decode().lower()
    return "-".join(re.findall(r"[a-z0-9]+", plain)[:_WORDS])[:_LONGEST].strip("-")


def folder(number: int, name: str) -> str:
    """Name an input's folder: its number, which alone makes it unique, and words to know it by."""
    words = slug(name)
    return f"{number:04d}-{words}" if words else f"{number:04d}"


def prefix(kind: SiteKind, layout: Layout) -> str:
    """Return what tells kinds of sites apart in file names, where a model has several."""
    return f"{SITE_PREFIX[kind]}-" if len(layout.kinds) > 1 else ""


def stem(kind: str, heads: Sequence[Head], layout: Layout) -> str:
    """Name a picture without its suffix: ``L04H11``, ``L04``, ``cross-grid``, ``overview``."""
    first = heads[0]
    before = prefix(first.site.kind, layout)
    if kind in ("heads", "layers") and layout.mean:
        part = {"heads": f"L{first.layer:02d}-", "layers": f"H{first.index:02d}-"}
        return f"{before}{part.get(layout.mean, '') if kind == 'heads' else ''}mean"
    if kind == "heads":
        return f"{before}L{first.layer:02d}H{first.index:02d}"
    if kind == "layers":
        return f"{before}L{first.layer:02d}"
    return f"{before}{kind}"
