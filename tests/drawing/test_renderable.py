"""Which files a result can be written to, and what it says where it has no such form."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

import attnviz as av
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.record import Record
from attnviz.core.result import Interval
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
from attnviz.drawing.renderable import FORMS, Figured, Renderable, picture_format, printed
from attnviz.errors import OutputError, UsageError
from attnviz.features import listed
from attnviz.features.results import RESULTS, read, result_class
from tests import ROOT

STARTS = {
    ".json": b"{", ".csv": b"layer,", ".parquet": b"PAR1", ".png": b"\x89PNG", ".svg": b"<?xml",
    ".pdf": b"%PDF",
}  # fmt: skip


@dataclass(frozen=True)
class Bare(Renderable, Record):
    """A result whose folder has no form at all: it is its JSON."""

    schema: ClassVar[str] = "attnviz.bare/1"
    command: ClassVar[str] = "bare"
    value: int = 1


@pytest.fixture(scope="module")
def heads() -> av.Heads:
    return av.heads("the cat and the cat")


@pytest.mark.parametrize("suffix", [*STARTS, ".Json"])
def test_a_suffix_decides_the_form(heads: av.Heads, tmp_path: Path, suffix: str) -> None:
    path = heads.save(tmp_path / f"x{suffix}")
    assert path == tmp_path / f"x{suffix}"
    assert path.read_bytes().startswith(STARTS[suffix.lower()])
    assert path.read_bytes() == heads.to_bytes(suffix)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_json_that_was_saved_is_read_as_the_same(heads: av.Heads, tmp_path: Path) -> None:
    assert read(heads.save(tmp_path / "x.json")) == heads
    odd = replace(heads, source=replace(heads.source, model="a\udcff"))  # a name that is no UTF-8
    again = read(odd.save(tmp_path / "y.json"))
    assert again == replace(heads, source=replace(heads.source, model=r"a\udcff"))
    for suffix in (".csv", ".svg"):  # what was read can be written in every form
        again.save(tmp_path / f"y{suffix}")


@pytest.mark.parametrize("name", ["x", "x.html", "x.htm", "x.gif", "x.json.gz", ".json", "x."])
def test_an_unknown_suffix_names_those_that_work(heads: av.Heads, tmp_path, name: str) -> None:
    says = rf"^cannot write '{name}'; name the file \.json, \.csv, \.parquet, \.png, \.svg, \.pdf$"
    with pytest.raises(UsageError, match=says):
        heads.save(tmp_path / name)
    with pytest.raises(UsageError, match=says):
        av.Heads.check_suffix(Path(name))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_is_none(heads: av.Heads, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match=r"choose another place|does not exist"):
        heads.save(tmp_path / "no" / "x.json")


def test_a_result_without_forms_says_which_it_lacks(tmp_path: Path) -> None:
    bare = Bare()
    assert Bare.suffixes() == (".json",)
    assert bare.save(tmp_path / "x.json").read_text() == bare.to_json(bare.made)
    for ask, says in [
        (bare.to_records, "Bare has no rows"),
        (bare.to_pandas, "Bare has no rows"),
        (bare.to_csv, "Bare has no rows"),
        (bare.figure, "Bare has no picture"),
        (bare.page, "Bare has no page"),
        (lambda: bare.save("x.csv"), r"cannot write 'x\.csv'; name the file \.json$"),
        (lambda: bare.save("x.html"), r"cannot write 'x\.html'; name the file \.json$"),
    ]:
        with pytest.raises(UsageError, match=says):
            ask()
    assert bare.finding("f") is None
    assert bare._picture_png() is None
    assert bare._repr_html_() is None
    assert str(bare) == repr(bare) == "Bare(value=1)"


def test_a_page_beside_a_result_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A module of the right name is all that a form needs."""
    package = tmp_path / "some_feature"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "result.py").write_text(
        "from tests.drawing.test_renderable import Bare\nclass Paged(Bare):\n    'With a page.'\n"
    )
    (package / "page.py").write_text("def page(found):\n    return b'<!doctype html>'\n")
    (package / "tables.py").write_text("COLUMNS = ('a', 'b')\ndef rows(found):\n    return []\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    from some_feature.result import Paged

    assert Paged.suffixes() == (".json", ".csv", ".parquet", ".html", ".htm")
    for name in ("x.html", "x.HTM"):
        assert Paged().save(tmp_path / name).read_bytes() == b"<!doctype html>"
    assert Paged().to_csv() == "a,b\n"
    assert Paged().to_records() == []
    for name in [name for name in sys.modules if name.startswith("some_feature")]:
        monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("name", sorted(set(RESULTS) - {"attnviz.shapes"}))
def test_the_forms_of_every_result_have_their_function(name: str) -> None:
    found: Any = result_class(name)
    assert issubclass(found, Renderable)
    functions = {"terminal": ["parts"], "tables": ["rows", "listing"], "figure": ["draw"],
                 "page": ["page"], "finding": ["finding", "figures"]}  # fmt: skip
    shown = replace_nothing(found)
    for form, names in functions.items():
        module: ModuleType | None = shown._form(form)
        own = [callable(getattr(module, function, None)) for function in names]
        assert module is None or any(own), f"{name}: {form}"
    assert set(found.suffixes()) >= {".json"}
    assert set(found.suffixes()) <= set(FORMS)


def replace_nothing(cls: type[Renderable]) -> Renderable:
    """An instance without values, to ask for its forms."""
    return object.__new__(cls)


def test_pictures_alone() -> None:
    assert [picture_format(Path(f"x{end}")) for end in (".png", ".SVG", ".pdf")] == [
        "png", "svg", "pdf"
    ]  # fmt: skip
    for name in ("x.json", "x", "x.gif"):
        with pytest.raises(UsageError, match=r"cannot write .*; name the file \.png, \.svg, \.pdf"):
            picture_format(Path(name))
    with pytest.raises(TypeError, match="Figured has no picture"):
        Figured().to_bytes("png")


def test_a_page_takes_the_name_that_pictures_take() -> None:
    film = av.read(ROOT / "sample_inputs" / "phases" / "demo-gpt2.json")
    assert b" of a long run becomes " in film.to_bytes("html", name="a long run")


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
