"""What each page is there for, done by keyboard alone and by touch alone: a page × task table."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import attnviz as av
from tests import ROOT
from tests.features.live.test_live import live_page
from tests.samples import Samples
from tests.viewing import Opened, opened
from tests.web.family import MAKE, SETTLED, TEXT, profile_page

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


def visit(shown: Opened, path: Path) -> None:
    shown.documents |= {path.as_uri(), *(p.as_uri() for p in path.parent.rglob("*.png"))}
    shown.page.goto(path.as_uri())
    shown.page.evaluate(SETTLED)


def look(page: Any, seen: str) -> str:
    """What is seen of a task: its visible texts."""
    page.evaluate(SETTLED)
    page.wait_for_timeout(150)
    return " ".join(page.locator(seen).all_inner_texts()) if page.is_visible(seen) else ""


def by_tab(page: Any, selector: str) -> None:
    """Press Tab until something has the focus."""
    for _ in range(MOST):
        page.keyboard.press("Tab")
        if page.evaluate("wanted => Boolean(document.activeElement.closest(wanted))", selector):
            return
    at = page.evaluate("document.activeElement.outerHTML.slice(0, 100)")
    raise AssertionError(f"{selector} is not reached by Tab; {at}")


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.page}: {task.said}")
def test_by_keyboard_alone(browser: Any, pages: dict[str, Path], task: Task) -> None:
    with opened(browser, reduced_motion="reduce") as shown:
        visit(shown, pages[task.page])
        before = look(shown.page, task.seen)
        by_tab(shown.page, task.tab)
        for key in task.keys:
            shown.page.keyboard.press(key)
        assert look(shown.page, task.seen) not in ("", before)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: f"{task.page}: {task.said}")
def test_by_touch_alone(browser: Any, pages: dict[str, Path], task: Task) -> None:
    touch = {"viewport": PHONE, "has_touch": True, "is_mobile": True, "reduced_motion": "reduce"}
    with opened(browser, **touch) as shown:
        visit(shown, pages[task.page])
        before = look(shown.page, task.seen)
        shown.page.locator(task.tap).first.tap()
        assert look(shown.page, task.seen) not in ("", before)


def test_every_page_has_a_task_and_the_docs_name_them() -> None:
    assert {task.page for task in TASKS} == {*MAKE, "profile"} - {"sheet"}
    said = (ROOT / "docs" / "pages.md").read_text("utf-8")
    for task in TASKS:
        line = re.search(rf"(?m)^\| `{task.page}`.* \| (.*) \|$", said)
        assert line, task.page
        assert task.said in line[1]
