"""What is known of each head, as rows."""

from __future__ import annotations

from attnviz.drawing.tables import Row, head_cells
from attnviz.features.atlas.result import Atlas, AtlasHead

_GOLD = ("accuracy", "low", "high", "count")


def rows(atlas: Atlas) -> list[Row]:
    """A row for each head; None for what is not known, edges as ``K of 2.0``."""
    return [_row(atlas, head) for head in atlas.heads]


def _row(atlas: Atlas, head: AtlasHead) -> Row:
    effect, relation = head.effect, head.relations[0] if head.relations else None
    row = head_cells(head.profile.scores, atlas.layout)
    row |= {"effect": None, "effect_low": None, "effect_high": None, "verdict": None}
    if effect is not None:
        first = effect.first
        row |= {"effect": effect.change, "effect_low": first.low, "effect_high": first.high}
        row["verdict"] = effect.verdict
    row["relation"] = None if relation is None else relation.relation
    for what, gold in (("relation", relation), ("antecedent", head.antecedents)):
        known = dict.fromkeys(_GOLD)
        if gold is not None:
            accuracy = gold.accuracy
            known = dict(
                zip(_GOLD, (accuracy.value, accuracy.low, accuracy.high, gold.count), strict=True)
            )
        row |= {f"{what}_{name}": value for name, value in known.items()}
    row["copying"] = None if head.copying is None else head.copying.score
    row["copies"] = head.copies
    name = atlas.layout.name
    row["feeds"] = ", ".join(f"{edge.side} of {name(edge.reader)}" for edge in head.feeds)
    row["reads"] = ", ".join(f"{name(edge.writer)} by {edge.side}" for edge in head.reads)
    return row
