"""The door: every public function refuses what its annotations do not name, in one line."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import attnviz as av
from attnviz.core.arguments import fits
from attnviz.core.lengths import Axes, Grid, Place, check_lengths
from attnviz.core.source import Source

RIGHT = ("x", 1, True, Path("x"), torch.ones(1, 1, 1, 1), ["x"])
FUNCTIONS = [name for name in av.__all__ if inspect.isfunction(getattr(av, name))]
PARAMETERS = [
    (name, parameter.name)
    for name in FUNCTIONS
    for parameter in inspect.signature(getattr(av, name)).parameters.values()
    if parameter.kind is not inspect.Parameter.VAR_KEYWORD
    and parameter.name not in ("device", "dtype")
]
THINGS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.just(10**5000),
    st.floats(allow_nan=True, allow_infinity=True), st.complex_numbers(), st.text(max_size=3),
    st.binary(max_size=3), st.lists(st.one_of(st.integers(), st.none()), max_size=2),
    st.dictionaries(st.integers(), st.integers(), max_size=2),
    st.sampled_from([object(), type, len, Path(), np.nan, np.int64(1), np.ones(2), torch.ones(2)]),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(PARAMETERS), THINGS)
def test_every_function_refuses_what_it_does_not_take(which: tuple[str, str], value: Any) -> None:
    name, parameter = which
    function = getattr(av, name)
    signature = inspect.signature(function).parameters
    hints = {name: one.annotation for name, one in signature.items()}
    if fits(value, hints[parameter]):
        return
    taken = signature.values()
    needed = {
        one.name: right(hints[one.name])
        for one in taken
        if one.default is one.empty
        and one.name != parameter
        and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
    }
    several = signature[parameter].kind is inspect.Parameter.VAR_POSITIONAL
    named = {} if several else {parameter: value}
    with pytest.raises(av.UsageError) as caught:
        function(*[value] * several, **needed, **named)
    said = str(caught.value)
    assert said.startswith(f"{parameter} takes ")
    assert len(said) < 400
    assert "\n" not in said


def right(hint: Any) -> Any:
    """Something that an annotation takes."""
    return next((one for one in RIGHT if fits(one, hint)), None) or captured()


@cache
def captured() -> av.Capture:
    return av.capture("a")


def test_all_annotations_are_known_when_it_runs() -> None:
    for name in FUNCTIONS:
        for parameter in inspect.signature(getattr(av, name)).parameters.values():
            assert not isinstance(parameter.annotation, str), f"{name}: {parameter}"
            assert parameter.annotation is not parameter.empty, f"{name}: {parameter}"


CALLS: list[tuple[Callable[[], Any], str]] = [
    (lambda: av.ablate("a b", select=0), "select takes a string or None, not 0"),
    (lambda: av.ablate("a b", by=-1), "by takes 'head' or 'position', not -1"),
    (lambda: av.ablate([0]), "text takes a string, a Prompt, a Capture, several of these or None"),
    (lambda: av.logits("a b", answer=0), "answer takes a string or None, not 0"),
    (lambda: av.syntax("x", sentences=1.5), "sentences takes a whole number, not 1.5"),
    (lambda: av.profile("x", stride=math.nan), "stride takes a whole number or None, not nan"),
    (lambda: av.Prompt(generate=0), "generate takes a Generation or None, not 0"),
    (lambda: av.Prompt(text=b"a"), "text takes a string or None, not bytes"),
    (lambda: av.Generation("3"), "tokens takes a whole number, not '3'"),
    (lambda: av.FreshConfig(heads=None), "heads takes a whole number, not None"),
    (lambda: av.load("fresh").gated(None).__enter__(), "shares takes a mapping, not None"),
    (lambda: av.load("fresh").gated({0: 0}).__enter__(), "a selection of heads is a string"),
    (lambda: av.heads("a", model=None), "model takes a name, a folder, a FreshConfig"),
    (lambda: av.heads("a", evidence=[0]), "evidence takes a file or a result, not 0"),
    (lambda: av.view("a", max_mb="9"), "max_mb takes a number, not '9'"),
    (lambda: av.heads("a", model=av.FreshConfig(seed=10**5000)), "seed takes a whole number, not "),
    (lambda: av.attend(0, 0, 0), "query takes a Tensor, not 0"),
    (lambda: av.load(reads="sound"), "reads takes 'text' or 'image', not 'sound'"),
]


@pytest.mark.parametrize(("call", "says"), CALLS)
def test_wrong_types_are_one_line(call: Callable[[], Any], says: str) -> None:
    with pytest.raises(av.UsageError) as caught:
        call()
    assert str(caught.value).startswith(says)


SPECIAL = {
    "meta": torch.ones(1, 1, 2, 2, device="meta"),
    "sparse": torch.eye(2)[None, None].to_sparse(),
    "int32": torch.ones(1, 1, 2, 2, dtype=torch.int32),
    "complex64": torch.ones(1, 1, 2, 2, dtype=torch.complex64),
}


@pytest.mark.parametrize("kind", SPECIAL)
def test_tensors_without_plain_numbers_are_refused(kind: str) -> None:
    with pytest.raises(av.InputError, match=rf"layer 0 (is a|holds) {kind}"):
        av.from_arrays([SPECIAL[kind]], ["a", "b"])


def test_eight_bits_are_read_as_what_they_stand_for() -> None:
    weights = torch.full((1, 1, 2, 2), 0.5).to(torch.float8_e4m3fn)
    assert (av.from_arrays([weights], ["a", "b"])["0.0"] == 0.5).all()


@pytest.mark.parametrize(
    ("hint", "good", "bad"),
    [
        (int, [0, -3, np.int64(3)], [10**20, -(10**5000), True, 1.0, math.nan, None, np.ones(1)]),
        (float, [0, 0.5, np.float32(1), math.inf], [10**5000, True, math.nan, "1", 1j]),
        (bool, [True, np.bool_(0)], [0, 1, None, "True"]),
        (str | None, ["", None], [b"", 0, Path("x")]),
        (Sequence[str | Path], [[], ["a", Path("b")], ("a",)], ["ab", b"ab", [0], {"a": 1}]),
        (Iterable[str], [["a"], iter("ab"), {"a": 1}], ["ab", 0, [0]]),
        (tuple[int, ...] | None, [(), (1, 2), [1, 2], None], [(1, "a"), "12", 1]),
        (tuple[int, str], [(1, "a")], [(1,), (1, 2), [1, "a"]]),
        (Mapping[str, float], [{}, {"a": 1}], [{1: 1}, {"a": "b"}, [("a", 1)]]),
        (Literal["a", 1], ["a", 1], ["b", True, 1.0]),
        (Callable[[str], None], [len, str], ["len", None]),
        (Source, [object()], []),
    ],
)
def test_what_fits(hint: Any, good: list[Any], bad: list[Any]) -> None:
    assert [value for value in good if not fits(value, hint)] == []
    assert [value for value in bad if fits(value, hint)] == []


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
