"""Lengths that types say: agreed on, named where they are not, and those of inner records apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import pytest

from attnviz.core.lengths import Axes, Grid, Place, check_lengths


@dataclass(frozen=True)
class Inner:
    keys: Annotated[tuple[float, ...], Axes("keys")] = (0.1, 0.2, 0.3)
    own: Annotated[tuple[int, ...], Axes("own")] = ()
    also: Annotated[tuple[int, ...], Axes("own")] = ()
    at: Annotated[int | str | None, Place("keys")] = 2


@dataclass(frozen=True)
class Cell:
    length: int
    depth: float


@dataclass(frozen=True)
class Outer:
    at: Annotated[int, Place("queries")] = 1
    queries: Annotated[tuple[str, ...], Axes("queries", least=1)] = ("a", "b")
    keys: Annotated[tuple[str, ...], Axes("keys")] = ("a", "b", "c")
    matrix: Annotated[tuple[tuple[float, ...], ...], Axes("queries", "keys")] = ((1, 2, 3),) * 2
    by_name: Annotated[Mapping[str, tuple[int, ...]] | None, Axes("", "keys")] = None
    inner: tuple[Inner, ...] = (Inner(), Inner(own=(1,), also=(2,)))
    named: Mapping[str, Inner] = field(default_factory=dict)
    following: Annotated[tuple[str, ...], Axes("queries", absent=True)] = ()
    rounds: Annotated[tuple[int, ...], Axes("queries", again=True)] = (1, 2, 3, 4)
    places: Annotated[tuple[int, ...], Place("keys")] = (0, 2)
    grid: Annotated[tuple[Cell, ...], Grid("length", "depth")] = ()
    drawn: Any = field(default=None, compare=False)


@dataclass(frozen=True)
class Nested:
    keys: Annotated[tuple[int, ...], Axes(least=1)] = (1,)
    inner: Nested | None = None


def test_a_record_may_hold_others_of_its_kind() -> None:
    check_lengths(Nested(inner=Nested(inner=Nested())))
    with pytest.raises(ValueError, match="keys has 0 entries"):
        check_lengths(Nested(inner=Nested(inner=Nested(()))))


def test_what_agrees_is_taken() -> None:
    check_lengths(Outer())
    check_lengths(Outer(by_name={"x": (1, 2, 3)}, following=("c", "d"), named={"y": Inner()}))
    check_lengths(Outer(grid=tuple(Cell(n, x) for n in (1, 2) for x in (0.0, 1.0))))
    check_lengths(Inner((1.0,), at=0))  # alone it has the keys that it has
    check_lengths(Inner(at=None))
    check_lengths(Inner(at="mean"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"queries": ()}, "queries has 0 entries, and at least 1 belong there"),
        ({"queries": ("a",)}, "matrix has 2 queries, and queries has 1"),
        ({"matrix": ((1, 2, 3), (1, 2))}, "matrix has 2 keys, and keys has 3"),
        ({"by_name": {"x": (1, 2, 3), "y": (1,)}}, "by_name has 1 keys, and keys has 3"),
        ({"inner": (Inner((1.0, 2.0), at=0),)}, "keys has 2 keys, and keys has 3"),
        ({"named": {"y": Inner(own=(1,))}}, "also has 0 own, and own has 1"),
        ({"inner": (Inner(at=3),)}, "at is 3, and keys has 3 keys, from 0"),
        ({"following": ("c",)}, "following has 1 queries, and queries has 2"),
        ({"rounds": (1, 2, 3)}, "rounds has 3 entries for 2 queries of queries"),
        ({"at": 2}, "at is 2, and queries has 2 queries, from 0"),
        ({"at": -1}, "at is -1, and queries has 2 queries, from 0"),
        ({"places": (0, 3)}, "places is 3, and keys has 3 keys, from 0"),
        ({"grid": (Cell(1, 0.0), Cell(2, 0.5))}, "grid has 2 entries and not one for every length"),
        ({"grid": (Cell(1, 0.0),) * 2}, "grid has 2 entries and not one for every length"),
    ],
)
def test_what_does_not_agree_is_named(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        check_lengths(replace(Outer(), **changed))
