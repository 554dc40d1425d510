"""The gallery of an export in a browser: filters, large pictures, keys, and nothing asked for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.models.controls import FreshConfig
from tests.viewing import Opened, until

TEXTS = ("the first text", "a second one", "<img src=x onerror=alert(1)>")
PICTURES = 3 * (6 + 2)  # sentences * (heads + layers)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("gallery")
    (base / "s.txt").write_text("\n".join([*TEXTS, *(f"more of it {n}" for n in range(20))]))
    settings = {"layout": "heads,layers", "dpi": 40}
    model = FreshConfig(d_model=18, heads=3, layers=2, causal=True)
    av.export(base / "s.txt", base / "maps", model=model, **settings, jobs=1)
    return base / "maps"


@pytest.fixture
def gallery(browser: Any, folder: Path) -> Iterator[Opened]:
    page = browser.new_page(viewport={"width": 1000, "height": 700})
    found = Opened(page)
    page.goto((folder / "index.html").as_uri())
    yield found
    assert found.console == []
    assert all(url.startswith(folder.as_uri()) for url in found.requests)
    page.close()


def count(gallery: Opened, text: str) -> None:
    until(
        gallery.page, "text => document.getElementById('count').textContent.startsWith(text)", text
    )


def test_only_what_is_in_sight_is_in_the_page(gallery: Opened) -> None:
    count(gallery, "184 of 184")
    assert gallery.page.locator(".tile").count() < 100
    until(gallery.page, "[...document.images].slice(0, 6).every(i => i.naturalWidth)")
    cropped = """(() => {
        const image = document.querySelector('.maps img'), data = document.querySelector('#data');
        const [left, , width] = JSON.parse(data.textContent).items[0][3][0][6];
        const [at, whole] = [image.parentNode, image].map(part => part.getBoundingClientRect());
        const wrong = [at.left - whole.left - left * whole.width / image.naturalWidth,
            at.width - width * whole.width / image.naturalWidth];
        return wrong.every(pixels => Math.abs(pixels) < 1);
    })()"""
    until(gallery.page, cropped)  # of a picture its maps alone
    gallery.page.evaluate("window.scrollTo(0, 1e6)")
    gallery.page.get_by_text("more of it 19").wait_for()
    assert gallery.page.get_by_text(TEXTS[0]).count() == 0


def test_filters(gallery: Opened) -> None:
    page = gallery.page
    page.evaluate("window.scrollTo(0, 1e6)")
    page.fill("#words", "more of it 12")
    count(gallery, "8 of")
    assert page.evaluate("window.scrollY") == 0
    page.select_option("#layout", "0")
    page.select_option("#layer", "1")
    count(gallery, "3 of")
    assert page.locator(".tile span").first.inner_text().startswith("head 1.0")
    page.fill("#words", "2")  # the number of an input, or a part of its text
    page.select_option("#head", "2")
    count(gallery, "3 of")
    page.fill("#words", "nowhere")
    count(gallery, "0 of")
    assert "No picture matches" in page.inner_text("#list")


def test_hostile_text_is_text(gallery: Opened) -> None:
    gallery.page.fill("#words", "onerror")
    count(gallery, "8 of")
    assert TEXTS[2] in gallery.page.inner_text("#list")


@pytest.mark.parametrize("way", [pytest.param("click", marks=pytest.mark.slow), "keys"])
def test_a_large_picture_and_back(gallery: Opened, way: str) -> None:
    page = gallery.page
    tile = page.locator(".tile").nth(1)
    if way == "click":
        tile.locator("img").click()
    else:
        tile.focus()
        page.keyboard.press("Enter")
    assert page.inner_text("#caption").startswith("head 0.1")
    for _ in range(30):
        page.keyboard.press("ArrowRight")
    assert page.inner_text("#caption").startswith("layer 1")
    assert page.inner_text("#sentence") == "4: more of it 0"
    page.keyboard.press("Escape")
    focused = "document.activeElement"
    until(page, f"{focused}.textContent.startsWith('layer 1')")
    box = page.evaluate(f"{focused}.getBoundingClientRect().toJSON()")
    assert box["top"] > 0
    assert box["bottom"] <= 700


def test_a_filter_typed_just_before_a_picture_opens_waits_for_its_end(gallery: Opened) -> None:
    page = gallery.page
    for words, caption in (("first", "head 0.1"), ("second", None)):
        page.fill("#words", "")
        count(gallery, "184 of")
        page.evaluate(
            "words => { const box = document.getElementById('words'); box.value = words;"
            " box.dispatchEvent(new Event('input', { bubbles: true }));"
            " document.querySelectorAll('.tile')[1].click(); }",
            words,
        )
        page.wait_for_timeout(200)
        assert page.inner_text("#count").startswith("184 of")
        page.keyboard.press("Escape")
        count(gallery, "8 of")
        if caption is None:  # it is not among those that match
            until(page, "document.activeElement.id === 'words'")
        else:
            until(page, f"document.activeElement.textContent.startsWith('{caption}')")


def test_a_link_shows_the_same_filters_and_picture(gallery: Opened, folder: Path) -> None:
    page = gallery.page
    count(gallery, "184 of")
    page.fill("#words", "first")
    page.select_option("#layer", "1")
    count(gallery, "4 of")
    page.locator(".tile").nth(2).click()
    caption, link = page.inner_text("#caption"), page.url
    assert "words=first" in link
    assert caption.startswith("head 1.2")
    page.goto("about:blank")
    page.goto(link)
    count(gallery, "4 of")
    assert page.input_value("#words") == "first"
    assert page.inner_text("#caption") == caption
    page.keyboard.press("ArrowLeft")
    assert page.url != link
    page.keyboard.press("Escape")
    until(page, "!location.hash.includes('picture')")
    page.goto(f"{(folder / 'index.html').as_uri()}#layer=99&kind=x&picture=../../etc&odd=1")
    count(gallery, "184 of")
    assert not page.is_visible("#view")


def test_what_stands_above_a_picture_can_be_read_in_the_dark(browser: Any, folder: Path) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto((folder / "index.html").as_uri())
    page.locator(".tile").first.click()
    found = page.evaluate(
        """() => ['#file', '#view'].map((name, i) => {
            const style = getComputedStyle(document.querySelector(name));
            return (i ? style.backgroundColor : style.color).match(/\\d+/g).map(Number);
        })"""
    )
    page.close()
    ink, paper = (0.21 * r + 0.72 * g + 0.07 * b for r, g, b, *_ in found)
    assert abs(ink - paper) > 140, found
