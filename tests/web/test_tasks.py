"""What each page is there for, done by keyboard alone and by touch alone: a page × task table."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import attnviz as av
from attnviz.core.tokens import Tokens
from attnviz.features.flow.function import run_recorded
from tests import ROOT
from tests.features.live.test_live import live_page
from tests.samples import Samples
from tests.viewing import made, opened
from tests.web.family import MAKE, SETTLED, STATES, TEXT, profile_page, visit

PHONE = {"width": 390, "height": 844}
MOST = 120
"""Times that Tab is pressed at most."""


class Task(NamedTuple):
    """What docs/pages.md names, how the page shows it, and keys and touches that lead to it."""

    page: str
    said: str
    seen: str
    tab: str
    keys: Sequence[str]
    tap: str


TASKS = (
    Task("view", "go to another head", "#where", "#head-after", ["Enter"], "#head-after"),
    Task("view", "see what a word looks at", "#text-said", "button.word", ["ArrowRight", "Enter"],
         "button.word >> nth=4"),
    Task("view", "read a head's evidence", "#view-card", "#tabs", 5 * ["ArrowRight"], "#tab-card"),
    Task("live", "switch a head off", "#next-words", "#stage-switch", ["Enter"], "#stage-switch"),
    Task("live", "look at another head", "#head-title", "button.tile", ["ArrowRight", "Enter"],
         "button.tile >> nth=3"),
    Task("atlas", "open a head's card", "#card", "#grid button", ["ArrowRight", "Enter"],
         "#grid button >> nth=3"),
    Task("diff", "look at another head", "#card h2", "#heads tbody tr:nth-child(3) a", ["Enter"],
         "#heads tbody tr:nth-child(3) a"),
    Task("lens", "read another cell", "#name", "#grid td", ["ArrowUp"], "#grid tbody td >> nth=40"),
    Task("lens-heads", "read another head", "#name", "#grid td", ["ArrowUp", "ArrowUp"],
         "#grid tbody td >> nth=2"),
    Task("flow", "follow a token", "#said", "#stage", ["Enter", "ArrowUp"],
         "#before .row >> nth=4"),
    Task("explain", "read what the figures show", "#help", "#open-help", ["Enter"], "#open-help"),
    Task("film", "go to another step", "#at", "#step", ["ArrowLeft"], "#step"),
    Task("film", "look at another head", "#name", "#grid button", ["ArrowRight", "Enter"],
         "#grid button >> nth=1"),
    Task("patch", "read a head's figures", "#name", ".node[tabindex]", [],
         ".node[tabindex] >> nth=1"),
    Task("patch", "read how it was measured", ".how > p >> nth=0", ".how > summary", ["Enter"],
         ".how > summary"),
    Task("knockout", "look at another pair", "#name", "#matrix button:not([aria-pressed=true])",
         ["Enter"], "#matrix button:not([aria-pressed=true]) >> nth=0"),
    Task("thoughts", "see where a sentence is read", "#chosen", "#sentences button", ["Enter"],
         "#sentences button >> nth=1"),
    Task("profile", "read another row", ".detail", "button.row", ["ArrowRight", "Enter"],
         "button.row >> nth=3"),
    Task("gallery", "open a picture", "#close", ".tile", ["Enter"], ".tile >> nth=1"),
    Task("shapes", "go to another step", "#where", "#next", ["Enter"], "#next"),
    Task("long", "look at another head", "#name", "#heads button", ["ArrowRight", "Enter"],
         "#heads button >> nth=1"),
)  # fmt: skip


@pytest.fixture(scope="module")
def pages(samples: Samples) -> dict[str, Path]:
    make = {**MAKE, "profile": profile_page}
    names = {task.page for task in TASKS} - {"knockout", "live"}
    made = {name: samples(name, make[name]) for name in names}
    return made | {"knockout": samples("knockout-tasks", _knockout), "live": live_page(samples)}


def _knockout(folder: Path) -> Path:
    spans = {"first": "all:the", "keys": "all:keys"}
    found = av.knockout(av.Prompt(TEXT, spans=spans), window=1, select="1.*", draws=1)
    return found.save(folder / "knockout.html")


def look(page: Any, seen: str) -> str:
    """What is seen of a task: its visible texts."""
    page.evaluate(SETTLED)
    return " ".join(page.locator(seen).all_inner_texts()) if page.is_visible(seen) else ""


def changes(page: Any, seen: str, before: str) -> None:
    """Wait until something else is seen."""
    end = time.monotonic() + 10
    while look(page, seen) in ("", before):
        assert time.monotonic() < end, f"{seen} shows {before} as before, or nothing"


def by_tab(page: Any, selector: str) -> None:
    """Press Tab until something has the focus."""
    for _ in range(MOST):
        page.keyboard.press("Tab")
        if page.evaluate("wanted => Boolean(document.activeElement.closest(wanted))", selector):
            return
    at = page.evaluate("document.activeElement.outerHTML.slice(0, 100)")
    raise AssertionError(f"{selector} is not reached by Tab; {at}")


@pytest.mark.parametrize("name", dict.fromkeys(task.page for task in TASKS))
def test_by_keyboard_alone(browser: Any, pages: dict[str, Path], name: str) -> None:
    with opened(browser, reduced_motion="reduce") as shown:
        visit(shown, pages[name])
        for task in (task for task in TASKS if task.page == name):
            before = look(shown.page, task.seen)
            by_tab(shown.page, task.tab)
            for key in task.keys:
                shown.page.keyboard.press(key)
            changes(shown.page, task.seen, before)


@pytest.mark.parametrize("name", dict.fromkeys(task.page for task in TASKS))
def test_by_touch_alone(browser: Any, pages: dict[str, Path], name: str) -> None:
    touch = {"viewport": PHONE, "has_touch": True, "is_mobile": True, "reduced_motion": "reduce"}
    with opened(browser, **touch) as shown:
        visit(shown, pages[name])
        for task in (task for task in TASKS if task.page == name):
            before = look(shown.page, task.seen)
            shown.page.locator(task.tap).first.tap()
            changes(shown.page, task.seen, before)


def test_every_page_has_a_task_and_the_docs_name_them() -> None:
    assert {task.page for task in TASKS} == {*MAKE, "profile"} - {"sheet"}
    said = (ROOT / "docs" / "pages.md").read_text("utf-8")
    for task in TASKS:
        line = re.search(rf"(?m)^\| `{task.page}`.* \| (.*) \|$", said)
        assert line, task.page
        assert task.said in line[1]


SIZE = (1200, 630)
MARGIN = 56
SLOW = pytest.mark.slow
QUICK = ("view", "lens", "knockout")


@pytest.fixture(scope="module")
def long(folder: Path) -> Path:
    """A page whose headline names two long tokens."""
    tokens = Tokens(tuple(f"{'a long word ' * 14}{n}" for n in range(5)))
    found = run_recorded(made(2, 2, tokens, causal=True))
    return found.save(folder / "long-flow.html")


def card(browser: Any, path: Path, scheme: str, state: str = "", **sizes: Any) -> Image.Image:
    """The card of a page; no request is made, and nothing complains."""
    with opened(browser, color_scheme=scheme, reduced_motion="reduce", **sizes) as found:
        visit(found, path, state)
        found.page.click("#save summary")
        with found.page.expect_download() as download:
            found.page.click("#save-card")
        assert download.value.suggested_filename.endswith("-card.png")
        data = Path(download.value.path()).read_bytes()
        assert not found.page.get_attribute("#save", "open")
    return Image.open(io.BytesIO(data))


@pytest.fixture(scope="module")
def view_card(browser: Any, samples: Samples) -> Image.Image:
    """The card of a view in a light window."""
    return card(browser, samples("view", MAKE["view"]), "light")


def pixels(picture: Image.Image) -> NDArray[np.int64]:
    return np.asarray(picture.convert("RGB")).astype(int)


def drawn(found: NDArray[np.int64], paper: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which pixels are not paper."""
    return np.asarray(np.abs(found - paper).max(-1) > 8)


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=SLOW)])
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else SLOW)
        for name in MAKE
        if name not in ("gallery", "sheet")
    ],
)
def test_a_card_of_every_page(browser: Any, samples: Samples, name: str, scheme: str) -> None:
    path = samples(name, MAKE[name])
    picture = card(browser, path, scheme, STATES.get(name, ""))
    assert picture.size == SIZE
    found, paper = pixels(picture), pixels(picture)[0, 0]
    ink = drawn(found, paper)
    assert (paper > 200).all() if scheme == "light" else (paper < 60).all()
    inside = np.zeros_like(ink)
    inside[MARGIN:-MARGIN, MARGIN:-MARGIN] = True
    assert not ink[~inside].any(), "nothing in the margin"
    foot = ink[-MARGIN - 24 : -MARGIN]
    assert foot[:, MARGIN : MARGIN + 200].any(), "what made it"
    body = found[MARGIN : -MARGIN - 40, MARGIN:-MARGIN]
    assert body.std() > 10
    assert 0.01 < drawn(body, paper).mean() < 0.9
    texts = picture.text  # type: ignore[attr-defined]
    assert texts["Title"]
    assert "attnviz" in texts["Description"]


