"""How long the fields of a record are, and which words they take: said with their types.

Both are checked where a record is read.

    query_origins: Annotated[tuple[Origin, ...], Axes("query sources")]
    matrix: Annotated[tuple[tuple[float, ...], ...], Axes("query sources", "key sources")]
    query: Annotated[int, Place("queries")]

The first field that has an axis says how long it is, and all others agree with it: those of the
same record, and of the records inside of it. What two of those inside have of their own may differ.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints

_Sizes = dict[str, tuple[int, str]]  # how long an axis is, and the field that says so


class Axes:
    """How long a field is."""

    __slots__ = ("absent", "again", "least", "names")

    def __init__(
        self, *names: str, least: int = 0, absent: bool = False, again: bool = False
    ) -> None:
        self.names, self.least, self.absent, self.again = names, least, absent, again

    def check(self, field: str, value: Any, sizes: _Sizes) -> None:
        """Raise ValueError for another length than what is known; what is new is known then."""
        if value is None or (self.absent and not len(value)):
            return
        if len(value) < self.least:
            raise ValueError(
                f"{field} has {len(value)} entries, and at least {self.least} belong there"
            )
        name = self.names[0] if self.names else ""
        if self.again:
            count, origin = sizes[name]
            if len(value) % count if count else len(value):
                raise ValueError(f"{field} has {len(value)} entries for {count} {name} of {origin}")
        else:
            _agree(field, value, self.names, sizes)


@dataclass(frozen=True, slots=True)
class Place:
    """A place on an axis, from 0, or several; what is no whole number means something else."""

    axis: str

    def check(self, field: str, value: Any, sizes: _Sizes) -> None:
        """Raise ValueError for a place that is not there."""
        size, origin = sizes.get(self.axis, (0, ""))
        for axis in (value,) if isinstance(value, int) else value or ():
            if origin and isinstance(axis, int) and not 0 <= axis < size:
                raise ValueError(f"{field} is {axis}, and {origin} has {size} {self.axis}, from 0")


class OneOf:
    """A field that is one of some words."""

    __slots__ = ("words",)

    def __init__(self, *words: str) -> None:
        self.words = words

    def check(self, field: str, value: Any, sizes: _Sizes) -> None:
        """Raise ValueError for another word."""
        for word in (value,) if isinstance(value, str) else value or ():
            if word not in self.words:
                words = ", ".join(word or "(empty)" for word in self.words)
                raise ValueError(f"{field} is {str(word)[:40]!r}, and none of {words}")


class Grid:
    """Records that have every pair of two of their fields' values, each once."""

    __slots__ = ("names",)

    def __init__(self, first: str, second: str) -> None:
        self.names = (first, second)

    def check(self, field: str, value: Any, sizes: _Sizes) -> None:
        """Raise ValueError for a pair that is missing or there twice."""
        pairs = {tuple(getattr(record, name) for name in self.names) for record in value}
        firsts, seconds = (len({pair[n] for pair in pairs}) for n in (0, 1))
        if not len(value) == len(pairs) == firsts * seconds:
            names = " and ".join(self.names)
            raise ValueError(f"{field} has {len(value)} entries and not one for every {names}")


def check_lengths(record: Any, outer: Mapping[str, tuple[int, str]] | None = None) -> None:
    """Check a record, and those inside of it, against what its types say."""
    sizes = dict(outer or {})
    rules = _rules(record.__class__)
    for field, rule in sorted(rules, key=lambda pair: not isinstance(pair[1], Axes)):
        rule.check(field, getattr(record, field), sizes)
    for field in _inside(record.__class__):
        for part in _records(getattr(record, field)):
            check_lengths(part, sizes)


def _agree(field: str, value: Any, names: tuple[str, ...], sizes: _Sizes) -> None:
    """Lengths of nested sequences, from the outermost axis on."""
    if not names:
        return
    size, origin = sizes.setdefault(names[0], (len(value), field)) if names[0] else (len(value), "")
    if len(value) != size:
        raise ValueError(f"{field} has {len(value)} {names[0]}, and {origin} has {size}")
    for item in value.values() if isinstance(value, Mapping) else value:
        if names[1:] and item is not None:
            _agree(field, item, names[1:], sizes)


@cache
def _rules(kind: Any) -> tuple[tuple[str, Axes | Place | OneOf | Grid], ...]:
    """Return what the types of a record's own fields say."""
    return tuple(
        (name, rule)
        for name, hint in _hints(kind)
        if get_origin(hint) is Annotated
        for rule in hint.__metadata__
        if isinstance(rule, Axes | Place | OneOf | Grid)
    )


@cache
def _inside(kind: Any) -> tuple[str, ...]:
    """Return the fields with records in them that say something, at any depth."""
    return tuple(name for name, hint in _hints(kind) if any(map(_rules, _reached(hint))))


def _hints(kind: Any) -> Iterator[tuple[str, Any]]:
    """Return the fields that are written, with their annotations."""
    hints = get_type_hints(kind, include_extras=True)
    return ((field.name, hints[field.name]) for field in fields(kind) if field.compare)


def _reached(hint: Any) -> list[Any]:
    """Give dataclasses that an annotation leads to, each once; one may hold others of its kind."""
    reached: dict[Any, None] = {}
    waiting = list(_kinds(hint))
    while waiting:
        kind = waiting.pop()
        if kind not in reached:
            reached[kind] = None
            waiting += [inner for _, hint in _hints(kind) for inner in _kinds(hint)]
    return list(reached)


def _kinds(hint: Any) -> Iterator[Any]:
    """Yield the dataclasses that an annotation names."""
    if isinstance(hint, type) and is_dataclass(hint):
        yield hint
    for part in get_args(hint):
        yield from _kinds(part)


def _records(value: Any) -> Iterator[Any]:
    """Yield the records in a value."""
    if is_dataclass(value):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _records(part)
    elif isinstance(value, Collection) and not isinstance(value, str):
        for part in value:
            yield from _records(part)
