"""The overview by likeness: dots where heads look alike, and the nearest heads on every card."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.drawing.palette import rgb
from attnviz.features.profile.likeness import alike
from attnviz.scoring.roles import ROLES
from tests.features.view.test_view_page import near
from tests.viewing import Opened, encoder_decoder, made, opened, words, write_page

TEXT = "The kettle sang and the candle burned while the kettle sang and the candle burned."


@pytest.fixture(scope="module")
def demo() -> av.Capture:
    return av.capture(TEXT)


@pytest.fixture(scope="module")
def pages(folder: Path, demo) -> dict[str, Path]:
    several = [made(3, 2, words(7), seed=1), made(3, 2, words(5, name="v"), seed=2)]
    captures: dict[str, Any] = {
        "demo": demo, "three": encoder_decoder(), "several": several, "two": made(2, 1),
        "many": made(12, 12, words(12)),
    }  # fmt: skip
    return {name: write_page(folder, name, found) for name, found in captures.items()}


def svg_dots(page: Opened) -> dict[tuple[float, float], str]:
    """The dots of a saved picture: their places and colours, without those of the legend."""
    text = page.saved("svg").decode()
    found = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="[\d.]+" fill="(#\w+)"', text)
    dots = [(float(x), float(y), color) for x, y, color in found if float(y) < 700]
    return {(x, y): color for x, y, color in dots}  # the last at a place covers the others


def test_dots_are_as_far_apart_as_the_plane_has_heads(shared: Opened, pages, demo) -> None:
    shared.open(pages["demo"], "view=overview").click("#sorts [data-sort=likeness]")
    assert "sort=likeness" in shared.hash()
    assert not shared.page.is_visible("#overview-tiles")
    ((plane,),) = (one.values() for one in alike([demo], [frozenset(demo.layout)]))
    dots = svg_dots(shared)
    assert len(dots) == len(demo.layout)
    names, lines = shared.table()
    assert names[:4] == ["head", "roles", "x", "y"]
    places = {line[0]: (float(line[2]), float(line[3])) for line in lines}
    want = {h.name: tuple(at) for h, at in zip(plane.heads, plane.places, strict=True)}
    assert places == {name: pytest.approx(at, abs=1e-4) for name, at in want.items()}
    drawn = np.array(list(dots))
    there = np.array(list(want.values())) * (1, -1)
    # the same picture, but for its scale and where it is
    scale = np.ptp(drawn[:, 0]) / np.ptp(there[:, 0])
    moved = (there - there.mean(0)) * scale + drawn.mean(0)
    roles = {s.head.name: s.roles[0].name if s.roles else "" for s in av.heads(demo).heads}
    for name, at in zip(want, moved, strict=True):
        (color,) = {c for place, c in dots.items() if np.hypot(*(at - place)) < 1}
        assert color == (ROLES[roles[name]].color if roles[name] else "#ffffff")
    kept = round(100 * plane.kept)
    said = shared.text("#overview-said")
    assert f"keeps {kept} % of it" in said
    assert f"over {plane.rows} rows of this text" in said
    assert "root of the mean divergence in bits" in said


def dot(page: Opened, name: str) -> tuple[float, float]:
    """Where a dot is on the screen, from the picture that is saved at another size."""
    places = {line[0]: (float(line[2]), -float(line[3])) for line in page.table()[1]}
    box = page.page.locator("#plane-dots").bounding_box()
    top = box["y"] + page.page.evaluate("scrollY")
    height = min(max(page.page.viewport_size["height"] - top - 56, 300), 0.8 * box["width"])
    low, high = (np.array(list(places.values())).min(0), np.array(list(places.values())).max(0))
    room = np.array([box["width"], height]) - 92
    scale = (room / (high - low)).min()
    middle = np.array([box["width"], height]) / 2
    x, y = middle + (np.array(places[name]) - (low + high) / 2) * scale
    return float(x), float(y)


def test_pointing_shows_the_nearest_and_a_click_opens(shared: Opened, pages) -> None:
    shared.open(pages["demo"], "view=overview&sort=likeness&head=0.0&on=0.0")
    box = shared.page.locator("#plane-dots").bounding_box()
    x, y = dot(shared, "1.4")
    blue = rgb(ROLES["previous"].color)
    assert near(shared.pixel("#plane-dots", x, y), np.array(blue))
    other = dot(shared, "2.4")
    assert near(shared.pixel("#plane-dots", *other), np.array(rgb(ROLES["induction"].color)))
    shared.page.mouse.move(box["x"] + x, box["y"] + y)
    shared.settle()
    assert shared.text("#preview-name") == "Head 1.4"
    told = shared.text("#preview-roles")
    assert len(re.findall(r"\d\.\d at \d\.\d\d", told)) == 3
    faint = shared.pixel("#plane-dots", *other)
    assert min(faint) > 150, faint  # not like it: pale
    assert near(shared.pixel("#plane-dots", x, y), np.array(blue))
    shared.page.mouse.click(box["x"] + x, box["y"] + y)
    shared.settle()
    assert "view=map" in shared.hash()
    assert shared.text("#map-caption").startswith("head 1.4")
    assert not shared.page.is_visible("#preview")
    shared.go("view=overview&sort=likeness&head=1.4&on=1.4")
    named = shared.page.get_attribute("#plane-dots", "aria-label").partition("most alike: ")[2]
    assert told.endswith(f"most alike: {named}")
    place = {"x": other[0], "y": other[1]}
    shared.click("#plane-dots", position=place, modifiers=["Shift"])
    assert shared.pressed("#heads") == ["1.4", "2.4"]


def test_arrows_go_to_the_nearest_dot_that_way(shared: Opened, pages) -> None:
    shared.open(pages["demo"], "view=overview&sort=likeness&head=1.4&on=1.4")
    shared.page.focus("#plane-dots")
    places = {line[0]: np.array([float(line[2]), -float(line[3])]) for line in shared.table()[1]}
    now = "1.4"
    for key, way in (("ArrowDown", (0, 1)), ("ArrowRight", (1, 0)), ("ArrowLeft", (-1, 0))) * 3:
        moves = {name: at - places[now] for name, at in places.items()}
        ahead = {name: move for name, move in moves.items() if move @ way > 0}
        cone = {name: move for name, move in ahead.items() if 2 * move @ way >= abs(move).sum()}
        fars = {name: np.hypot(*move) for name, move in (cone or ahead or {now: (0, 0)}).items()}
        now = min(fars, key=fars.__getitem__)
        shared.press(key)
        assert f"head={now}" in shared.hash(), key
        assert shared.pressed("#heads") == [now]
        label = shared.page.get_attribute("#plane-dots", "aria-label")
        assert f"head {now}" in label
    assert shared.page.evaluate("document.activeElement.id") == "plane-dots"
    shared.press("Enter")
    assert "view=map" in shared.hash()


def test_a_card_names_the_nearest_heads_as_links(shared: Opened, pages, demo) -> None:
    ((plane,),) = (one.values() for one in alike([demo], [frozenset(demo.layout)]))
    number = [head.name for head in plane.heads].index("3.0")
    shared.open(pages["demo"], "view=card&head=3.0&on=3.0")
    links = "#card-body button.link[data-head]"
    found = shared.all(links, "parentElement.textContent")
    want = [f"{head.name} at {far:.2f}" for head, far in plane.nearest[number]]
    assert [one[: len(start)] for one, start in zip(found, want, strict=True)] == want
    shared.click(links)
    assert f"head={plane.nearest[number][0][0].name}" in shared.hash()
    assert shared.page.evaluate("document.activeElement.id") == "card-body"


def test_texts_of_one_model_share_a_plane_and_kinds_have_their_own(shared: Opened, pages) -> None:
    shared.open(pages["several"], "view=overview&sort=likeness")
    said = shared.text("#overview-said")
    assert "over 12 rows of 2 texts of this page" in said
    shared.press("]")
    assert shared.text("#overview-said") == said
    shared.open(pages["three"], "view=overview&sort=likeness&kind=cross")
    assert len(shared.table()[1]) == 4
    assert shared.page.get_attribute("#plane-dots", "aria-label").startswith("4 heads")
    shared.click("#kinds [data-kind=encoder]")
    assert shared.page.get_attribute("#plane-dots", "aria-label").startswith("6 heads")


def test_too_few_heads_have_no_map(shared: Opened, pages) -> None:
    shared.open(pages["two"], "view=overview&sort=likeness")
    assert "sort=" not in shared.hash()
    assert shared.page.is_disabled("#sorts [data-sort=likeness]")
    shared.press("l", "l")
    assert shared.page.is_visible("#overview-tiles")
    assert shared.pressed("#sorts") == ["by layer"]
    shared.go("view=card")
    assert "Most like it" not in shared.text("#card-body")


def test_every_width_has_room(browser: Any, pages) -> None:
    with opened(browser) as page:
        for width in (360, 1280, 3840):
            page.page.set_viewport_size({"width": width, "height": 900})
            page.open(pages["many"], "view=overview&sort=likeness")
            assert page.page.evaluate("document.documentElement.scrollWidth") <= width
            box = page.page.locator("#plane-dots").bounding_box()
            assert box["width"] <= width
            assert box["height"] >= 300


def test_paper_gets_the_dots(browser: Any, pages) -> None:
    with opened(browser, color_scheme="dark") as page:
        page.open(pages["demo"], "view=overview&sort=likeness")
        page.page.wait_for_timeout(300)
        page.settle()
        page.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.page.evaluate("document.querySelectorAll('#print circle').length") > 40
        page.page.evaluate("dispatchEvent(new Event('afterprint'))")


def test_the_page_carries_little_for_it(pages) -> None:
    data = re.search(r'id="data">(.*?)</script>', pages["many"].read_text())[1]
    assert len(json.dumps(json.loads(data)["planes"])) < 144 * 90
