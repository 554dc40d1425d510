"""The page of a long text, in a browser, against its whole maps."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.errors import UsageError
from attnviz.models.untrained import FreshConfig
from tests.features.view.test_view_page import axe
from tests.viewing import Opened, opened

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


@pytest.mark.parametrize("what", ["", "&sum"])
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
    shown.press("+", "ArrowDown")
    assert shown.text("#listed").startswith("Largest weights in the cell")
    shown.press("Escape", "0")
    assert "at=" not in shown.hash()
    shown.click("#zoom-in")
    shown.page.click("#pairs button >> nth=0")
    shown.settle()
    assert "one query and one key" in shown.text("#where")
    assert shown.page.locator("#text mark").count() == 1


def test_it_is_for_everyone(shown: Opened) -> None:
    shown.go("head=0.1")
    shown.page.evaluate(axe())
    result = shown.page.evaluate("axe.run(document)")
    assert not [(one["id"], one["nodes"][0]["html"]) for one in result["violations"]]
    shown.page.set_viewport_size({"width": 360, "height": 700})
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= 360
    shown.page.set_viewport_size({"width": 1280, "height": 900})


def test_what_needs_whole_maps_is_refused() -> None:
    with pytest.raises(UsageError, match="shown as tiles, which go without"):
        av.view(TEXT, model=MODEL, why="0.1")


def test_top_heads() -> None:
    page = av.view("The keys to the cabinet are on the table", top=3)
    assert sum(map(page.captures[0].holds, page.captures[0].layout)) == 3
