"""Named parts: how they are written, found, and kept apart."""

from __future__ import annotations

import re
import time
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest

from attnviz.core import spans
from attnviz.core.spans import (
    Span,
    check_apart,
    depth,
    elsewhere,
    found_in,
    picked,
    ranges_of,
    span_query,
)
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
from attnviz.core.tokens import Tokens
from attnviz.errors import InputError, UsageError

TEXT = "a cat, a cat and a cat"


@pytest.mark.parametrize(
    ("written", "places"),
    [
        ("cat", [(2, 5)]),
        ("first:cat", [(2, 5)]),
        ("#2:cat", [(9, 12)]),
        ("all:cat", [(2, 5), (9, 12), (19, 22)]),
        ("regex:c.t,", [(2, 6)]),
        ("all:regex:a c", [(0, 3), (7, 10), (17, 20)]),
        ("#3:regex:cat", [(19, 22)]),
        ("text:a cat", [(0, 5)]),
    ],
)
def test_texts_and_patterns_are_found(written: str, places: list[tuple[int, int]]) -> None:
    found, more = found_in(span_query("one", written), TEXT)
    assert found == places
    count = len(re.findall(span_query("one", written).value, TEXT))
    assert (f"is in the text {count} times" in more) == (count > len(places))


def test_a_text_may_look_like_a_kind() -> None:
    assert found_in(span_query("one", "text:regex:"), "the regex: it") == ([(4, 10)], "")


def test_regions_are_looked_through_one_by_one() -> None:
    query = span_query("one", "all:regex:a.*t$")
    assert found_in(query, TEXT, [(0, 5), (7, 12)])[0] == [(0, 5), (7, 12)]


@pytest.mark.parametrize(
    ("written", "ranges"),
    [("tokens:3", ((3, 4),)), ("tokens:12-40", ((12, 41),)), ("chars:9-10,2-3", ((2, 4), (9, 11)))],
)
def test_ranges_have_both_ends(written: str, ranges: tuple[tuple[int, int], ...]) -> None:
    assert ranges_of(span_query("one", written)) == ranges


@pytest.mark.parametrize(
    ("name", "written", "said"),
    [
        ("", "cat", "is no name"), (" a", "cat", "is no name"),
        ("elsewhere", "cat", "a meaning of its own"), ("last", "cat", "a meaning of its own"),
        ("a", "", "span 'a' is empty"), ("a", "all:", "span 'a' is empty"),
        ("a", "all:tokens:3", "are found at one place"),
    ],
)  # fmt: skip
def test_what_cannot_be_looked_for_is_refused(name: str, written: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        span_query(name, written)


@pytest.mark.parametrize("written", ["tokens:9-3", "tokens:x", "tokens:-3", "chars:1-4,3-6"])
def test_no_ranges_are_refused_by_name(written: str) -> None:
    with pytest.raises(UsageError, match="span 'a'"):
        ranges_of(span_query("a", written))


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("dog", "span 'a': 'dog' is not in the text"),
        ("#4:cat", "span 'a': 'cat' is in the text only 3 times"),
        ("regex:d.g", "span 'a': a match of 'd.g' is not in the text"),
        ("regex:x*", "is not in the text"),
    ],
)
def test_what_is_missing_is_refused_by_name(written: str, said: str) -> None:
    with pytest.raises(InputError, match=re.escape(said)):
        found_in(span_query("a", written), TEXT)


def test_what_is_no_pattern_is_refused() -> None:
    with pytest.raises(UsageError, match="span 'a': '\\(' is no pattern"):
        found_in(span_query("a", "regex:("), TEXT)
    with pytest.raises(UsageError, match="is no pattern: it is nested too deeply"):
        found_in(span_query("a", "regex:" + "(" * 5000 + ")" * 5000), TEXT)


