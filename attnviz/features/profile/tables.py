"""The estimates of a profile as rows."""

from __future__ import annotations

from attnviz.drawing.tables import Row, head_cells
from attnviz.features.profile.result import Profile

_PARTS = ("mean", "low", "high", "chance", "lift", "rows", "texts")
_MACRO = ("macro", "macro_low", "macro_high")
_QUARTILES = ("q1", "median", "q3")


def rows(result: Profile) -> list[Row]:
    """A row for each head and score; None for what is not known."""
    return [
        {
            **head_cells(head.scores, result.layout),
            "score": name,
            **{part: getattr(estimate, part) for part in _PARTS},
            **dict(zip(_QUARTILES, estimate.quartiles or (None,) * 3, strict=True)),
            **{part: getattr(estimate, part) for part in _MACRO},
        }
        for head in result.heads
        for name, estimate in head.estimates.items()
    ]
