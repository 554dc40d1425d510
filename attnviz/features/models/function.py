"""Which models there are on this machine, and which families of models work."""

from __future__ import annotations

import json
from difflib import get_close_matches
from pathlib import Path

from attnviz.core.interface import interface
from attnviz.errors import UsageError
from attnviz.features.models.result import Families, Family, ModelCard, Models, ModelsSettings

FAMILIES = Path(__file__).with_name("families.json")
"""What `python -m tests.families` found, see docs/families.md."""
NOT_BUILT = "That no tiny model could be built says nothing about a family; load one to see."


@interface
def models(*, settings: ModelsSettings) -> Models:
    """Return the models on this machine: bundled ones, the hub's cache, the fresh layer.

    And what is kept of what was measured of models, so that it need not be measured again.
    """
    from attnviz.features.models.catalog import available
    from attnviz.models import cache

    if settings.max_mb is not None:
        cache.shrink(int(settings.max_mb * 1e6))
    folder = cache.folder()
    return Models(
        models=available(),
        cached=cache.entries(),
        cache_folder="" if folder is None else str(folder),
    )


@interface
def show(name: str) -> ModelCard:
    """Get what a model is, by its configuration and the headers of its files; no weight is read."""
    from attnviz.features.models.inspection import describe

    return describe(name)


def families(name: str) -> Families:
    """How far decoder-only families of transformers work."""
    document = json.loads(FAMILIES.read_text("utf-8"))
    listed = [Family(**family) for family in document["families"]]
    part = name.strip().lower().replace("-", "_")
    chosen = [f for f in listed if part == "all" or part in f.family.replace("-", "_")]
    chosen.sort(key=lambda f: (not f.family.startswith(part), f.family))
    if not chosen:
        near = get_close_matches(part, [family.family for family in listed])
        like = f"like it: {', '.join(near)}; " if near else ""
        raise UsageError(
            f"no decoder-only family of transformers has {name[:40]!r} in its name; {like}a model "
            "of any other is checked when it is loaded"
        )
    missing = any(family.maps.startswith("not built") for family in chosen)
    notes = (NOT_BUILT,) if missing else ()
    return Families(transformers=document["transformers"], families=tuple(chosen), notes=notes)
