"""Where weights came from: model, backend, exactness, device, precision, versions."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

Backend = Literal["untrained", "native", "hooked", "eager", "recorded"]
"""How the weights were obtained; see docs/models.md."""


RANDOM = "random weights, nothing learned"
"""How the exactness of a control begins: a model of the same configuration that was not trained."""


@dataclass(frozen=True, slots=True)
class SourceInfo:
    """Where weights came from, for the report.

    Attributes:
        model: the name the user gave, or what stands for it (``fresh mha, seed 0``).
        backend: how the weights were obtained.
        exactness: one phrase on how far they can be trusted, with the measured difference if any.
        device: where it ran; ``dtype``: in which precision.
        reason: why this backend was taken, when another was tried or usual.
        versions: package versions that took part.
    """

    model: str
    backend: Backend
    exactness: str
    device: str = "cpu"
    dtype: str = "float32"
    reason: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def untrained(self) -> bool:
        """Whether its weights were drawn at random."""
        return self.backend == "untrained" or self.exactness.startswith(RANDOM)


def own_name(place: str) -> str:
    """A file, or a line of one, as results and pages name it: of a machine's path the last part.

    Args:
        place: as it was given; a path from where one stands (``data/a.txt``) stays as it is.
    """
    if os.path.isabs(place) or place.startswith((".", "~")):
        return PurePath(place).name or place
    return place


_ANY_MODELS = (
    r"(hf|pytorch|safetensors|weights|models?|(checkpoint|ckpt|epoch|step|iter|run|version|v)s?"
    r"[-_.]?\d*|\d+|final|best|last|latest|out|output|outputs|results|snapshots|[0-9a-f]{40})"
    r"([-_.](model|checkpoint|weights|hf))?"
)
"""Names of folders that could be any model's."""
_MOST_PARTS = 3
_HOMES = ("home", "Users")


def called(name: str) -> str:
    """A model as results and pages name it: of a local path only the last part.

    Where that part could be any model's (``model``, ``checkpoint-500``, a snapshot's hash), the
    part before stands with it, and a snapshot in the hub's cache has its name on the hub. What is
    mailed tells nobody how else the folders of a machine are called, nor whose they are.
    """
    if not (os.path.isabs(name) or name.startswith((".", "~")) or os.path.isdir(name)):
        return name
    path = PurePath(os.path.abspath(os.path.expanduser(name)))
    if path.parent.name == "snapshots":
        kind, *hub = re.split("-{2}", path.parts[-3])
        if kind == "models" and hub:
            return "/".join(hub)
    parts, home = [path.name], PurePath(os.path.expanduser("~"))
    for folder in path.parents:
        says = not re.fullmatch(_ANY_MODELS, parts[0], re.IGNORECASE) or len(parts) == _MOST_PARTS
        if says or folder in (home, *home.parents) or folder.parent.name in _HOMES:
            break
        parts.insert(0, folder.name)
    return "/".join(parts) or name
