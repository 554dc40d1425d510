"""The page of a long text, in a browser, against its whole maps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

import attnviz as av
from attnviz.errors import AttnvizError, UsageError
from attnviz.models.controls import FreshConfig
from benchmarks.drawn import Shape, write
from tests.viewing import Opened, data_of, opened

MODEL = FreshConfig(heads=2, layers=1, causal=True, d_model=32)
TEXT = " ".join(f"w{n * n % 211}" for n in range(2100))
SIZE = 32
"""Tokens along a tile: 128 tiles hold a text of 2,100 or so tokens."""


@pytest.fixture(scope="module")
def whole() -> np.ndarray:
    """The map of head 0.1, [T, T]."""
    return av.capture(TEXT, model=MODEL, select="0.1")["0.1"].astype(np.float64)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    page = av.view(TEXT, model=MODEL)
    assert len(page.page) < 3e6  # a whole map alone would take 3 MB
    return page.save(tmp_path_factory.mktemp("long") / "long.html")


@pytest.fixture(scope="module")
def shown(browser: Any, path: Path) -> Iterator[Opened]:
    with opened(browser) as found:
        yield found.open(path)


def cells(found: Opened) -> tuple[int, dict[tuple[int, int], float]]:
    names, lines = found.table()
    assert names[:4] == ["head", "query", "key", "tokens"]
    assert {line[0] for line in lines} == {"0.1"}
    (size,) = {int(line[3]) for line in lines}
    return size, {(int(line[1]), int(line[2])): float(line[4]) for line in lines}


def step(top: float) -> float:
    """How far a weight can be off: a half of a step of 255, by the square root."""
    return top * 1.01 / 255 + 1e-6


@pytest.mark.parametrize("what", [pytest.param("", marks=pytest.mark.slow), "&sum"])
def test_tiles_are_the_largest_weights_and_sums_of_the_whole_map(
    shown: Opened, whole: np.ndarray, what: str
) -> None:
    size, found = cells(shown.go(f"head=0.1{what}"))
    assert size == SIZE
    assert "Exact over all weights" in shown.text("#exact")
    top = 0.0
    for (query, key), value in found.items():
        part = whole[query : query + size, key : key + size]
        expected = part.sum() / len(part) if what else part.max()
        most = max(1.0, whole[:SIZE, :SIZE].sum() / SIZE) if what else whole.max()
        assert value == pytest.approx(expected, abs=step(most))
        top = max(top, value)
    assert top == pytest.approx(1, abs=0.01)  # the first row has one key
    assert len(found) > 0.95 * (len(whole) / SIZE) ** 2 / 2


def test_finer_cells_are_the_largest_weights_of_each_row(shown: Opened, whole: np.ndarray) -> None:
    shown.go("head=0.1&at=1024,512,100")
    size, found = cells(shown)
    assert size == 1
    said = shown.text("#exact")
    kept = int(said.split(" largest weights")[0].split()[-1])
    for query in range(1024, 1124):
        row = whole[query]
        least = np.sort(row)[-kept]
        there = {key: found[query, key] for key in range(512, 612) if (query, key) in found}
        expected = {key for key in range(512, 612) if row[key] > least * 1.0001}
        assert expected <= there.keys()
        assert all(row[key] >= least * 0.9999 for key in there)
        for key, value in there.items():
            assert value == pytest.approx(row[key], abs=step(whole.max()))
    share = np.sort(whole[1024:1124])[:, -kept:].sum(1).mean()
    assert abs(int(said.split(" % of the weight")[0].split()[-1]) - 100 * share) < 2


def test_dragging_zooms_and_keys_do(shown: Opened) -> None:
    shown.go("head=0.0")
    box = shown.page.locator("#map").bounding_box()
    shown.page.mouse.move(box["x"] + 140, box["y"] + 240)
    shown.page.mouse.down()
    shown.page.mouse.move(box["x"] + 190, box["y"] + 290, steps=3)
    shown.page.mouse.up()
    shown.settle()
    assert "at=" in shown.hash()
    assert "a cell is" in shown.text("#where")
    shown.page.focus("#map")
    shown.press("-", "ArrowDown")
    assert shown.text("#listed").startswith("Largest weights in the cell")
    shown.press("Escape", "0")
    assert "at=" not in shown.hash()
    shown.click("#zoom-in")
    shown.click("#pairs button >> nth=0")
    assert "one query and one key" in shown.text("#where")
    assert shown.page.locator("#text mark").count() == 1


@pytest.mark.parametrize("side", [300, 700])
def test_cells_of_several_tokens_say_what_is_certain(
    shown: Opened, whole: np.ndarray, side: int
) -> None:
    """A cell has its largest weight, or all its weights are below what the page says."""
    assert 1 < certain(shown, whole, (900, 300, side)) < SIZE


def certain(shown: Opened, whole: np.ndarray, part: tuple[int, int, int]) -> int:
    """Compare a part (row, key, side) below the diagonal; returns the tokens of a cell."""
    size, found = cells(shown.go(f"head=0.1&at={part[0]},{part[1]},{part[2]}"))
    below = float(shown.text("#exact").split(" is above ")[1].rstrip("."))
    count = part[2] // size
    row, key = (at // size * size for at in part[:2])
    cut = whole[row : row + count * size, key : key + count * size]
    largest = cut.reshape(count, size, count, size).max((1, 3))
    values = np.zeros_like(largest)
    for (query, at), value in found.items():
        r, c = (query - row) // size, (at - key) // size
        if r < count and c < count:
            values[r, c] = value
    near = step(whole.max())
    assert (values <= largest + near).all()
    sure = largest > below * 1.06 + near
    assert sure.any()
    np.testing.assert_allclose(values[sure], largest[sure], atol=near)
    return size


def test_one_finds_a_word_and_where_its_query_looks(shown: Opened, whole: np.ndarray) -> None:
    shown.go("head=0.1")
    places = [n for n, word in enumerate(TEXT.split()) if word == "w58"]
    shown.page.fill("#find", "w58")
    assert shown.text("#found") == f"{len(places)} places"
    shown.page.focus("#find")
    shown.press("Enter", "Enter")
    assert shown.page.evaluate("scrollY") == 0
    assert shown.text("#found") == f"2 of {len(places)} places"
    assert shown.text("#listed") == f"Largest weights of query {places[1]} w58"
    row = whole[places[1]]
    said = shown.page.eval_on_selector_all("#pairs b", "all => all.map(one => +one.textContent)")
    kept = np.sort(row)[::-1][: len(said)]
    np.testing.assert_allclose(said, kept, atol=step(whole.max()))
    key = int(shown.hash().split("cell=")[1].split(",")[1].split("&")[0])
    column = np.where(np.arange(len(whole)) > 0, whole[:, key], 0)
    assert shown.text("#looked-at").startswith(f"Queries with most weight on key {key} ")
    first = float(shown.page.inner_text("#back b >> nth=0"))
    assert first == pytest.approx(column.max(), abs=step(1) + 5e-3)


def test_a_position_can_be_reached_shared_and_left(shown: Opened) -> None:
    shown.go("head=0.1")
    shown.page.fill("#go", "1500")
    shown.click("#go-to")
    there = shown.hash()
    assert "cell=1500," in there
    assert shown.text("#listed").startswith("Largest weights of query 1,500 ")
    shown.page.go_back()
    shown.settle()
    assert shown.text("#where").startswith("queries 0–2,099")
    shown.go(there[1:])
    assert shown.text("#listed").startswith("Largest weights of query 1,500 ")
    assert shown.page.locator("#text mark").count() == 1
    shown.page.fill("#go", "99999")
    shown.click("#go-to")
    assert shown.text("#found") == "queries are 0 to 2,099"


@pytest.mark.slow
def test_causal_windows_in_bfloat16(browser: Any, tmp_path: Path) -> None:
    """Half precision and a window of 300 tokens, tile by tile and by single weights."""
    windowed = Shape(
        "windowed",
        "MistralForCausalLM",
        {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "vocab_size": 8192}
        | {"num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 300},
        "bfloat16",
    )
    write(windowed, tmp_path / "model")
    (file,) = (tmp_path / "model").glob("*.safetensors")
    sharper = {n: t * 20 if "_proj" in n else t for n, t in load_file(file).items()}
    save_file(sharper, file, {"format": "pt"})
    source = av.load(tmp_path / "model", device="cpu")
    text = " ".join(["the", "cat", "sat", f"{n}"][n * n % 4] for n in range(2100))
    whole = av.capture(text, model=source, select="0.1")["0.1"].astype(np.float64)
    path = av.view(text, model=source, select="0.1").save(tmp_path / "long.html")
    with opened(browser) as shown:
        size, found = cells(shown.open(path, "head=0.1"))
        largest = [whole[q : q + size, k : k + size].max() for q, k in found]
        np.testing.assert_allclose(list(found.values()), largest, atol=step(whole.max()))
        assert all(query - key < 300 + 2 * size for query, key in found)
        certain(shown, whole, (1024, 880, 100))
        certain(shown, whole, (1024, 800, 300))


def test_a_part_of_a_text_by_its_true_positions(browser: Any, whole: np.ndarray, tmp_path) -> None:
    page = av.view(TEXT, model=MODEL, rows="1700-1779", keys="1000-1399")
    part = whole[1700:1780, 1000:1400]
    with opened(browser) as shown:
        shown.open(page.save(tmp_path / "part.html"), "head=0.1")
        assert "queries 1,700–1,779 × keys 1,000–1,399 of 2,100 tokens" in shown.text("#said")
        shown.go("head=0.1&at=1700,1100,80")
        size, found = cells(shown)
        assert size == 1
        assert {query for query, _ in found} == set(range(1700, 1780))
        for (query, key), value in found.items():
            assert value == pytest.approx(whole[query, key], abs=step(part.max()))
        shown.page.fill("#go", "3")
        shown.click("#go-to")
        assert shown.text("#found") == "queries are 1,700 to 1,779"
        shown.page.fill("#go", "1750")
        shown.click("#go-to")
        said = float(shown.page.inner_text("#pairs b >> nth=0"))
        assert said == pytest.approx(whole[1750, 1000:1400].max(), abs=step(part.max()) + 5e-5)


def test_a_part_of_a_short_text() -> None:
    data = data_of(av.view("w1 w2 w3 w4 w5 w6 w7 w8", model=MODEL, rows="2-4", select="0.1").page)
    assert data["part"] == [2, 5, 0, 8]
    assert data["size"] == 1
    assert data["said"].startswith("queries 2–4 × keys 0–7 of 8 tokens, 1 head of ")


@pytest.mark.parametrize(
    ("what", "asked", "error"),
    [
        (TEXT, {"rows": "9-3"}, "rows='9-3' is empty, since it ends before it begins"),
        (TEXT, {"keys": "5-99999"}, "ends at token 99,999; there are 2,100, from 0"),
        (TEXT, {"rows": ""}, "takes tokens such as 12-40"),
        (TEXT, {"rows": "1,5"}, "is in several pieces, and tiles need one"),
        (["a", "b"], {"rows": "0"}, "shows a part of one text that a model runs"),
        ("a b", {"rows": "0", "why": "0.1"}, "a part of a text is shown as tiles, which go"),
    ],
)
def test_parts_that_there_are_not(what: Any, asked: dict[str, str], error: str) -> None:
    with pytest.raises(AttnvizError, match=re.escape(error)):
        av.view(what, model=MODEL, **asked)


def test_what_needs_whole_maps_is_refused() -> None:
    with pytest.raises(UsageError, match="shown as tiles, which go without"):
        av.view(TEXT, model=MODEL, why="0.1")


def test_top_heads() -> None:
    page = av.view("The keys to the cabinet are on the table", select="clearest:3")
    assert sum(map(page.captures[0].holds, page.captures[0].layout)) == 3


def test_labels_stand_at_their_cells_and_inside_the_picture(shown: Opened) -> None:
    root = ElementTree.fromstring(shown.saved("svg").decode())
    width, height = float(root.get("width")), float(root.get("height"))
    texts = [e for e in root.iter() if e.tag.endswith("}text")]
    turned = [e for e in texts if "rotate" in (e.get("transform") or "")]
    assert turned
    assert all(float(e.get("x")) + 0.6 * float(e.get("font-size")) <= width for e in turned)
    (cells,) = (e for e in root.iter() if e.get("class") == "map")
    left, top, across, down = (
        float(part) for part in re.findall(r"[\d.]+", cells.get("transform"))
    )
    assert float(turned[0].get("x")) == pytest.approx(left + across / 2, abs=0.01)
    rows = [e for e in texts if e not in turned and e.get("text-anchor") == "end"]
    assert float(rows[0].get("y")) == pytest.approx(top + down / 2, abs=0.01)
    assert height > top
