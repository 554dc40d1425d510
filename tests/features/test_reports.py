"""What reports share: rows for other programs, text, and what notebooks show."""

from __future__ import annotations

import csv
import io
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.core.heads import Head, Site
from attnviz.errors import SelectionError, UsageError
from tests import ROOT

ALL = ["heads", "profile", "ablate", "logits", "syntax", "coref", "flow", "circuits", "diff"]
INPUTS = ROOT / "sample_inputs"
TEXT = "one two three one two three <b>one</b> two"


@pytest.fixture(scope="module")
def source() -> Any:
    return av.load("demo-gpt2")


@pytest.fixture(scope="module")
def capture(source: Any) -> Any:
    return av.capture(TEXT, model=source)


@pytest.fixture(scope="module")
def reports(source: Any, capture: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    texts = tmp_path_factory.mktemp("texts") / "t.txt"
    texts.write_text("one two three one two\na b c a b c\n")
    other = av.capture(TEXT.replace("three", "two"), model=source)
    return {
        "heads": av.heads(capture), "profile": av.profile(texts, model=source),
        "ablate": av.ablate(TEXT, model=source, select="0.5,2.4"),
        "logits": av.logits(TEXT, model=source),
        "syntax": av.syntax(INPUTS / "treebank.conllu", model=source),
        "coref": av.coref(INPUTS / "pronouns.tsv", model=source),
        "flow": av.flow("one two three one two", model=source),
        "circuits": av.circuits(model=source, sample=50),
        "diff": av.diff(capture, other, align="position"),
    }  # fmt: skip


def test_records_have_the_figures(reports: dict[str, Any]) -> None:
    heads = reports["heads"].to_records()
    assert len(heads) == 24
    for row, scores in zip(heads, reports["heads"].heads, strict=True):
        assert (row["layer"], row["index"]) == (scores.head.layer, scores.head.index)
        assert row["does"] == (scores.does.name if scores.does else None)
        for name, score in scores.scores.items():
            assert row[f"{name}.mean"] is score.mean
            assert row[f"{name}.rows"] == score.rows
    profile = reports["profile"].to_records()
    first = next(row for row in profile if row["score"] == "previous")
    assert first["mean"] == reports["profile"].heads[0].estimates["previous"].mean
    assert [row["effect"] for row in reports["ablate"].to_records()] == [
        effect.change for effect in reports["ablate"].effects
    ]
    parts = reports["logits"].to_records()
    assert sum(row["value"] for row in parts) == pytest.approx(reports["logits"].logit, abs=1e-3)


def test_records_of_relations_and_antecedents(reports: dict[str, Any]) -> None:
    syntax = reports["syntax"]
    rows = syntax.to_records()
    assert [row["relation"] for row in rows] == [found.name for found in syntax.relations]
    for row, found in zip(rows, syntax.relations, strict=True):
        assert row["accuracy"] == (found.best.accuracy.value if found.best else None)
    sure = [row for row in rows if row["role"]]
    assert len(sure) == sum(
        bool(found.best) and (role.head, role.relation) == (found.best.head, found.name)
        for role in syntax.roles
        for found in syntax.relations
    )
    coref = reports["coref"]
    rows = [row for row in coref.to_records() if row["kind"] == "all"]
    assert [row["head"] for row in rows] == [
        coref.layout.name(found.head) for found in coref.kinds[0].ranked
    ]
    assert rows[0]["accuracy"] == coref.best.accuracy.value


def test_records_of_flows_circuits_and_differences(reports: dict[str, Any]) -> None:
    flow = reports["flow"]
    rows = flow.to_records()
    assert len(rows) == flow.reach.sum()
    for row in rows:
        assert row["share"] == pytest.approx(flow.total[row["position"], row["key"]], abs=1e-4)
    edges = reports["circuits"].to_records()
    assert [row["excess"] for row in edges] == [edge.excess for edge in reports["circuits"].edges]
    diff = reports["diff"]
    far = [row for row in diff.to_records() if row["figure"] == "js distance"]
    assert [row["change"] for row in far] == [head.distance.mean for head in diff.heads]
    assert far[0]["head"] == diff.heads[0].name


@pytest.mark.parametrize("name", ALL)
def test_pandas_has_what_records_have(reports: dict[str, Any], name: str) -> None:
    pytest.importorskip("pandas")
    records = reports[name].to_records()
    frame = reports[name].to_pandas()
    assert list(frame.columns) == list(records[0])
    assert len(frame) == len(records)


def test_csv_is_the_records(reports: dict[str, Any]) -> None:
    rows = list(csv.DictReader(io.StringIO(reports["heads"].to_csv())))
    expected = [{k: "" if v is None else str(v) for k, v in row.items()}
                for row in reports["heads"].to_records()]  # fmt: skip
    assert rows == expected
    assert replace(reports["heads"], heads=()).to_csv() == "layer,index,head,does,rests,roles\n"


def test_without_pandas(reports: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(
        UsageError, match="pandas is not installed; pip install pandas, or use to_records"
    ):
        reports["heads"].to_pandas()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("heads", ["layer ↓  head →", "role", "previous", "native backend"]),
        ("profile", ["layer ↓  head →", "95 %", "2 texts"]),
        ("ablate", ["layer ↓  head →", "effect", "loss in nats"]),
        ("logits", ["probability", "adds", "native backend"]),
        ("syntax", ["layer ↓  head →", "relation", "95 %", "fixed offset"]),
        ("coref", ["layer ↓  head →", "baseline", "95 %", "measured on"]),
        ("flow", ["own token", "native backend", "three"]),
        ("circuits", ["layer ↓  head →", "random", "Composition", "native backend"]),
        ("diff", ["distance", "rows matched by position", "largest change"]),
    ],
)
def test_printing_shows_the_grid_and_the_evidence(
    reports: dict[str, Any], name: str, says: list[str]
) -> None:
    text = str(reports[name])
    assert all(word in text for word in says), text
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) <= 100


