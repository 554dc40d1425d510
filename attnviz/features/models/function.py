"""Which models there are on this machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnviz.core.model_entry import ModelEntry

if TYPE_CHECKING:
    from attnviz.features.models.card import ModelCard


def models() -> tuple[ModelEntry, ...]:
    """The models on this machine: bundled ones, the hub's cache, the fresh layer."""
    from attnviz.features.models.catalog import available

    return available()


def show(name: str) -> ModelCard:
    """What a model is, by its configuration and the headers of its files; no weight is read.

    Args:
        name: a bundled name, a folder, or a hub id.

    Raises:
        ModelError: no such model, or none that can be read.
    """
    from attnviz.features.models.describe import describe

    return describe(name)
