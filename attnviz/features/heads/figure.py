"""The layer × head grid as a figure."""

from __future__ import annotations

from attnviz.drawing.figure import heads_figure
from attnviz.features.heads.result import Heads


def draw(found: Heads, format: str = "png") -> bytes:
    """Each head in the colour and with the code of its role, in ``png``, ``svg`` or ``pdf``."""
    return heads_figure(found, format)
