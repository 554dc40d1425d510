"""A number and its 95 % interval."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean, a share of cases, or a difference of two, and how sure it is.

    Attributes:
        value: None where there is no case.
        low: of its 95 % interval over texts, documents or needles; None from fewer than five, or
            where none differ. ``high`` likewise.
        high: the other end.
    """

    value: float | None
    low: float | None = None
    high: float | None = None


UNKNOWN = Interval(None)
"""Where there is no case."""