def test_of_a_picture_that_is_no_wider_the_headline_stands_beside_it(
    view_card: Image.Image,
) -> None:
    """Left of the middle only words, right of it the colours of the map."""
    assert view_card.text["Title"].startswith("Head 2.0 perhaps looks at")  # type: ignore[attr-defined]
    found = pixels(view_card)[MARGIN : -MARGIN - 40]
    colourful = (found.max(-1) - found.min(-1)) > 60
    assert not colourful[:, :600].any()
    assert colourful[:, 600:].mean() > 0.1


@pytest.mark.parametrize("width", [1440, 390])
def test_a_long_headline_ends_with_an_ellipsis(browser: Any, long: Path, width: int) -> None:
    """It keeps to its place: a gap, and then the picture; and its words break between lines."""
    picture = card(browser, long, "dark", viewport={"width": width, "height": 844})
    assert len(picture.text["Title"]) > 300  # type: ignore[attr-defined]
    found = pixels(picture)
    ink = drawn(found, found[0, 0])
    assert not ink[:, :MARGIN].any()
    assert not ink[:, -MARGIN:].any()
    assert not ink[:MARGIN].any()
    rows = ink.any(1)
    lines = [n for n in range(MARGIN, 200) if rows[n] and not rows[n - 1]]
    assert len(lines) >= 3
    assert not rows[190:210].all(), "room below it"
    last = ink[lines[3] : lines[3] + 28] if len(lines) > 3 else ink[lines[-1] :]
    assert last[:, 900:-MARGIN].any(), "the last line is full"


def test_what_is_shown_is_what_the_card_shows(
    browser: Any, samples: Samples, view_card: Image.Image
) -> None:
    """Another head has another headline and another map."""
    other = card(browser, samples("view", MAKE["view"]), "light", "view=map&head=1.4&on=1.4")
    assert "Head 1.4 of demo-gpt2" in other.text["Title"]  # type: ignore[attr-defined]
    assert (pixels(view_card) != pixels(other)).mean() > 0.02
