"""One description: the terminal's table, CSV and comparisons say the same of the same columns."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec

import pytest

import attnviz as av
from attnviz.core.findings import Interval
from attnviz.core.heads import Head, Layout, Site
from attnviz.drawing.description import (
    Column,
    Listing,
    by_head,
    estimate_column,
    head_column,
    interval,
    mean_column,
    percent,
)
from attnviz.drawing.forms import printed
from attnviz.features import listed

LAYOUT = Layout({"decoder": (2, 2)})


@dataclass(frozen=True)
class Found:
    head: Head
    share: Interval
    token: str
    count: int = 3


FOUND = (
    Found(Head(Site("decoder", 0), 1), Interval(0.5, 0.4, 0.6), "the"),
    Found(Head(Site("decoder", 1), 0), Interval(None), "cat", 0),
)
COLUMNS = (
    head_column(LAYOUT), Column("token", "token", "token", left=True),
    estimate_column("share", "share", "%", percent, interval),
    mean_column("mean", "share", "mean", percent).hidden(),
    Column("", lambda found: found.count, "cases"), Column("count", "count"),
)  # fmt: skip


def test_programs_have_every_end_of_an_interval_under_one_name() -> None:
    listing = Listing(COLUMNS, FOUND)
    first, second = listing.rows()
    assert list(first) == listing.names() == Listing(COLUMNS).names()
    assert listing.names() == [
        "layer", "index", "head", "token", "share", "share_low", "share_high", "mean", "count",
    ]  # fmt: skip
    assert (first["head"], first["share"], first["share_low"], first["mean"]) == (
        "0.1", 0.5, 0.4, 0.5,
    )  # fmt: skip
    assert second["share"] is None


def test_people_see_labelled_columns_and_dashes_for_what_is_not_known() -> None:
    listing = Listing(COLUMNS, FOUND, unknown=lambda found: not found.count)
    heading, _, *rows = printed(listing.table()).splitlines()
    assert heading.split() == ["head", "token", "%", "95", "%", "cases"]
    assert [row.split() for row in rows] == [
        ["0.1", "the", "50", "40", "to", "60", "3"],
        ["1.0", "cat", "–", "–", "–"],
    ]
    assert len(printed(listing.table(1)).splitlines()) == 3


def test_a_column_can_be_of_a_part_of_a_record() -> None:
    column = Column("token", "token", "token").under(lambda pair: pair[1])
    assert Listing([column], [("x", FOUND[0])]).rows() == [{"token": "the"}]


def test_runs_are_compared_by_attributes_of_heads() -> None:
    assert by_head(LAYOUT, FOUND, share="share.value") == {
        "0.1": {"share": 0.5}, "1.0": {"share": None},
    }  # fmt: skip


DESCRIBED = [
    feature.package
    for feature in listed.FEATURES
    if find_spec(f"{feature.package}.description") is not None
]


@pytest.mark.parametrize("package", DESCRIBED)
def test_what_is_described_has_the_functions_of_its_forms(package: str) -> None:
    description = import_module(f"{package}.description")
    assert callable(description.parts)
    assert hasattr(description, "listing") or hasattr(description, "rows")


def test_ends_of_intervals_are_called_alike() -> None:
    columns = av.sinks("the cat and the cat", ablate=True).to_records()[0]
    ends = [name for name in columns if name.endswith(("_low", "_high"))]
    assert ends
    assert {name.rpartition("_")[0] for name in ends} <= set(columns)
