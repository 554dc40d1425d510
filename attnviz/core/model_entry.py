"""Models by name: those on this machine, and what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model that is on this machine.

    Attributes:
        name: under which it is loaded.
        place: ``bundled``, ``built in`` or ``hub cache``.
        family: ``model_type`` of its configuration.
        shape: layers × heads, for every kind of layer.
        size: bytes on disk.
        usable: whether attnviz can run it; ``note`` says why not, or what to know.
    """

    name: str
    place: str
    family: str = ""
    shape: str = ""
    size: int = 0
    usable: bool = True
    note: str = ""


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Something that was measured of a model, and is used again.

    Attributes:
        what: it is, such as ``means of heads``; empty for a damaged file.
        model: the name of the model.
        size: bytes on disk.
        used: when it was last used, in seconds since 1970.
    """

    what: str
    model: str
    size: int
    used: float


DEFAULT_MODEL = "demo-gpt2"
"""A small GPT-2 that comes with attnviz; see its MODEL_CARD.md."""
