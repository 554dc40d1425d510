"""Fonts in a PDF: glyphs and what draws them are embedded, and nothing else.

Reading the other tables was half of the time of a PDF.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fontTools import subset

LAYOUT = ("BASE", "GDEF", "GPOS", "GSUB", "JSTF", "MATH", "kern")
"""Tables by which a program sets text; in a PDF every glyph has its place already."""


@contextmanager
def drawn_tables_only() -> Iterator[None]:
    """In the ``with`` block, fonts are embedded without tables of layout and names of glyphs.

    matplotlib has no setting for this, so that the reader of fonts it calls is replaced meanwhile.
    """
    whole = subset.load_font

    def load(file: Any, options: Any, **more: Any) -> Any:
        options.glyph_names = False
        font = whole(file, options, **more)
        for table in LAYOUT:
            if table in font:
                del font[table]
        return font

    subset.load_font = load
    try:
        yield
    finally:
        subset.load_font = whole
