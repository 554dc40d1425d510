"""What is known of tensors while somebody else's code runs: factors of axes, and of scores.

Every axis of a tensor is a sequence of factors (:class:`Axis`), the slowest first; of scores,
:class:`Pair` says which factors came from one operand alone, which from the other, and which they
share. :mod:`.axes` follows them from call to call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

Role = Literal["data", "features", "heads", "parameters", "constant", "unknown"]


class Axis:
    """A factor of an axis; views split it, once for all tensors that have it.

    Attributes:
        size: above 1.
        role: what it counts, as far as is known.
        root: the factor that it is a part of, since the last product.
        home: the same, products not counted.
        source: the factor that it is a copy of, or itself.
        kin: the homes of what stands side by side along it, in their order.
        twin: the home of another tensor's axis that it was added to, place by place.
        is_head: whether it was joined with features after a product, as heads are.
    """

    __slots__ = (
        "home", "is_head", "kin", "parent", "parts", "role", "root", "size", "source", "twin",
    )  # fmt: skip

    def __init__(self, size: int, role: Role, like: Axis | None = None) -> None:
        self.size, self.role = size, role
        self.root: Axis = like.root if like else self
        self.home: Axis = like.home if like else self
        self.kin: tuple[Axis, ...] = like.kin if like else (self,)
        self.source: Axis = self
        self.parts: tuple[Axis, ...] = ()
        self.parent: Axis | None = None
        self.twin: Axis | None = None
        self.is_head = False

    def split(self, first: int) -> tuple[Axis, ...]:
        """Split it in two, the slower of them of a given size."""
        self.parts = (Axis(first, self.role, self), Axis(self.size // first, self.role, self))
        for part in self.parts:
            part.parent = self
        return self.parts

    def copy(self) -> Axis:
        """The same factor, told apart from it in a product."""
        copied = Axis(self.size, self.role)
        copied.home, copied.source, copied.kin = self.home, self.source, self.kin
        return copied


Factors = tuple[Axis, ...]
_ONE = Axis(1, "data")
PARTLY = Axis(1, "unknown")
"""Kin of what was written into a part of a tensor, whose other places may be anything."""


def kin_of(factors: Iterable[Axis]) -> Factors:
    """The homes of what stands side by side along axes; of a single place :data:`_ONE`."""
    homes: list[Axis] = []
    for kin in [home for axis in leaves(factors) for home in axis.kin] or [_ONE]:
        home = kin
        while home.twin is not None:
            home = home.twin
        if home is _ONE or home not in homes:
            homes.append(home)
    return tuple(homes)


def leaves(factors: Iterable[Axis]) -> Factors:
    """What factors are split into."""
    found: list[Axis] = []
    for axis in factors:
        found += leaves(axis.parts) if axis.parts else [axis]
    return tuple(found)


@dataclass(frozen=True, eq=False)
class Pair:
    """Which factors of scores came from which operand.

    Attributes:
        sides: roots of the factors that one operand alone has, and of those of the other.
        shared: of each axis that both have, the factors of either.
        contracted: homes of the factors that were summed over.
        raw: whether these are an axis of something that no matrix made.
        learned: of each operand whether it was made of parameters alone.
        matrices: kin of the factors that were summed over: the matrices that made them.
        function: what bounded the scores where it was no softmax: ``sigmoid``.
    """

    sides: tuple[frozenset[Axis], frozenset[Axis]]
    shared: tuple[tuple[Factors, Factors], ...]
    contracted: frozenset[Axis]
    raw: bool
    learned: tuple[bool, bool]
    matrices: Factors = ()
    function: str = ""


@dataclass(frozen=True, eq=False)
class Known:
    """What is known of a tensor."""

    axes: tuple[Factors, ...]  # the factors of each axis
    # ``matrix`` for parameters as they are, ``tokens`` for what was made of parameters alone, and
    # empty for what depends on inputs
    fixed: str = ""
    pair: Pair | None = None  # of scores
    trail: Any = None  # what follows a softmax, see :mod:`.softmax_watch`
    power: Tensor | None = None  # scores, where it is their exponentials
    total: int = 0  # the exponentials, where it is their sum
    calls: tuple[Any, ...] = ()  # the attention that it is the output of
    lost: str = ""  # the function through which scores could not be followed, of what came of it
    sinks: int = 0  # how many last places of scores are parameters and no keys
