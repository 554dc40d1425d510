"""Fonts in a PDF: glyphs and what draws them are embedded, and nothing else.

Reading the other tables was half of the time of a PDF.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fontTools import subset

UNUSED = ("BASE", "GDEF", "GPOS", "GSUB", "JSTF", "MATH", "kern", "cmap", "post", "name", "OS/2")
"""Tables by which a program sets text or finds glyphs by character, by name or as a family.

In a PDF every glyph has its number and its place already, see ISO 32000-1, 9.9.
"""


@contextmanager
def drawn_tables_only() -> Iterator[None]:
    """In the ``with`` block, fonts are embedded without :data:`UNUSED` and names of glyphs.

    matplotlib has no setting for this, so that the reader of fonts it calls is replaced meanwhile.
    """
    whole = subset.load_font

    def load(file: Any, options: Any, **more: Any) -> Any:
        options.glyph_names = False
        font = whole(file, options, **more)
        for table in UNUSED:
            if table in font:
                del font[table]
        return font

    subset.load_font = load
    try:
        yield
    finally:
        subset.load_font = whole
