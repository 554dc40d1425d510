"""The layer × head grid as a figure."""

from __future__ import annotations

from typing import Any

from attnviz.drawing.figure import heads_figure
from attnviz.features.heads.result import Heads


def draw(result: Heads, format: str = "png") -> Any:
    """Each head in the colour and with the code of its role, in ``png``, ``svg`` or ``pdf``."""
    return heads_figure(result, format)
