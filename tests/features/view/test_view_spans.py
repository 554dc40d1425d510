"""From part to part: heads ranked by two named parts, or by tokens that were dragged over."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from tests.features.view.test_view_who import holds
from tests.viewing import Opened, accessible, opened, write_page

TEXT = "The kettle sang and the candle burned while the kettle sang and the candle burned."
SPANS = {"first": "The kettle sang", "second": "#2:kettle sang", "inside": "candle burned"}


@pytest.fixture(scope="module")
def capture() -> av.Capture:
    return av.capture(av.Prompt(TEXT, spans=SPANS))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, capture: av.Capture) -> Path:
    return write_page(tmp_path_factory.mktemp("spans"), "spans", capture, bits=16)


def by_hand(capture: av.Capture, rows: list[int], keys: list[int]) -> dict[str, tuple[float, ...]]:
    """Share and lift of every head of a causal model, over the rows that may attend to a key."""
    found = {}
    for head in capture.layout:
        seeing = [row for row in rows if min(keys) <= row]
        share = np.mean([sum(capture[head][row, key] for key in keys) for row in seeing])
        chance = np.mean([sum(key <= row for key in keys) / (row + 1) for row in seeing])
        found[head.name] = (float(share), float(share / chance))
    return found


def ranks(page: Opened, want: dict[str, tuple[float, ...]]) -> None:
    told = page.all("#span-list button")
    number = r"<?[\d.]+(?: ± [\d.]+)?"
    found = [re.fullmatch(rf"(\d+\.\d+) ({number}) ×([\d.]+)", one).groups() for one in told]
    assert sorted(name for name, _, _ in found) == sorted(want)
    for name, share, lift in found:
        assert holds(share, want[name][0]), (name, share, want[name])
        assert abs(float(lift) - want[name][1]) <= 0.0501 + 0.05 * want[name][1]
    assert (np.diff([want[name][1] for name, _, _ in found]) <= 1e-3).all()


def test_two_clicks_rank_every_head(shared: Opened, page: Path, capture: av.Capture) -> None:
    shared.open(page, "view=map&on=0.0")
    spans = {s.name: list(s.positions) for s in capture.inputs.sides["decoder"].keys.spans}
    assert shared.page.locator("#span-list button").count() == 0
    shared.click("#span-chips button:has-text('second')")
    assert shared.text("#span-said").startswith("From second:")
    shared.click("#span-chips button:has-text('first')")
    assert "spans=s1.s0" in shared.hash()
    ranks(shared, by_hand(capture, spans["second"], spans["first"]))
    best = shared.page.get_attribute("#span-list button", "data-head")
    shared.click(f"#span-list [data-head='{best}']")
    assert f"head={best}" in shared.hash()
    shared.press("Escape")
    assert "spans=" not in shared.hash()


def test_words_are_dragged_over(shared: Opened, page: Path, capture: av.Capture) -> None:
    shared.open(page, "view=text&on=0.0")
    words = shared.page.locator("#text-body button.word")
    for first, last in ((9, 6), (2, 4)):
        words.nth(first).hover()
        shared.page.mouse.down()
        words.nth(last).hover()
        assert words.nth(last).evaluate("one => one.classList.contains('dragged')")
        shared.page.mouse.up()
        shared.settle()
    assert "spans=6-9.2-4" in shared.hash()
    ranks(shared, by_hand(capture, [6, 7, 8, 9], [2, 3, 4]))
    assert "pin=" not in shared.hash(), "a drag is no click"


def test_tokens_are_typed_and_rows_that_see_nothing_left_out(
    shared: Opened, page: Path, capture: av.Capture
) -> None:
    shared.open(page, "view=text&on=0.0")
    for typed in ("1-8", "5"):
        shared.page.fill("#span-tokens", typed)
        shared.press("Enter")
    assert "spans=1-8.5-5" in shared.hash()
    ranks(shared, by_hand(capture, list(range(1, 9)), [5]))
    assert "the mean of 4 rows" in shared.text("#span-said")
    shared.go("view=text&on=0.0&spans=1-2.7-8")
    assert "none of these rows may attend to any of it" in shared.text("#span-said")


def test_words_of_a_span_are_marked_by_the_innermost(shared: Opened, page: Path) -> None:
    shared.open(page, "view=text&on=0.0")
    marked = shared.all("#text-body button.in-span", "dataset.at")
    spans = av.capture(av.Prompt(TEXT, spans=SPANS)).inputs.sides["decoder"].keys.spans
    assert sorted(map(int, marked)) == sorted({at for span in spans for at in span.positions})


@pytest.mark.parametrize("theme", ["dark", pytest.param("light", marks=pytest.mark.slow)])
def test_axe_finds_nothing(browser: Any, page: Path, theme: str) -> None:
    with opened(browser) as found:
        found.open(page, f"view=text&on=0.0&theme={theme}&spans=s1.s0")
        accessible(found.page)
        found.clean()


def test_a_page_without_parts_shows_none(shared: Opened, tmp_path: Path) -> None:
    shared.open(write_page(tmp_path, "plain", av.capture("The kettle sang")), "view=text&on=0.0")
    assert not shared.page.is_visible("#spans")
