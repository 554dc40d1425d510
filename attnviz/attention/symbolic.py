"""Numbers that may still contain unset sizes: ``2,097,152·T + 2,048·T²``.

A :class:`Dim` is one axis of a tensor, an :class:`Amount` a sum of products of axes (elements,
bytes, FLOPs). Both stay symbolic in the sizes that nobody set.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_SUPERSCRIPT = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


class Dim(NamedTuple):
    """One axis: how it is written in formulas, and its size where that is known.

    ``base`` is the letter that stands for the axis in an :class:`Amount` when the size is unset;
    self-attention writes S for its keys but counts them as T.
    """

    symbol: str
    size: int | None
    base: str = ""

    @property
    def letter(self) -> str:
        """The letter under which an unset size is counted."""
        return self.base or self.symbol

    def __str__(self) -> str:
        return self.letter if self.size is None else str(self.size)


Shape = tuple[Dim, ...]


class Amount:
    """A sum of terms: whole-number coefficients times products of unset sizes."""

    __slots__ = ("terms",)

    def __init__(self, terms: Mapping[tuple[str, ...], int] | int = 0) -> None:
        if isinstance(terms, int):
            terms = {(): terms}
        self.terms = {key: value for key, value in terms.items() if value}

    @property
    def value(self) -> int | None:
        """The plain number, or None while a size is unset."""
        if any(self.terms.keys() - {()}):
            return None
        return self.terms.get((), 0)

    def __add__(self, other: Amount | int) -> Amount:
        other = other if isinstance(other, Amount) else Amount(other)
        terms = dict(self.terms)
        for key, value in other.terms.items():
            terms[key] = terms.get(key, 0) + value
        return Amount(terms)

    __radd__ = __add__

    def __mul__(self, other: Dim | int) -> Amount:
        if isinstance(other, int):
            return Amount({key: value * other for key, value in self.terms.items()})
        if other.size is not None:
            return self * other.size
        return Amount(
            {tuple(sorted((*key, other.letter))): value for key, value in self.terms.items()}
        )

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, int):
            other = Amount(other)
        return isinstance(other, Amount) and self.terms == other.terms

    __hash__ = None  # type: ignore[assignment]

    def at(self, **sizes: int) -> Amount:
        """The amount with letters replaced by sizes, for example ``at(T=16)``."""
        total = Amount(0)
        for key, value in self.terms.items():
            term = Amount(value)
            for letter in key:
                term = term * Dim(letter, sizes.get(letter))
            total = total + term
        return total

    def written(self, number: str = ",") -> str:
        """The amount as text; ``number`` is the format of its coefficients."""
        if not self.terms:
            return "0"
        parts = []
        for key, value in sorted(self.terms.items(), key=lambda item: (len(item[0]), item[0])):
            powers = [_power(letter, key.count(letter)) for letter in sorted(set(key))]
            coefficient = [format(value, number)] if value != 1 or not powers else []
            parts.append("·".join(coefficient + powers))
        return " + ".join(parts)

    def __str__(self) -> str:
        return self.written()

    def __repr__(self) -> str:
        return f"Amount({self.written()})"


def _power(letter: str, exponent: int) -> str:
    return letter if exponent == 1 else letter + str(exponent).translate(_SUPERSCRIPT)


def elements(*dims: Dim | int) -> Amount:
    """The product of some axes: how many numbers a tensor of that shape holds."""
    total = Amount(1)
    for dim in dims:
        total = total * dim
    return total
