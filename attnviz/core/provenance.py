"""Where weights came from: model, backend, exactness, device, precision, versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
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
