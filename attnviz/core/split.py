"""Which part of the data heads, roles and rules are chosen on, and which part figures are from.

The best of many flatters on the data that it was chosen on. One setting, :class:`Splitting`, says
how data are divided wherever a choice is made, and this module alone divides them:

| ``split`` | chosen on | figures are from |
|---|---|---|
| ``halves`` | every second one | the others |
| ``hash:0.5`` | a share, by a hash of their names | the others |
| ``field:NAME`` | those with the first value of a field that has two | the others |
| ``field:NAME=VALUE`` | those with that value | the others |
| ``all`` | all | all |

Copies and near copies of a text, document or example are on one side and count once: they are told
by :func:`same_text`. A hash says of each by itself on which side it is: more data move none to the
other side. Where data name their parts themselves, as a corpus its training and test documents, a
field of theirs decides.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from attnviz.core.settings import Settings, setting
from attnviz.errors import InputError, UsageError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bools = NDArray[np.bool_]

HALVES, EVERYTHING = "halves", "all"


def same_text(text: str) -> str:
    """Give what near copies of a text share: its words, whatever their case and spaces."""
    return " ".join(text.split()).casefold()


def merge_near_copies(texts: Iterable[tuple[int, str]]) -> dict[int, int]:
    """Give documents that share a near copy of a text the number of the first of them.

    ``texts``: the number of a document and a text of it, several of one document perhaps.
    """
    first: dict[int, int] = {}
    of: dict[str, int] = {}

    def root(number: int) -> int:
        while first[number] != number:
            number = first[number]
        return number

    for number, text in texts:
        first.setdefault(number, number)
        low, high = sorted((root(number), root(of.setdefault(same_text(text), number))))
        first[high] = low
    return {number: root(number) for number in first}


_HASH = re.compile(r"hash:(0?\.[0-9]{1,6})")
_FIELD = re.compile(r"field:([^=]+)(?:=(.+))?", re.DOTALL)

Values = Mapping[Any, str]
"""What a field says of things, by their numbers or names."""
NO_VALUES: Values = MappingProxyType({})


@dataclass(frozen=True)
class Splitting(Settings):
    """How data are divided."""

    split: str = setting(
        HALVES,
        "Part that heads and rules are chosen on: halves, hash:0.5, field:NAME or all; figures are "
        "from the other. Every second one (halves), a share of them by a hash of their names "
        "(hash:0.5), those with the first of a field's two values (field:NAME) or with one that is "
        "named (field:NAME=VALUE), or both on everything (all).",
        metavar="PART",
        common=True,
    )

    def check(self) -> None:
        """Raise UsageError for no such split."""
        check_split(self.split)


def check_split(split: str) -> None:
    """Raise UsageError for what divides nothing."""
    if split in (HALVES, EVERYTHING) or _FIELD.fullmatch(split):
        return
    match = _HASH.fullmatch(split)
    if match is None or not float(match[1]):
        raise UsageError(
            "{split} takes halves, all, a field such as field:part, or a share by hash such as "
            "hash:0.5, not {!r}",
            split[:20],
            split=...,
        )


def field_of(split: str) -> str:
    """Return the field that divides; empty where none does."""
    match = _FIELD.fullmatch(split)
    return match[1] if match else ""


def values_of(split: str, items: Iterable[tuple[Hashable, str]]) -> Values:
    """Return what the field says of every thing."""
    values: dict[Hashable, str] = {}
    for name, value in items:
        if values.setdefault(name, value) != value:
            raise InputError(
                "{split} has the same text, or texts of one group or document, in both parts "
                "({!r} and {!r}): nothing is held out; leave one of them out",
                values[name][:40], value[:40], split=split,
            )  # fmt: skip
    chosen = _chosen_value(split, values)
    if all(value == chosen for value in values.values()):
        raise InputError(
            "{split} leaves nothing to measure on: all have {!r}", chosen[:40], split=split
        )
    return values


def by_field(
    split: str, items: Callable[[str], Iterable[tuple[Hashable, str]]]
) -> tuple[str, Values]:
    """Give a split as results name it, and what its field says; of others the same, and nothing."""
    field = field_of(split)
    if not field:
        return split, NO_VALUES
    values = values_of(split, items(field))
    return resolved(split, values), values


def resolved(split: str, values: Values) -> str:
    """Give the split with the value that is chosen on, ``field:part=train``; others as they are."""
    name = field_of(split)
    return f"field:{name}={_chosen_value(split, values)}" if name else split


def _chosen_value(split: str, values: Values) -> str:
    """Return the value that is named, or the first of two."""
    distinct = list(dict.fromkeys(values.values()))
    match = _FIELD.fullmatch(split)
    requested = match[2] if match else None
    listing = ", ".join(repr(value[:40]) for value in distinct[:6])
    if not distinct:
        raise UsageError("{split} is of data that have fields; give a file of such", split=split)
    if requested is None and len(distinct) != 2:
        raise UsageError(
            "{split} has {} values ({}), not two; name the one to choose on, as in {}",
            len(distinct), listing, f"{split}={distinct[0][:40]}", split=split,
        )  # fmt: skip
    if requested is not None and requested not in distinct:
        raise UsageError("{split} has no such value; there are {}", listing, split=split)
    return distinct[0] if requested is None else requested


def sides(
    split: str, numbers: Sequence[int] | NDArray[np.integer[Any]], values: Values = NO_VALUES
) -> tuple[Bools, Bools]:
    """Which of numbered things are chosen on, and which are measured.

    ``split``: see the table above; every second one is every even one; ``numbers`` [n], of
    documents or other units, from 1.
    """
    import numpy as np

    array = np.asarray(numbers)
    if split == EVERYTHING:
        everything = np.ones(len(array), np.bool_)
        return everything, everything
    if split == HALVES:
        even = array % 2 == 0
        return even, ~even
    if field_of(split):
        return _by_field(split, array.tolist(), values)
    chosen = np.array([_below(split, str(number), 0) for number in array.tolist()], np.bool_)
    return chosen, ~chosen


def sides_by_name(
    split: str, names: Sequence[Hashable], seed: int, values: Values = NO_VALUES
) -> tuple[Bools, Bools]:
    """Return the same of things with names, those of one name, or of near copies, on one side.

    ``split``: every second one is the first half of the names in a random order; ``names`` [n].
    """
    import numpy as np

    if split == EVERYTHING:
        return sides(split, range(len(names)))
    if field_of(split):
        return _by_field(split, names, values)
    names = [same_text(name) if isinstance(name, str) else name for name in names]
    distinct = list(dict.fromkeys(names))
    if split == HALVES:
        random.Random(f"{seed}/halves").shuffle(distinct)
        first = set(distinct[: len(distinct) // 2])
    else:
        first = {name for name in distinct if _below(split, str(name), seed)}
    chosen = np.array([name in first for name in names], np.bool_)
    return chosen, ~chosen


def _by_field(split: str, names: Sequence[Hashable], values: Values) -> tuple[Bools, Bools]:
    import numpy as np

    value = _chosen_value(split, values)
    chosen = np.array([values[name] == value for name in names], np.bool_)
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
    """Return what heads are chosen on, in words."""
    parts = {EVERYTHING: f"all {unit}", HALVES: f"even {unit}"}
    return parts.get(split, f"the {unit} of {split}")


def measured_on(split: str, unit: str) -> str:
    """Return what figures are from, in words."""
    parts = {EVERYTHING: f"all {unit}", HALVES: f"odd {unit}"}
    return parts.get(split, f"the {unit} outside of {split}")
