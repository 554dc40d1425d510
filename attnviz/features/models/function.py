"""Which models there are on this machine."""

from __future__ import annotations

from attnviz.core.interface import interface
from attnviz.features.models.card import ModelCard, Models


def models() -> Models:
    """The models on this machine: bundled ones, the hub's cache, the fresh layer."""
    from attnviz.features.models.catalog import available

    return Models(models=available())


@interface
def show(name: str) -> ModelCard:
    """What a model is, by its configuration and the headers of its files; no weight is read.

    Args:
        name: a bundled name, a folder, or a hub id.

    Raises:
        ModelError: no such model, or none that can be read.
    """
    from attnviz.features.models.describe import describe

    return describe(name)
