"""A share of cases and its interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CaseShare:
    """A share of cases, or a difference of two, and how sure it is.

    Attributes:
        value: from 0 to 1; None where there is no case.
        low: of its 95 % interval over documents; None from fewer than five or
            where none differ. ``high`` likewise.
        high: the other end.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
