"""What heads are chosen on and what figures are from, by one setting."""

from __future__ import annotations

import re

import numpy as np
import pytest

from attnviz.core.split import (
    EVERYTHING,
    HALVES,
    Splitting,
    chosen_on,
    measured_on,
    sides,
    sides_by_name,
)
from attnviz.errors import UsageError

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


@pytest.mark.parametrize("split", ["odd", "hash", "hash:", "hash:0", "hash:1", "hash:0.0", "0.5"])
def test_what_divides_nothing_is_refused(split: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"hash:0.5, not {split!r}")):
        Splitting(split=split)


def test_words() -> None:
    assert (chosen_on(HALVES, "documents"), measured_on(HALVES, "documents")) == (
        "even documents", "odd documents",
    )  # fmt: skip
    assert chosen_on("hash:0.5", "documents") == "the documents of hash:0.5"
    assert measured_on("hash:0.5", "documents") == "the documents outside of hash:0.5"
    assert measured_on(EVERYTHING, "texts") == "all texts"
