"""What heads are chosen on and what figures are from, by one setting."""

from __future__ import annotations

import re
from collections.abc import Hashable

import numpy as np
import pytest

from attnviz.core.split import (
    EVERYTHING,
    HALVES,
    Splitting,
    chosen_on,
    field_of,
    measured_on,
    merge_near_copies,
    resolved,
    same_text,
    sides,
    sides_by_name,
    values_of,
)
from attnviz.errors import InputError, UsageError

NAMES = [f"text {n % 200}" for n in range(400)]


def test_every_second_one_or_everything() -> None:
    chosen, measured = sides(HALVES, [1, 2, 3, 4])
    assert chosen.tolist() == [False, True, False, True]
    assert (chosen != measured).all()
    assert all(side.all() for side in sides(EVERYTHING, [1, 2]))
    assert all(side.all() for side in sides_by_name(EVERYTHING, ["a"], 0))


@pytest.mark.parametrize("split", [HALVES, "hash:0.5", "hash:.3"])
def test_nothing_is_on_both_sides_and_copies_are_on_one(split: str) -> None:
    chosen, measured = sides_by_name(split, NAMES, 1)
    assert (chosen ^ measured).all()
    assert {NAMES[n] for n in np.flatnonzero(chosen)}.isdisjoint(
        NAMES[n] for n in np.flatnonzero(measured)
    )
    assert abs(chosen.mean() - (0.3 if split == "hash:.3" else 0.5)) < 0.1


@pytest.mark.parametrize("split", [HALVES, "hash:0.5"])
def test_near_copies_are_on_one_side(split: str) -> None:
    """Other case, other white space: 64 texts and a near copy of each."""
    texts = [f"The text {n}, and what it Says." for n in range(64)]
    near = [text.upper().replace(" ", " \n ") for text in texts]
    chosen, _ = sides_by_name(split, [*texts, *near], 3)
    assert chosen[:64].tolist() == chosen[64:].tolist()
    assert 0 < chosen.sum() < 128
    assert same_text("The  Cat\n") == same_text("the cat") != same_text("the cats")


def test_documents_that_share_a_text_are_one() -> None:
    texts = [(1, "A b"), (2, "c"), (3, "C "), (3, "d"), (4, "D"), (5, "a  B"), (6, "e")]
    assert merge_near_copies(texts) == {1: 1, 2: 2, 3: 2, 4: 2, 5: 1, 6: 6}
    assert merge_near_copies([(1, "x"), (2, "y"), (3, "X"), (3, "Y")]) == {1: 1, 2: 1, 3: 1}


def test_a_hash_says_of_each_by_itself_where_it_is() -> None:
    """More of them, in another order, move none; halves by chance do."""
    some, more = NAMES[:50], ["another", *reversed(NAMES)]

    def by_name(split: str, names: list[str]) -> dict[str, bool]:
        return dict(zip(names, sides_by_name(split, names, 0)[0].tolist(), strict=True))

    assert by_name("hash:0.5", some).items() <= by_name("hash:0.5", more).items()
    assert not by_name(HALVES, some).items() <= by_name(HALVES, more).items()
    again = sides_by_name("hash:0.5", some, 1)[0]
    assert again.tolist() != sides_by_name("hash:0.5", some, 0)[0].tolist()
    first = sides("hash:0.5", range(1, 51))[0]
    assert first.tolist() == sides("hash:0.5", range(1, 101))[0][:50].tolist()


@pytest.mark.parametrize(
    "split", ["odd", "hash", "hash:", "hash:0", "hash:1", "hash:0.0", "0.5", "field:"]
)
def test_what_divides_nothing_is_refused(split: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"hash:0.5, not {split!r}")):
        Splitting(split=split)


PARTS = {1: "train", 2: "test", 3: "train", 4: "test"}


def test_a_field_says_of_each_where_it_is() -> None:
    values = values_of("field:part", PARTS.items())
    chosen, measured = sides("field:part", [1, 2, 3, 4], values)
    assert chosen.tolist() == [True, False, True, False]
    assert (chosen ^ measured).all()
    assert resolved("field:part", values) == "field:part=train"
    assert resolved("hash:0.5", values) == "hash:0.5"
    chosen, _ = sides_by_name("field:part=test", [2, 1], 0, values)
    assert chosen.tolist() == [True, False]
    three = values_of("field:part=dev", [*PARTS.items(), (5, "dev")])
    assert sides("field:part=dev", [1, 5], three)[0].tolist() == [False, True]
    assert field_of("field:doc part=x=y") == "doc part"
    assert not field_of("halves")


@pytest.mark.parametrize(
    ("split", "items", "error", "said"),
    [
        ("field:part", [(1, "a"), (2, "b"), (3, "c")], UsageError, "has 3 values ('a', 'b', 'c')"),
        ("field:part", [(1, "a"), (2, "a")], UsageError, "has 1 values ('a'), not two"),
        ("field:part=c", [(1, "a"), (2, "b")], UsageError, "no such value; there are 'a', 'b'"),
        ("field:part", [], UsageError, "is of data that have fields"),
        ("field:part", [("x", "a"), ("x", "b")], InputError, "in both parts ('a' and 'b')"),
        ("field:part=a", [(1, "a"), (2, "a")], InputError, "nothing to measure on: all have 'a'"),
    ],
)
def test_a_field_that_does_not_divide_is_refused(
    split: str, items: list[tuple[Hashable, str]], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=re.escape(said)):
        values_of(split, items)


def test_words() -> None:
    assert (chosen_on(HALVES, "documents"), measured_on(HALVES, "documents")) == (
        "even documents", "odd documents",
    )  # fmt: skip
    assert chosen_on("hash:0.5", "documents") == "the documents of hash:0.5"
    assert measured_on("hash:0.5", "documents") == "the documents outside of hash:0.5"
    assert measured_on(EVERYTHING, "texts") == "all texts"
