"""Where weights came from: model, backend, exactness, device, precision, versions."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

Backend = Literal["untrained", "native", "hooked", "eager", "recorded"]
"""How the weights were obtained; see docs/models.md."""


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


def called(name: str) -> str:
    """A model as results and pages name it: of a local path only the last part.

    What is mailed tells nobody how the folders of a machine are called.
    """
    path = PurePath(name)
    local = path.is_absolute() or name.startswith((".", "~")) or os.path.isdir(name)
    return path.name or name if local else name
