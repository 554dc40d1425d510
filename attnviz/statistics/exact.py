"""Sums that do not depend on the order of what is summed.

Floating-point addition rounds, so the last bits of a sum depend on which process added what first.
Here every value is split into a whole number and a fraction in units of 2⁻⁵², both are added as
integers, and integer addition is associative: processes, machines and parts that were merged give
one and the same sum, bit by bit.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_BITS = 52
_UNIT = 1 << _BITS
_AT_ONCE = 1 << 10  # fractions whose sum surely fits into 63 bits


def none_if_nan(value: float) -> float | None:
    """A number; None for one that is not known."""
    return float(value) if math.isfinite(value) else None


class FixedPoint:
    """An array of exact sums in fixed point.

    Attributes:
        whole: int64, the whole part of each sum.
        part: int64, its fraction in units of 2 to the power of minus ``bits``, from 0 up to but
            not 1.
    """

    bits: ClassVar[int]

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.whole: Integers = np.zeros(shape, np.int64)
        self.part: Integers = np.zeros(shape, np.int64)

    def merge(self, other: Self) -> None:
        """Add another array of sums."""
        self.whole += other.whole
        self.part += other.part
        self._carry()

    def value(self, where: Any = ...) -> Floats:
        """The sums in float64; ``where`` is an index."""
        return self.whole[where] + self.part[where] / (1 << self.bits)

    def _carry(self) -> None:
        self.whole += self.part >> self.bits
        self.part &= (1 << self.bits) - 1


class Exact(FixedPoint):
    """An array of exact sums of numbers, to 2⁻⁵²."""

    bits = _BITS

    def add(self, values: NDArray[np.floating[Any]]) -> None:
        """Add every ``values[n]``; values below 2⁶² in size, rounded to 2⁻⁵²."""
        for first in range(0, len(values), _AT_ONCE):
            some = np.asarray(values[first : first + _AT_ONCE], np.float64)
            whole = np.floor(some)
            self.whole += whole.astype(np.int64).sum(0)
            self.part += np.rint((some - whole) * _UNIT).astype(np.int64).sum(0)
            self._carry()
