"""What is shown of a lens: terminal, figures, tables, the command and the page."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.cli import main
from attnviz.drawing.labels import visible
from attnviz.features.lens import description
from attnviz.features.lens.description import share
from attnviz.features.lens.result import Lens
from tests.features.flow.test_pictures import shown
from tests.features.lens.test_lens import TEXT
from tests.viewing import opened

LAST = 16
"""The place of the last word."""


@pytest.fixture(scope="module")
def found() -> Lens:
    return av.lens(TEXT, answer="clock")


@pytest.fixture(scope="module")
def heads() -> Lens:
    return av.lens([TEXT, "the cat river the cat river"], by="head")


def test_the_table_fits_any_width(found: Lens, heads: Lens) -> None:
    for width in (24, 40, 80, 200):
        for part in (
            description.layers(found),
            description.along(found, LAST),
            description.head_table(heads),
        ):
            assert max(map(len, shown(part, width).splitlines())) <= width
    plain = shown(description.layers(found), 80, "ascii") + shown(
        description.along(found, LAST), 80, "ascii"
    )
    assert plain.isascii()


def test_the_terminal_says_what_the_result_holds(found: Lens) -> None:
    text = str(found)
    cells = found.along(LAST)
    assert f"“·clock” after ·blue ({LAST}) becomes the most probable word in the last layer" in text
    for cell in cells:
        assert f" {cell.rank:,} " in text
        assert f" {cell.entropy:.2f} " in text
    assert max(map(len, text.splitlines())) <= 100


def test_rows_are_the_words(found: Lens, heads: Lens) -> None:
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert len(rows) == sum(len(cell.top) for cell in found.cells)
    last = rows[-10]
    assert (last["layer"], last["position"], last["word"]) == ("3", f"{LAST}", " clock")
    assert float(last["probability"]) == pytest.approx(found.cells[-1].top[0].probability)
    words = heads.to_records()
    assert len(words) == 24 * 20
    assert words[0]["value"] == heads.heads[0].raises[0].value
    assert words[0]["in_text"] == heads.heads[0].in_text.share


def test_results_say_things_of_heads(found: Lens, heads: Lens) -> None:
    assert found.finding("a") is None
    told = heads.finding("a")
    assert set(told.said) == {heads.layout.name(one) for one in heads.layout}
    assert told.measures[0].values["3.0"][0] == heads.heads[18].in_text.share
    assert heads.compared().values["3.0"]["norm"] == heads.heads[18].norm


def test_the_command(capsys: Any) -> None:
    assert main(["lens", TEXT, "-q", "--answer", "clock", "--position", "-1"]) == 0
    assert "rank of ·clock" in capsys.readouterr().out
    assert main(["lens", TEXT, "--json", "--by", "head", "--predictions", "2"]) == 0
    assert len(json.loads(capsys.readouterr().out)["heads"][0]["raises"]) == 2


def test_heads_have_a_page_of_their_own(heads: Lens, tmp_path: Path, browser: Any) -> None:
    path = heads.save(tmp_path / "heads.html")
    with opened(browser, viewport={"width": 360, "height": 700}) as tab:
        tab.open(path, "head=2.0")
        words = tab.all("#grid td bdi")
        assert words == [visible(one.raises[0].token) for one in heads.heads]
        one = heads.heads[12]
        assert tab.text("#name") == "Head 2.0"
        for part, effects in (("raises", one.raises), ("lowers", one.lowers)):
            lines = tab.page.eval_on_selector_all(
                f"#{part} .bar-line",
                "all => all.map(o => [o.querySelector('bdi').textContent, "
                "o.lastChild.textContent.replace('−', '-')])",
            )
            assert [word for word, _ in lines] == [visible(effect.token) for effect in effects]
            told = [float(value) for _, value in lines]
            assert told == pytest.approx([effect.value for effect in effects], abs=0.006)
        assert heads.heads[12].in_text is not None
        assert share(heads.heads[12].in_text) in tab.text("#numbers")
        tab.page.focus("#grid td[tabindex='0']")
        tab.press("ArrowUp", "ArrowRight")
        assert tab.text("#name") == "Head 1.1"
        assert tab.hash() == "#head=1.1"
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
        names, rows = tab.table()
        assert names == [*heads.to_records()[0]]
        assert len(rows) == len(heads.to_records())
        assert tab.saved("svg").count(b"<rect") == len(heads.heads) + 1


def test_the_page(found: Lens, tmp_path: Path, browser: Any) -> None:
    path = found.save(tmp_path / "lens.html")
    with opened(browser) as tab:
        tab.open(path)
        assert tab.text("#name") == f"after layer 3, after ·blue ({LAST})"
        words = tab.all("#words bdi")
        assert words[0] == "·clock"
        assert words == [visible(one.token) for one in found.cells[-1].top]
        assert len(words) == 10
        added = tab.all("#added .bar-line > span")
        told = [float(one.replace("\u2212", "-")) for one in added[:6]]
        assert told == pytest.approx(found.cells[-1].added.heads, abs=0.006)
        tab.page.focus("#grid td[tabindex='0']")
        tab.press("ArrowUp", "ArrowLeft")
        assert tab.text("#name") == f"after layer 2, after ·old ({LAST - 1})"
        assert tab.hash() == f"#at=3:{LAST - 1}"
        tab.press("Escape")
        assert not tab.text("#added")
        tab.page.hover("#grid tbody tr:nth-child(2) td:nth-child(5)")
        tab.settle()
        assert tab.text("#name") == "after layer 0, after ·the (3)"
        names, rows = tab.table()
        assert names[3] == "word"
        assert len(rows) == len(found.cells)
        assert tab.saved("svg").count(b"<rect") == len(found.cells) + 1
    with opened(browser, viewport={"width": 360, "height": 700}, has_touch=True) as tab:
        tab.open(path)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
        tab.page.tap("#grid tbody tr:nth-child(1) td:nth-child(15)")
        tab.settle()
        assert "the embeddings" in tab.text("#name")
