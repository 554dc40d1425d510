"""Why this weight, in the page that runs the model: its steps are those of the record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from tests.viewing import Opened, accessible, opened, until

pytestmark = pytest.mark.slow

TEXT = "The kettle sang and the candle burned while the kettle sang"
MODELS = ("demo-gpt2", "demo-bert")


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, Path]:
    return {name: av.live(TEXT, model=name).save(folder / f"{name}.html") for name in MODELS}


@pytest.fixture
def page(browser: Any) -> Iterator[Opened]:
    with opened(browser) as found:
        yield found


def steps(page: Opened) -> dict[str, str]:
    rows = "all => all.map(r => [r.dataset.step, r.cells[1].textContent.replaceAll('−', '-')])"
    return dict(page.settle().page.eval_on_selector_all(".why-steps tr", rows))


def agrees(page: Opened, why: Any) -> None:
    told = steps(page)
    expected = {
        "q·k": why.dot, "score": why.score, "weight": why.weight,
        "‖f(x)‖": why.norm, "α‖f(x)‖": why.weight * why.norm,
    }  # fmt: skip
    for name, value in expected.items():
        close = 2e-3 * abs(value) + (6e-4 if name != "weight" else 5.1e-4)
        if "e" in told[name]:
            close = 0.06 * abs(value)
        assert abs(float(told[name]) - value) <= close, (name, told[name], value)


def pointing(page: Opened, which: str, row: int, column: int, count: int) -> tuple[float, float]:
    """Where a cell of a map is in the window."""
    found = page.page.locator(f"#map-{which}")
    found.scroll_into_view_if_needed()
    box = found.bounding_box()
    step = box["width"] / count
    return box["x"] + (column + 0.5) * step, box["y"] + (row + 0.5) * step


@pytest.mark.parametrize("name", MODELS)
def test_a_pass_is_explained_with_heads_on_and_off(
    page: Opened, pages: dict[str, Path], name: str
) -> None:
    head = "2.4"
    before = av.capture(TEXT, model=name, why=head)
    after = av.capture(TEXT, model=name, without="1.4,0.5", why=head)
    last = len(before.tokens) - 1
    for at, key in ((last, 2), (5, 5), (7, 1)):
        page.open(pages[name], f"head={head}&at={at}&why={key}")
        agrees(page, before.why(head, at, key))
        assert not page.page.is_visible("#why-pass")
        page.open(pages[name], f"head={head}&at={at}&why={key}&off=1.4,0.5")
        agrees(page, after.why(head, at, key))
        page.page.click("#why-before")
        agrees(page, before.why(head, at, key))
        page.page.click("#why-after")
        agrees(page, after.why(head, at, key))
    q = after.why(head, last, 2).q, before.why(head, last, 2).q
    assert np.abs(q[0] - q[1]).max() > 1e-3


def test_a_head_that_is_off_writes_nothing(page: Opened, pages: dict[str, Path]) -> None:
    page.open(pages["demo-gpt2"], "head=2.4&at=5&why=5&off=2.4")
    told = steps(page)
    assert float(told["‖f(x)‖"]) == float(told["α‖f(x)‖"]) == 0
    assert "This head is off: it writes nothing." in page.page.inner_text("#why-body")
    page.page.click("#why-before")
    agrees(page, av.capture(TEXT, why="2.4").why("2.4", 5, 5))


def test_it_opens_follows_and_closes(page: Opened, pages: dict[str, Path]) -> None:
    capture = av.capture(TEXT, why="*.*")
    count = len(capture.tokens)
    page.open(pages["demo-gpt2"], "head=3.0")
    assert not page.page.is_visible("#why")
    page.page.mouse.click(*pointing(page, "before", 10, 4, count))
    page.settle()
    page.page.click("#ask-why")
    agrees(page, capture.why("3.0", 10, 4))
    assert page.page.evaluate("document.activeElement.id") == "why-title"
    page.page.mouse.move(*pointing(page, "before", 8, 3, count))
    page.page.wait_for_timeout(60)
    agrees(page, capture.why("3.0", 8, 3))
    page.page.mouse.move(2, 2)
    page.page.wait_for_timeout(60)
    agrees(page, capture.why("3.0", 10, 4))
    page.page.focus("#map-before")
    page.page.keyboard.press("ArrowRight")
    page.page.keyboard.press("ArrowUp")
    agrees(page, capture.why("3.0", 9, 5))
    page.page.wait_for_timeout(260)
    assert "why=5" in page.page.evaluate("location.hash")
    page.click('[data-head="1.2"]')  # another head, whose queries and keys come at once
    until(page.page, "document.querySelector('#why-body p').textContent.includes('1.2')")
    agrees(page, capture.why("1.2", 9, 5))
    page.page.keyboard.press("Escape")
    assert not page.page.is_visible("#why")
    page.page.focus("#map-before")
    page.page.keyboard.press("Enter")
    assert page.page.is_visible("#why")
    page.fill("#text", f"{TEXT} again")  # another text: its own last row
    longer = av.capture(f"{TEXT} again", why="1.2")
    agrees(page, longer.why("1.2", len(longer.tokens) - 1, 5))
    page.page.click("#why-close")
    assert not page.page.is_visible("#why")
    page.page.wait_for_timeout(260)
    assert "why" not in page.page.evaluate("location.hash")


@pytest.mark.parametrize("name", MODELS)
def test_bars_say_where_query_and_key_are_from(
    page: Opened, pages: dict[str, Path], name: str
) -> None:
    at, key = 9, 3
    found = av.sources(TEXT, select="2.4", query=at, key=key, model=name)
    page.open(pages[name], f"head=2.4&at={at}&why={key}")
    shown = page.page.eval_on_selector_all(
        "#why .why-sources",
        "all => all.map(t => [...t.tBodies[0].rows].map(r => [r.cells[0].innerText, "
        "r.cells[1].textContent.replaceAll('−', '-')]))",
    )
    for side, rows in zip(("query", "key"), shown, strict=True):
        bars = {row[0].removeprefix("head "): float(row[1]) for row in rows}
        wanted = {one.origin.name(found.layout): one.value for one in found.side(side)}
        assert len(set(bars) & set(wanted)) == 6
        for label in set(bars) & set(wanted):
            assert bars[label] == pytest.approx(wanted[label], abs=1e-3)
        assert sum(bars.values()) == pytest.approx(found.score, abs=5e-3)
    head = page.page.get_attribute("#why [data-source] >> nth=0", "data-source")
    page.click("#why [data-source] >> nth=0")
    until(page.page, f"document.querySelector('#why-body p').textContent.includes('{head}')")
    assert "From where" in page.page.inner_text("#why-body")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing(browser: Any, pages: dict[str, Path], scheme: str, width: int) -> None:
    size = {"width": width, "height": 900}
    with opened(browser, color_scheme=scheme, viewport=size, reduced_motion="reduce") as page:
        page.open(pages["demo-gpt2"], "head=2.4&at=9&why=3&off=1.4&temperature=0.8&seed=7")
        assert steps(page)
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width
        accessible(page.page)
