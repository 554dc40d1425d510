"""Which part of the data heads, roles and rules are chosen on, and which part figures are from.

The best of many flatters on the data that it was chosen on. One setting, :class:`Splitting`, says
how data are divided wherever a choice is made, and this module alone divides them:

| ``split`` | chosen on | figures are from |
|---|---|---|
| ``halves`` | every second one | the others |
| ``hash:0.5`` | a share, by a hash of their names | the others |
| ``all`` | all | all |

A hash says of each by itself on which side it is: more data move none to the other side.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnviz.core.settings import Settings, setting
from attnviz.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]

HALVES, EVERYTHING = "halves", "all"
_HASH = re.compile(r"hash:(0?\.[0-9]{1,6})")


@dataclass(frozen=True)
class Splitting(Settings):
    """How data are divided."""

    split: str = setting(
        HALVES,
        "Part that heads and rules are chosen on: halves, hash:0.5 or all; figures are from the "
        "other. Every second one (halves), a share of them by a hash of their names (hash:0.5), or "
        "both on everything (all).",
        metavar="PART",
        common=True,
    )

    def check(self) -> None:
        """Raise UsageError for no such split."""
        check_split(self.split)


def check_split(split: str) -> None:
    """Raise UsageError for what divides nothing."""
    if split in (HALVES, EVERYTHING):
        return
    written = _HASH.fullmatch(split)
    if written is None or not float(written[1]):
        raise UsageError(
            "{split} takes halves, all, or a share by hash such as hash:0.5, not {!r}",
            split[:20],
            split=...,
        )


def sides(split: str, numbers: Sequence[int] | NDArray[np.integer[Any]]) -> tuple[Bools, Bools]:
    """Which of numbered things are chosen on, and which are measured.

    Args:
        split: see the table above; every second one is every even one.
        numbers: [n], of documents or other units, from 1.
    """
    import numpy as np

    some = np.asarray(numbers)
    if split == EVERYTHING:
        everything = np.ones(len(some), np.bool_)
        return everything, everything
    if split == HALVES:
        even = some % 2 == 0
        return even, ~even
    chosen = np.array([_below(split, str(number), 0) for number in some.tolist()], np.bool_)
    return chosen, ~chosen


def sides_by_name(split: str, names: Sequence[Hashable], seed: int) -> tuple[Bools, Bools]:
    """The same of things with names, those of one name on one side.

    Args:
        split: every second one is the first half of the names in a random order.
        names: [n].
        seed: of that order, and of the hash.
    """
    import numpy as np

    if split == EVERYTHING:
        return sides(split, range(len(names)))
    known = list(dict.fromkeys(names))
    if split == HALVES:
        random.Random(f"{seed}/halves").shuffle(known)
        first = set(known[: len(known) // 2])
    else:
        first = {name for name in known if _below(split, str(name), seed)}
    chosen = np.array([name in first for name in names], np.bool_)
    return chosen, ~chosen


def _below(split: str, name: str, seed: int) -> bool:
    """Whether the hash of a name, from 0 to 1, is below the share."""
    digest = hashlib.sha256(f"{seed}/{name}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big") / 2**64 < float(split.partition(":")[2])


class Judged:
    """What was chosen on some cases of a kind and measured on the others.

    Attributes:
        split: which were chosen on.
        unit: what is split, such as ``documents``.
    """

    __slots__ = ()
    split: str
    unit: str

    @property
    def chosen_on(self) -> str:
        """What heads and rules were chosen on, in words."""
        return chosen_on(self.split, self.unit)

    @property
    def measured_on(self) -> str:
        """What their figures are from, in words."""
        return measured_on(self.split, self.unit)


def chosen_on(split: str, unit: str) -> str:
    """What heads are chosen on, in words."""
    if split in (HALVES, EVERYTHING):
        return f"{'all' if split == EVERYTHING else 'even'} {unit}"
    return f"the {unit} of {split}"


def measured_on(split: str, unit: str) -> str:
    """What figures are from, in words."""
    if split in (HALVES, EVERYTHING):
        return f"{'all' if split == EVERYTHING else 'odd'} {unit}"
    return f"the {unit} outside of {split}"
