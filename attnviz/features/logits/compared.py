"""What every head adds to a logit, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.drawing.labels import visible
from attnviz.features.logits.result import Logits


def figures(result: Logits) -> Figures:
    """Logits by head; none where a model's logits are no sum."""
    return Figures(
        {result.layout.name(head): {"logits": value} for head, value in result.heads().items()},
        settings={"token": visible(result.token), "against": visible(result.against)},
    )
