"""Which models there are on this machine."""

from __future__ import annotations

from attnviz.core.model_entry import ModelEntry


def models() -> tuple[ModelEntry, ...]:
    """The models on this machine: bundled ones, the hub's cache, the fresh layer."""
    from attnviz.features.models.catalog import available

    return available()