class Tags(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize("name", ALL)
def test_notebooks_get_words_for_every_picture(reports: dict[str, Any], name: str) -> None:
    tags = Tags(reports[name]._repr_html_())
    ((_, image),) = [found for found in tags.found if found[0] == "img"]
    assert image["src"].startswith("data:image/png;base64,iVBOR")
    assert "demo-gpt2" in image["alt"]
    assert not any("height:" in (a.get("style") or "").replace("height:auto", "")
                   for _, a in tags.found)  # fmt: skip


def test_heads_are_a_grid_with_a_table(reports: dict[str, Any]) -> None:
    report = reports["heads"]
    tags = Tags(report._repr_html_())
    rows = sum(tag == "tr" for tag, _ in tags.found) - 1
    assert rows == sum(bool(head.roles) for head in report.heads)
    assert {"head", "role", "score", "chance", "1.4", "previous"} <= set(tags.words)
    alt = next(a["alt"] for tag, a in tags.found if tag == "img")
    assert "previous 0.5, 1.4" in alt
    assert f"no role: {24 - rows}" in alt


def test_a_heatmap_says_where_most_of_it_is(capture: Any) -> None:
    picture = av.heatmap(capture, "1.4")
    weights = capture["1.4"]
    _, column = np.unravel_index(weights.argmax(), weights.shape)
    assert f"({weights.max():.2f})" in picture.described()
    assert capture.tokens[column].strip() in picture.described()
    assert "<b>" not in av.heatmap(capture, "1.4")._repr_html_()


def test_a_head_by_its_name(capture: Any) -> None:
    head = Head(Site("decoder", 1), 4)
    assert (capture["1.4"] == capture.maps[head.site][4]).all()
    assert (capture["L1H4"] == capture[head]).all()
    assert capture.tokens == capture.inputs.sides["decoder"].queries.texts
    assert capture.source_tokens == capture.tokens
    with pytest.raises(SelectionError, match=r"'1\.\*' are 6 heads; name one"):
        capture["1.*"]
    with pytest.raises(SelectionError):
        capture["9.9"]
    with pytest.raises(UsageError, match=r"a head's name such as '4\.11' is needed, not 3"):
        capture[3]
    part = av.capture(TEXT, select="0.*")
    with pytest.raises(SelectionError, match=r"does not hold 1\.4; capture it again"):
        part["1.4"]


def test_files_that_were_read_are_captures_too(capture: Any, tmp_path: Path) -> None:
    read = av.read(av.write_capture(capture, tmp_path / "c.npz"))
    assert (read["1.4"] == capture["1.4"]).all()
    assert read.tokens == capture.tokens
