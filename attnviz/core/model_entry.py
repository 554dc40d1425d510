"""Models by name: the one that runs where none is named, and those on this machine."""

from __future__ import annotations

from dataclasses import dataclass

DEFAULT_MODEL = "demo-gpt2"
"""A small GPT-2 that comes with attnviz; see its MODEL_CARD.md."""


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