@pytest.mark.parametrize("pattern", [r"(\w+\s?)*\d$", "(?:a?){60}a{60}b", "(?R)", "(a+)+c"])
def test_a_pattern_has_a_second(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a tenth of it."""
    assert spans.SECONDS == 1
    monkeypatch.setattr(spans, "SECONDS", 0.1)
    text = "a" * 59 + " cat" * 2000
    before = time.thread_time()
    with pytest.raises((UsageError, InputError), match="span 'a': ") as refused:
        found_in(span_query("a", f"regex:{pattern}"), text, [(0, 4000), (4000, len(text))])
    assert time.thread_time() - before < 5
    if refused.type is UsageError:
        told = "was not done with a text of 8,059 characters after 0.1 s; write a pattern without"
        assert f"{told} repetitions of repetitions" in str(refused.value)


def test_spans_lie_apart_or_inside() -> None:
    outer, inner, far = Span("o", ((0, 5),)), Span("i", ((1, 3),)), Span("f", ((7, 9),))
    check_apart([outer, inner, far])
    three = [outer, inner, far]
    assert [depth(span, span.ranges[0], three) for span in three] == [0, 1, 0]
    pieces = Span("p", ((1, 2), (8, 9)))
    check_apart([outer, pieces, far])
    assert [depth(pieces, run, [*three, pieces]) for run in pieces.ranges] == [2, 1]
    with pytest.raises(InputError, match="'o' and 'x' overlap"):
        check_apart([outer, Span("x", ((4, 8),))])
    with pytest.raises(InputError, match="'f' and 'x' overlap"):
        check_apart([far, Span("x", ((1, 2), (8, 11)))])
    with pytest.raises(InputError, match="'o' and 'x' are the same tokens"):
        check_apart([outer, Span("x", ((0, 5),))])
    assert elsewhere([outer, inner, far], 10).positions == (5, 6, 9)


def test_spans_follow_what_is_left_of_a_sequence() -> None:
    spans = (Span("a", ((0, 2), (4, 6))), Span("b", ((2, 3),)))
    assert picked(spans, [1, 3, 4, 5]) == (Span("a", ((0, 1), (2, 4))),)


@pytest.mark.parametrize("ranges", [(), ((0, 4),), ((2, 2),), ((-1, 1),)])
def test_tokens_have_no_span_outside_of_them(ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(ValueError, match="outside of 3 tokens"):
        Tokens(("a", "b", "c"), spans=(Span("x", ranges),))


def test_tokens_say_what_the_text_said() -> None:
    pieces = Tokens(("[CLS]", "a", "key", "##board", "on", "."), words=(-1, 0, 1, 1, 2, 3))
    assert pieces.running([1, 2, 3]) == "a keyboard"
    assert pieces.running([3, 4, 5]) == "##board on ."
    assert Tokens((" a", " key", "board")).running([0, 1, 2]) == " a keyboard"
    assert Tokens(("a", "b")).running([]) == ""


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


NAMED = Tokens(
    (" The", " cat", "sat", " ,", " the", " key", "board", " cat"),
    words=(0, 1, 2, 3, 4, 5, 5, 6),
    spans=(Span("a", ((1, 3),)),),
)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [(0, (0,)), (-1, (7,)), ("3-5", (3, 4, 5)), ("-3-7", (5, 6, 7)), ("sat", (2,)), (",", (3,)),
     ("keyboard", (5, 6)), ("span:a", (1, 2)), ("all", tuple(range(8))),
     ("2, span:a,-1", (1, 2, 7)),
     ("cat", "occurs at positions 1, 7"), ("8", "no position 8"),
     ("5-3", "ends behind its start, unlike 5-3"),
     ("span:{b}", "no text has a span '{b}'; choose from a"), ("{}", "no token '{}'; there"),
     ("", "commas between"), ("1,,2", "commas between"), ("9" * 5000, "no token '999")],
)  # fmt: skip
def test_tokens_are_named_in_one_way(asked: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert NAMED.locate(asked) == expected
    else:
        with pytest.raises(UsageError, match=re.escape(expected)):
            NAMED.locate(asked)
    assert NAMED.locate("sat,dog,span:z,99", some=True) == (2,)
    assert NAMED.locate("cat,6-20,-20", some=True) == (1, 6, 7)
    with pytest.raises(UsageError, match="'a'"):  # it is in the other part
        NAMED.locate("span:a", range(4, 8))
