"""Tables of very many heads: the clearest first, and how to see the others."""

from __future__ import annotations

import pytest

from attnviz.cli.listing import listed
from attnviz.core.heads import Head, Site
from attnviz.core.scores import HeadScores, Role, Score
from attnviz.drawing.renderable import FIRST_ROWS, MOST_ROWS


def scored(count: int) -> list[HeadScores]:
    """Heads with more and more of one role, in an order of their own; every third only rests."""
    found = []
    for n in range(count):
        size = (n * 7919 % count + 1) / count
        name, rests = ("first", True) if n % 3 == 2 else ("previous", False)
        evidence = Score(size, 0.1, size / 0.1, 20)
        role = Role(name, name, evidence, False, rests)
        found.append(HeadScores(Head(Site("decoder", n // 64), n % 64), {name: evidence}, (role,)))
    return found


def test_a_short_table_is_whole_and_in_order() -> None:
    heads = scored(MOST_ROWS)
    rows, more = listed(heads, role=None, sort="layer", top=None)
    assert list(rows) == [one for one in heads if not one.roles[0].rests]
    assert more == ""


@pytest.mark.parametrize("role", [None, "previous"])
def test_of_very_many_the_clearest_come_first(role: str | None) -> None:
    heads = scored(5120)
    rows, more = listed(heads, role=role, sort="layer", top=None)
    lifts = sorted((h.roles[0].evidence.lift for h in heads if not h.roles[0].rests), reverse=True)
    assert [one.roles[0].evidence.lift for one in rows] == lifts[:FIRST_ROWS]
    assert more == (
        f"the {FIRST_ROWS} heads with the clearest evidence of {len(lifts):,} "
        f"(--top {len(lifts)} lists them)"
    )


def test_an_order_that_was_asked_for_stays() -> None:
    rows, more = listed(scored(5120), role=None, sort="previous", top=None)
    means = [one.scores["previous"].mean for one in rows]
    assert means == sorted(means, reverse=True)
    assert means[0] > 0.99
    assert more.startswith(f"the {FIRST_ROWS} heads with the largest previous of ")


def test_whoever_says_how_many_gets_them() -> None:
    heads = scored(1024)
    rows, more = listed(heads, role=None, sort="layer", top=500)
    assert (len(rows), more) == (500, "")
    assert [one.head for one in rows] == sorted(one.head for one in rows)
    rows, more = listed(heads, role=None, sort="layer", top=None, everything=True)
    assert (len(rows), more) == (1024, "")
