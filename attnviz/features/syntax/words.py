"""Words that the table, the figure and the picture of arcs share."""

from __future__ import annotations

from collections.abc import Mapping

from attnviz.drawing.labels import model_name
from attnviz.features.syntax.result import Direction, Syntax
from attnviz.models.controls import Scale

SHORT: Mapping[Direction, str] = {"to_head": "row", "from_head": "column"}
"""Directions in a cell of a table."""
WITHOUT: Mapping[Scale, str] = {"default": "untrained", "trained": "shuffled"}
"""Weights with nothing learned in them, as columns and lines call them."""


def scales(found: Syntax) -> tuple[Scale, ...]:
    """The kinds of weights without training that there are."""
    return tuple(dict.fromkeys(one.scale for one in found.untrained))


def measured(found: Syntax) -> str:
    """What was measured on what, in one line."""
    info = found.source
    if found.chosen_on == found.measured_on:
        chosen = f"head and offset chosen and measured on {found.measured_on}"
    else:
        chosen = f"head and offset chosen on {found.chosen_on}, measured on {found.measured_on}"
    parts = [
        f"{found.sentences:,} sentences, {found.words:,} words",
        f"{found.texts:,} {found.unit} as clusters",
        chosen,
        "95 % intervals",
        f"{model_name(info)}, {info.backend} backend, {info.device} {info.dtype}",
    ]
    return " · ".join(parts)
