"""The estimates of a profile as rows; of heads row by row, the rows that were drawn."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.drawing.tables import Row, head_cells, which_head
from attnviz.features.profile.parts import Distribution
from attnviz.features.profile.result import Profile

_PARTS = ("mean", "low", "high", "chance", "lift", "rows", "texts", "detectable")
_MACRO = ("macro", "macro_low", "macro_high")
_QUARTILES = ("q1", "median", "q3")


def rows(result: Profile) -> list[Row]:
    """A row for each head and score, or for each row that was drawn; None for what is not known."""
    if result.distribution is not None:
        return list(_drawn(result, result.distribution))
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


def _drawn(result: Profile, distribution: Distribution) -> Iterator[Row]:
    """The rows of the deciles, with the decile by each criterion, from 1."""
    for head in distribution.heads:
        deciles: dict[str, dict[int, int]] = {
            name: {row: n for n, decile in enumerate(several, 1) for row in decile.examples}
            for name, several in head.deciles.items()
        }
        for place, row in enumerate(head.rows):
            text = distribution.texts[row.text]
            yield {
                **which_head(result.layout, head.head),
                "place": text.place,
                "window": text.window,
                "row": row.row,
                "query": text.tokens[row.row - text.first],
                "key": row.key,
                "key_token": row.key_token,
                "weight": row.weight,
                "norm": row.norm,
                "written": row.written,
                "effect": row.effect,
                **{
                    f"{name}_decile": deciles.get(name, {}).get(place)
                    for name in ("weight", "norm", "effect")
                },
                "relations": " ".join(row.relations),
                "raises": "|".join(row.raises),
                "lowers": "|".join(row.lowers),
                "next": row.next,
                "added": row.added,
            }
