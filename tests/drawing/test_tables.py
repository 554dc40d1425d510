"""Tables of other libraries: the numbers of a result, and a clear line where one is missing."""

from __future__ import annotations

import csv
import io
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.drawing import tables
from attnviz.errors import UsageError
from tests.cli.calling import ok

TEXT = "the cat river moon stone bread the cat river moon stone"


@pytest.fixture(scope="module")
def heads() -> av.Heads:
    return av.heads(TEXT)


@pytest.fixture(scope="module")
def effects() -> Any:
    return av.ablate([TEXT], select="2.*", method="zero")


def test_parquet_holds_what_the_records_hold(heads: av.Heads, effects: Any, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for found in (heads, effects):
        path = found.save(tmp_path / "x.parquet")
        assert parquet.read_table(path).to_pylist() == found.to_records()


def test_parquet_on_the_command_line(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    (tmp_path / "t.txt").write_text(f"{TEXT}\n{TEXT} bread\n")
    for line in (
        ["ablate", TEXT, "--select", "2.0", "--method", "zero"],
        ["profile", str(tmp_path / "t.txt"), "-o", str(tmp_path / "p.csv")],
        ["heads", TEXT],
    ):
        path = tmp_path / f"{line[0]}.parquet"
        assert main([*line, "-q", "-o", str(path)]) == 0
        assert {"head", "heads"} & set(parquet.read_table(path).column_names)
    table = (tmp_path / "p.csv").read_text().splitlines()[2:]  # the first row says what made it
    plain = av.profile(str(tmp_path / "t.txt")).to_csv().splitlines()[2:]
    assert [line.removesuffix(",") for line in table] == plain


def test_polars(effects: Any) -> None:
    polars = pytest.importorskip("polars")
    assert isinstance(effects.to_polars(), polars.DataFrame)
    assert effects.to_polars().to_dicts() == effects.to_records()
    capture = av.capture("a b", select="2.0")
    assert capture.to_polars()["weight"].sum() == pytest.approx(3, abs=1e-5)


def test_xarray_by_layer_and_head(heads: av.Heads) -> None:
    pytest.importorskip("xarray")
    found = heads.to_xarray().set_index(row=["layer", "index"]).unstack("row")
    assert dict(found.sizes) == {"layer": 4, "index": 6}
    row = next(one for one in heads.to_records() if (one["layer"], one["index"]) == (2, 3))
    assert float(found["induction.mean"].sel(layer=2, index=3)) == row["induction.mean"]


@pytest.mark.parametrize("library", ["pandas", "polars", "xarray"])
def test_a_missing_library_is_named_with_its_remedy(
    heads: av.Heads, monkeypatch: pytest.MonkeyPatch, library: str
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    said = f"{library} is not installed; pip install {library}, or use to_records"
    with pytest.raises(UsageError, match=said):
        getattr(heads, f"to_{library}")()


def test_models_as_csv(capsys: pytest.CaptureFixture[str]) -> None:
    rows = list(csv.DictReader(io.StringIO(ok(capsys, "models", "--csv"))))
    assert {"demo-gpt2", "demo-bert"} <= {row["name"] for row in rows}
    assert main(["models", "--csv", "--json"]) == 2


def test_half_a_character_is_spelled_in_every_table() -> None:
    """A token that is no text of UTF-8 stands in a table as in a JSON file."""
    read = pytest.importorskip("pyarrow.parquet").read_table
    pytest.importorskip("polars")
    recorded = av.from_arrays([np.full((1, 2, 2), 0.5)], ["a", "b\udc80"])
    rows, maps = [{"token": "b\udc80"}, {"token": None}], recorded.named_maps()
    for token in (
        recorded.to_pandas()["query_token"].iloc[-1], recorded.to_polars()["key_token"][-1],
        tables.frame(rows)["token"][0], tables.polars_frame(rows)["token"][0],
        read(io.BytesIO(tables.parquet(rows)))["token"][0].as_py(),
    ):  # fmt: skip
        assert token == "b\\udc80"
    for end in (".csv", ".json"):
        about = {"quantity": "weights", "about": {}}
        assert b"b\\udc80" in tables.maps_bytes(end, maps, recorded.layout, **about)
