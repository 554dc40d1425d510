"""Models as rows: one for each model or family, and of one model for each kind of layer."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from attnviz.features.models.card import Families, ModelCard, Models


def rows(result: Models | ModelCard | Families) -> list[dict[str, Any]]:
    """What is listed; sizes in bytes."""
    if isinstance(result, Models):
        return [asdict(model) for model in result.models]
    if isinstance(result, Families):
        return [asdict(family) for family in result.families]
    return [
        {**asdict(group), "layers": ", ".join(map(str, group.layers))} for group in result.groups
    ]
