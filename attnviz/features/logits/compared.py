"""What every head adds to a logit, to compare two runs by."""

from __future__ import annotations

from attnviz.core.compared import Figures
from attnviz.drawing.labels import visible
from attnviz.features.logits.result import Logits


def figures(found: Logits) -> Figures:
    """Logits by head; none where a model's logits are no sum."""
    return Figures(
        {found.layout.name(head): {"logits": value} for head, value in found.heads().items()},
        settings={"token": visible(found.token), "against": visible(found.against)},
    )
