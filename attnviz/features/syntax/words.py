"""Words that the table, the figure and the picture of arcs share."""

from __future__ import annotations

from collections.abc import Mapping

from attnviz.drawing.labels import ran_on
from attnviz.features.syntax.result import Direction, Syntax
from attnviz.models.controls import Scale

SHORT: Mapping[Direction, str] = {"to_head": "row", "from_head": "column"}
"""Directions in a cell of a table."""
WITHOUT: Mapping[Scale, str] = {"default": "untrained", "trained": "shuffled"}
"""Weights with nothing learned in them, as columns and lines call them."""


def scales(result: Syntax) -> tuple[Scale, ...]:
    """The kinds of weights without training that there are."""
    return tuple(dict.fromkeys(control.scale for control in result.untrained))


def measured(result: Syntax) -> str:
    """What was measured on what, in one line."""
    if result.chosen_on == result.measured_on:
        chosen = f"head and offset chosen and measured on {result.measured_on}"
    else:
        chosen = f"head and offset chosen on {result.chosen_on}, measured on {result.measured_on}"
    parts = [
        f"{result.sentences:,} sentences, {result.words:,} words",
        f"{result.texts:,} {result.unit} as clusters",
        chosen,
        "95 % intervals",
        ran_on(result.source),
    ]
    return " · ".join(parts)
