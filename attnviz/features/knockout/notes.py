"""What a reader of a knockout must not miss, in full sentences."""

from __future__ import annotations

from collections.abc import Iterator

from attnviz.features.knockout.result import Knockout
from attnviz.features.knockout.writing import MOST
from attnviz.statistics.clusters import FEW, LEAST
from attnviz.statistics.order import too_few

LITTLE = 0.8
"""A control that takes less of the weight deserves a word."""


def notes(result: Knockout) -> tuple[str, ...]:
    """What to say of a result."""
    return tuple(_notes(result))


def _notes(result: Knockout) -> Iterator[str]:
    if result.texts > result.clusters:
        yield f"{result.texts:,} texts count as {result.clusters:,}: some are word for word alike."
    if result.clusters < LEAST:
        texts = "One text has" if result.clusters == 1 else f"{result.clusters} texts have"
        yield f"{texts} no interval: nothing is known about others; give {FEW} or more."
    elif said := too_few(result.clusters, result.family, "changes"):
        yield said
    weak = [e for e in result.effects if e.matched is not None and e.matched < LITTLE]
    if weak:
        least = min(weak, key=lambda effect: effect.matched or 0.0)
        yield (
            f"Of {len(weak)} of the {len(result.effects)} cuts the control takes less weight than "
            f"the cut, since rows have less elsewhere: {100 * (least.matched or 0.0):.0f} % of it "
            f"from {least.rows} to {least.keys} ({least.name})."
        )
    if result.draws and result.metric == "kl":
        yield "KL is never below 0: what counts is how far it is above that of the control."
    if result.written and len([e for e in result.effects if e.kind != "window"]) > MOST:
        yield f"Texts were written with the first {MOST} cuts alone."
