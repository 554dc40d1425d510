"""What can be asked of the models on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from attnviz.core.settings import Settings, setting


@dataclass(frozen=True)
class ModelsSettings(Settings):
    """How much may be kept of what was measured."""

    max_mb: float | None = setting(
        None,
        "Of what is kept of earlier measurements remove what was used longest ago, until the rest "
        "takes at most so many megabytes; 0 removes all.",
        metavar="MB",
        least=0,
    )
