"""A share of cases and its interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Share:
    """A share of cases, or a difference of two, and how sure it is.

    Attributes:
        value: from 0 to 1; None where there is no case.
        low: of its 95 % interval over documents; None from fewer than two. ``high`` likewise.
        high: the other end.
    """

    value: float | None
    low: float | None = None
    high: float | None = None

    def to_json(self, name: str) -> dict[str, float | None]:
        """Under a name such as ``accuracy``: that, ``accuracy_low`` and ``accuracy_high``."""
        return {name: self.value, f"{name}_low": self.low, f"{name}_high": self.high}
