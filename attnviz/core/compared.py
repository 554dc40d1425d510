"""What a result says in figures, by head, to be laid beside the same of another run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a result.

    Attributes:
        values: by the name of a head, or of a group of heads, and the name of the figure; None
            where it is not known.
        roles: that a head or group has; those without any may be missing.
        settings: what must be the same in both runs, such as the metric of an ablation.
    """

    values: Mapping[str, Mapping[str, float | None]]
    roles: Mapping[str, frozenset[str]] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
