"""Which models there are on this machine."""

from __future__ import annotations

from attnviz.core.interface import interface
from attnviz.features.models.card import ModelCard, Models
from attnviz.features.models.settings import ModelsSettings


@interface
def models(*, settings: ModelsSettings) -> Models:
    """The models on this machine: bundled ones, the hub's cache, the fresh layer.

    And what is kept of what was measured of models, so that it need not be measured again.
    """
    from attnviz.features.models.catalog import available
    from attnviz.models import kept

    if settings.max_mb is not None:
        kept.shrink(int(settings.max_mb * 1e6))
    place = kept.folder()
    return Models(
        models=available(), kept=kept.entries(), kept_in="" if place is None else str(place)
    )


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
