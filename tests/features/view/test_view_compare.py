"""Two maps in step: heads, texts and runs side by side, and their signed difference."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import attnviz as av
from attnviz.cli import main
from attnviz.core.capture import Capture
from attnviz.core.heads import Head
from attnviz.core.tokens import Tokens
from attnviz.drawing.grid import SCHEMES
from attnviz.drawing.palette import rgb
from attnviz.errors import InputError, ModelError, UsageError
from attnviz.features.diff.run import compare, distances
from attnviz.scoring.merged import merge_words
from tests.features.view.test_view import hostile
from tests.features.view.test_view_page import geometry, near, of
from tests.features.view.test_view_who import holds
from tests.viewing import (
    Opened,
    accessible,
    data_of,
    encoder_decoder,
    made,
    opened,
    pair,
    until,
    words,
    write_page,
)

pytestmark = pytest.mark.slow

MARK = (0xB3, 0x47, 0x00)
"""Crosshairs on a light page."""


def texts() -> list[Any]:
    """A text, one with another word in it, one with a word more, and another text altogether."""
    several = [
        "the keys to the cabinet are here", "the keys to the cupboard are here",
        "the small keys to the cabinet are here", "birds sing",
    ]  # fmt: skip
    return [made(3, 2, Tokens(tuple(t.split())), seed=n) for n, t in enumerate(several)]


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, Path]:
    held: dict[str, Any] = {
        "pair": pair(),
        "texts": texts(),
        "three": encoder_decoder(),
        "hostile": [made(2, 2, hostile(), seed=n) for n in range(2)],
        "long": made(2, 2, words(120)),
    }
    found = {name: write_page(folder, name, one, bits=16) for name, one in held.items()}
    close = made(2, 2)
    nearly = made(2, 2)
    for site, maps in nearly.maps.items():
        nearly.maps[site][:] = (1 - 1e-5) * maps + 1e-5 / maps.shape[-1]
    return found | {"close": write_page(folder, "close", [close, nearly])}


def shown(page: Opened) -> list[str]:
    """The maps that are on the screen."""
    return page.page.eval_on_selector_all(
        ".pane", "all => all.filter(p => p.offsetParent).map(p => p.id.replace('pane-', ''))"
    )


def over(page: Opened, name: str, r: int, c: int) -> str:
    """Point at a cell of one of the maps; what is said of it."""
    part = "map" if name == "first" else name
    g = geometry(page, f"#{part}-cells")
    page.page.locator(f"#{part}-over").scroll_into_view_if_needed()
    box = page.page.locator(f"#{part}-over").bounding_box()
    x, y = g["left"] + (c + 0.5 - g["c0"]) * g["cw"], g["top"] + (r + 0.5 - g["r0"]) * g["ch"]
    page.page.mouse.move(box["x"] + x, box["y"] + y)
    return page.settle().text("#tip")


def marked(page: Opened, name: str) -> tuple[list[int], list[int]]:
    """The rows and columns of a map that a crosshair is on."""
    part = "map" if name == "first" else name
    g = geometry(page, f"#{part}-cells")
    rows, columns = map(int, page.page.get_attribute(f"#{part}-cells", "data-shape").split(","))
    # a line above and one below, a line before and one behind
    found, across = [], []
    for r in range(rows):
        x, y = g["left"] + 0.5 * g["cw"], g["top"] + r * g["ch"]
        lines = [page.pixel(f"#{part}-over", x, at) for at in (y - 0.5, y + g["ch"] + 0.5)]
        found += [r] if all(near(line, np.array(MARK), 4) for line in lines) else []
    for c in range(columns):
        x, y = g["left"] + c * g["cw"], g["top"] + 0.5 * g["ch"]
        lines = [page.pixel(f"#{part}-over", at, y) for at in (x - 0.5, x + g["cw"] + 0.5)]
        across += [c] if all(near(line, np.array(MARK), 4) for line in lines) else []
    return found, across


def difference(page: Opened) -> tuple[list[list[str]], np.ndarray]:
    """The table of a comparison: its lines, and first, second and difference of each."""
    names, lines = page.table()
    assert names[4:6] == ["second_query", "second_key"]
    assert [name.split(":")[0] for name in names[6:]] == [
        "first", "first ±", "second", "second ±", "difference", "difference ±", "allowed", "note",
    ]  # fmt: skip
    return lines, np.array([[float(line[i]) for i in (6, 8, 10)] for line in lines])


def test_a_wide_screen_has_two_maps_from_the_start(browser: Any, pages) -> None:
    with opened(browser, viewport={"width": 1900, "height": 1000}) as page:
        page.open(pages["pair"], "view=map")
        assert shown(page) == ["first", "second"]
        first, second = (page.text(f"#{part}-caption .head-name") for part in ("map", "second"))
        assert first != second
        boxes = [page.page.locator(f"#{part}-over").bounding_box() for part in ("map", "second")]
        assert abs(boxes[0]["y"] - boxes[1]["y"]) < 1
        assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
        page.click("#compare")
        assert shown(page) == ["first"]
        assert "beside=none" in page.hash()
        page.click("#compare")
        assert shown(page) == ["first", "second", "difference"]
        page.go("view=map&on=0.0,0.1")
        assert shown(page) == ["first"], "several heads are blended, not compared"
    with opened(browser) as page:
        page.open(pages["pair"], "view=map")
        assert shown(page) == ["first"]


def drawn_lines(page: Opened) -> dict[str, int]:
    """How many lines a saved picture has, by colour."""
    found = ElementTree.fromstring(page.saved("svg"))
    colors = [one.get("stroke") for one in found.iter() if one.get("class") == "w"]
    return {color: colors.count(color) for color in colors}


def test_lines_are_compared_too(shared: Opened, pages) -> None:
    capture = pair()
    maps = [of(capture, name) for name in ("0.1", "1.2")]
    less = maps[1] - maps[0]
    many = "top=999&least=0.05"
    shared.open(pages["pair"], f"view=lines&on=0.1&beside=1.2&{many}")
    assert len(geometry(shared, "#lines-canvas")["lefts"]) == 2, "as many as there is room for"
    assert "room for 2 of 3" in shared.text("#lines-caption")
    assert shared.page.is_visible("#beside")
    shared.press("e", "e", "e")
    assert "room for" not in shared.text("#lines-caption")
    g = geometry(shared, "#lines-canvas")
    assert len(g["lefts"]) == 1
    most = np.abs(less).max()
    want = {
        SCHEMES["light"][2]: int((less >= 0.05 * most).sum()),
        SCHEMES["light"][0]: int((less <= -0.05 * most).sum()),
    }
    assert {c: abs(n - want[c]) <= 1 for c, n in drawn_lines(shared).items()} == dict.fromkeys(
        want, True
    )
    shared.press("e")
    g = geometry(shared, "#lines-canvas")
    box = shared.page.locator("#lines-canvas").bounding_box()
    y = box["y"] + g["above"] + 7.5 * g["step"]
    shared.page.mouse.move(box["x"] + g["lefts"][1] + 20, y)
    told = shared.settle().text("#tip")
    assert told.startswith("fell attends to")
    for weights, name in zip(maps, ("head 0.1", "head 1.2"), strict=True):
        best = weights[7].max()
        assert any(holds(found, best) for found in re.findall(rf"([\d.]+) [^\n]*{name}", told))
    shared.page.mouse.down()
    shared.page.mouse.up()
    assert "pin=q7" in shared.settle().hash()
    _, values = difference(shared)
    assert np.abs(values[:, 2] - less.ravel()).max() < 1e-4
    shared.open(pages["texts"], "view=lines&on=0.1&beside=@2")
    g = geometry(shared, "#lines-canvas")
    box = shared.page.locator("#lines-canvas").bounding_box()
    shared.page.mouse.move(box["x"] + g["lefts"][1] + 20, box["y"] + g["above"] + 1.5 * g["step"])
    told = shared.settle().text("#tip")
    assert told.startswith("small attends to")
    assert "no counterpart" in told


@pytest.mark.parametrize("width", [2560, 3840])
def test_large_screens_are_used(browser: Any, pages, width: int) -> None:
    with opened(browser, viewport={"width": width, "height": width * 9 // 16}) as page:
        page.open(pages["pair"], "view=overview")
        tiles = page.page.locator("#overview-tiles button")
        last = tiles.last.bounding_box()
        assert last["y"] + last["height"] < width * 9 / 16, "all layers are in sight"
        assert last["height"] > 0.3 * width * 9 / 16
        page.go("view=lines&on=0.1")
        found = geometry(page, "#lines-canvas")
        assert found["step"] > 45
        assert len(found["lefts"]) == 2
        assert found["lefts"][1] + found["width"] > 0.7 * width
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width


def test_pointing_goes_in_step_and_says_both_weights(shared: Opened, pages) -> None:
    capture = pair()
    shared.open(pages["pair"], "view=map&on=0.1&beside=1.2")
    assert shown(shared) == ["first", "second", "difference"]
    one, other = of(capture, "0.1")[7, 2], of(capture, "1.2")[7, 2]
    for name in ("first", "second", "difference"):
        told = over(shared, name, 7, 2)
        assert told.startswith("fell → key")
        values = re.findall(r"([+−]?)([\d.]+) (head 0\.1|head 1\.2|difference)", told)
        assert [what for _, _, what in values] == ["head 0.1", "head 1.2", "difference"]
        got = [float(number) * (-1 if sign == "−" else 1) for sign, number, _ in values]
        assert np.abs(np.array(got) - [one, other, other - one]).max() < 2e-4
        for each in ("first", "second", "difference"):
            assert marked(shared, each) == ([7], [2])
    shared.page.mouse.move(2, 2)
    shared.settle()
    assert marked(shared, "second") == ([], [])


def test_the_difference_has_its_colours_and_its_range(shared: Opened, pages) -> None:
    capture = pair()
    less = of(capture, "1.2") - of(capture, "0.1")
    most = np.abs(less).max()
    for theme in ("light", "dark"):
        shared.open(pages["pair"], f"view=map&on=0.1&beside=1.2&sides=difference&theme={theme}")
        assert shown(shared) == ["difference"]
        ends = [np.array(rgb(color), float) for color in SCHEMES[theme]]
        g = geometry(shared, "#difference-cells")
        for r, c in [(0, 1), (4, 4), (9, 9), np.unravel_index(np.abs(less).argmax(), less.shape)]:
            share = less[r, c] / most
            want = ends[1] + abs(share) * (ends[2 if share > 0 else 0] - ends[1])
            at = g["left"] + (c + 0.15) * g["cw"], g["top"] + (r + 0.15) * g["ch"]
            assert near(shared.pixel("#difference-cells", *at), want, 3), (r, c)
    svg = shared.saved("svg").decode()
    ends_said = re.findall(r">([+−])([\d.]+)<", svg)
    assert ("−", f"{np.ceil(most * 100) / 100:.2f}") in ends_said
    assert ("+", f"{np.ceil(most * 100) / 100:.2f}") in ends_said
    told = shared.page.get_attribute("#difference-over", "aria-label")
    assert "difference, the second less the first: 10 queries by 10 keys" in told


def test_files_hold_both_sides_and_their_difference(shared: Opened, pages) -> None:
    capture = pair()
    shared.open(pages["pair"], "view=map&on=0.1&beside=1.2")
    lines, values = difference(shared)
    want = [of(capture, name).ravel() for name in ("0.1", "1.2")]
    assert np.abs(values - np.stack([*want, want[1] - want[0]], 1)).max() < 1e-4
    assert lines[0][-1]
    assert not lines[1][-1]
    root = ElementTree.fromstring(shared.saved("svg"))
    maps = [g for g in root.iter() if g.get("class") == "map"]
    assert [m.get("data-rows") for m in maps].count("10") == 3
    image = Image.open(io.BytesIO(shared.saved("png")))
    width, height = float(root.get("width")), float(root.get("height"))
    assert abs(image.width / image.height - width / height) < 0.01
    shared.go("view=map&on=0.1&beside=1.2&words=1&separators=1&rescale=1")
    _, values = difference(shared)
    sides = capture.inputs.sides["encoder"]
    merged, _ = merge_words(np.stack([of(capture, n) for n in ("0.1", "1.2")]), sides)
    merged = np.delete(np.delete(merged, [4, 7], 1), [4, 7], 2)
    merged /= merged.sum(-1, keepdims=True)
    assert values.shape[0] == merged[0].size
    assert np.abs(values[:, 2] - (merged[1] - merged[0]).ravel()).max() < 1e-4


def test_texts_are_laid_side_by_side_by_token_and_position(shared: Opened, pages) -> None:
    held = texts()
    shared.open(pages["texts"], "view=map&on=0.1&beside=@1")
    said = shared.text("#beside-said")
    assert "6 are the same" in said
    assert "by position where they differ: 1 (cabinet / cupboard)" in said
    lines, values = difference(shared)
    want = [of(one, "0.1") for one in held]
    assert np.abs(values[:, 2] - (want[1] - want[0]).ravel()).max() < 1e-4
    assert (lines[4][3], lines[4][5]) == ("cabinet", "cupboard")
    assert over(shared, "first", 4, 1).startswith("cabinet → keys and cupboard → keys")

    shared.go("view=map&on=0.1&beside=1.0@2")
    said = shared.text("#beside-said")
    assert "7 are the same, 1 of one side alone" in said
    keep = [0, 2, 3, 4, 5, 6, 7]
    _, values = difference(shared)
    less = of(held[2], "1.0")[np.ix_(keep, keep)] - want[0]
    assert np.abs(values[:, 2] - less.ravel()).max() < 1e-4
    told = over(shared, "second", 5, 2)
    assert told.startswith("cabinet → keys")
    assert f"{want[0][4, 1]:.3f}"[:4] in told
    assert marked(shared, "first") == ([4], [1])
    assert "no counterpart" in over(shared, "second", 1, 0)
    assert marked(shared, "first")[0] == []


def test_what_cannot_be_laid_side_by_side_is_said(shared: Opened, pages) -> None:
    shared.open(pages["texts"], "view=map&on=0.1&beside=@3")
    assert shown(shared) == ["first", "second"]
    assert "cannot be aligned, only 0 of 7 are the same tokens" in shared.text("#beside-said")
    assert not shared.page.is_enabled("#sides [data-sides=difference]")
    _, lines = shared.table()
    assert all(line[10] == "" for line in lines)
    assert "cannot be aligned" in (lines[0][-1] if lines else "cannot be aligned")
    shared.go("view=map&on=0.1&beside=@9")
    assert shown(shared) == ["first"], "there is no such text"


def test_what_rounding_makes_is_no_difference(shared: Opened, pages) -> None:
    """Of 8 bits, weights that differ by a millionth are not shown to differ."""
    shared.open(pages["close"], "view=map&on=0.1&beside=@1&sides=difference")
    g = geometry(shared, "#difference-cells")
    nothing = np.array(rgb(SCHEMES["light"][1]))
    for r in range(7):
        for c in range(7):
            at = g["left"] + (c + 0.1) * g["cw"], g["top"] + (r + 0.1) * g["ch"]
            assert near(shared.pixel("#difference-cells", *at), nothing, 60)
    assert re.search(r"±[\d.]+ difference", over(shared, "difference", 2, 3))


def test_keys_compare_swap_and_switch(shared: Opened, pages) -> None:
    shared.open(pages["pair"], "view=overview&on=0.1&head=0.1", again=True)
    shared.press("c")
    assert shown(shared) == ["first", "second", "difference"]
    beside = re.search(r"beside=(\d\.\d)", shared.hash())[1]
    seen = []
    for _ in range(4):
        shared.press("e")
        seen.append(shown(shared))
    assert seen == [["first"], ["second"], ["difference"], ["first", "second", "difference"]]
    shared.press("b")
    assert f"on={beside}" in shared.hash()
    assert "beside=0.1" in shared.hash()
    shared.page.mouse.move(2, 2)
    shared.page.focus("#second-over")
    shared.press("Shift+ArrowDown", "Shift+ArrowRight")
    shared.page.wait_for_timeout(200)
    told = shared.text("#spoken")
    assert re.search(rf"head {beside} [≈\d.]+, head 0\.1 [≈\d.]+, difference [+−±]", told), told
    assert marked(shared, "first")[0] == marked(shared, "second")[0] != []
    shared.press("Escape", "c")
    assert shown(shared) == ["first"]
    shared.open(pages["pair"], "view=overview&on=0.1,1.0", again=True)
    shared.click("#compare")
    assert "beside=1.0" in shared.hash(), "two heads that are on are the two sides"
    shared.open(pages["texts"], "view=map&on=0.1&beside=@2")
    shared.press("b")
    assert "text=2" in shared.hash()
    assert "beside=%400" in shared.hash()


def test_lists_choose_the_other_side(shared: Opened, pages) -> None:
    shared.open(pages["texts"], "view=map&on=0.1&beside=1.2")
    assert "beside=1.2%401" in shared.choose("#beside-text", "1").hash()
    assert re.search(r"beside=%401(&|$)", shared.choose("#beside-head", "").hash())
    link = shared.choose("#texts", "1").hash()
    assert re.search(r"beside=%400(&|$)", link), "not with itself"
    link = shared.choose("#beside-text", "1").hash()
    assert re.search(r"beside=\d\.\d(&|$)", link), "another head of it"


def test_cross_attention_is_compared_on_both_axes(shared: Opened, pages) -> None:
    capture = encoder_decoder()
    shared.open(pages["three"], "view=map&kind=cross&on=0.0&beside=1.1")
    _, values = difference(shared)
    less = of(capture, "1.1", "cross") - of(capture, "0.0", "cross")
    assert np.abs(values[:, 2] - less.ravel()).max() < 1e-4


def test_zoom_goes_in_step(shared: Opened, pages) -> None:
    shared.open(pages["long"], "view=map&on=0.1&beside=1.0&zoom=4,20,30")
    found = [geometry(shared, f"#{part}-cells") for part in ("map", "second", "difference")]
    assert {(g["r0"], g["c0"]) for g in found} == {(20, 30)}
    over(shared, "second", 30, 40)
    shared.page.mouse.wheel(0, 100)
    shared.settle()
    now = [geometry(shared, f"#{part}-cells") for part in ("map", "second", "difference")]
    assert len({(round(g["r0"], 2), round(g["c0"], 2)) for g in now}) == 1
    assert now[0]["r0"] > 20


def test_hostile_tokens_are_compared_as_text(shared: Opened, pages) -> None:
    shared.open(pages["hostile"], "view=map&on=0.1&beside=@1")
    over(shared, "second", 0, 0)
    shared.press("e", "e")
    assert shared.page.locator("#beside img, #tip img, .caption img").count() == 0


@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing_while_maps_are_compared(browser: Any, pages, width: int) -> None:
    with opened(browser, viewport={"width": width, "height": 900}) as page:
        for name, theme in (("pair", "light"), ("texts", "dark"), ("texts", "light")):
            beside = "1.2" if name == "pair" else "@1"
            view = "map" if theme == "light" else "lines"
            page.open(pages[name], f"view={view}&on=0.1&beside={beside}&theme={theme}&most=1")
            accessible(page.page)
            assert page.page.evaluate("document.documentElement.scrollWidth") <= width
            small = page.page.evaluate(
                """() => [...document.querySelectorAll('#beside button, #beside select, #compare')]
                    .map(one => one.getBoundingClientRect())
                    .filter(({ width, height }) => height && (width < 24 || height < 24)).length"""
            )
            assert small == 0


def test_paper_gets_all_maps(browser: Any, pages) -> None:
    with opened(browser, color_scheme="dark") as page:
        page.open(pages["pair"], "view=map&on=0.1&beside=1.2")
        page.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.settle()
        assert page.page.locator("#print g.map[data-rows='10']").count() == 3
        page.page.evaluate("dispatchEvent(new Event('afterprint'))")


def test_heads_are_ranked_by_what_changed(browser: Any, pages, tmp_path: Path) -> None:
    """Distances are those of `attnviz diff`, within what the page says of them."""
    held = texts()
    coarse = write_page(tmp_path, "coarse", held)
    with opened(browser) as page:
        for path, close in ((pages["texts"], True), (coarse, False)):
            for other, keep in ((1, None), (2, [0, 2, 3, 4, 5, 6, 7])):
                page.open(path, f"view=map&on=0.1&beside=@{other}")
                assert not page.page.is_visible("#most")
                page.press("j")
                until(page.page, "document.querySelectorAll('#most-list button').length")
                want = {h.name: expected(held[0], held[other], h, keep) for h in held[0].layout}
                told = page.all("#most-list button")
                assert len(told) == 6
                values = []
                number = r"<?[\d.]+(?: ± [\d.]+)?"
                for text in told:
                    name, mean, largest = re.match(
                        rf"(\S+) ({number}) (?:[+−].*; )?({number}) at", text
                    ).groups()
                    assert holds(mean, want[name].mean()), text
                    assert holds(largest, want[name].max()), text
                    values.append(want[name].mean())
                if close:
                    assert values == sorted(values, reverse=True)
                said = re.match(r"Head (\S+) changed most|\d heads lead", page.text("#most-said"))
                assert said[1] in (None, max(want, key=lambda name: want[name].mean()))
                assert "most=1" in page.hash()
        best = page.page.get_attribute("#most-list button", "data-head")
        page.click("#most-list button")
        assert f"on={best}" in page.hash()
        assert page.page.get_attribute("#most-list [aria-current]", "data-head") == best
        page.press("s")
        assert page.page.locator("#most-list button").count() == 6
        page.go("view=map&on=0.1&beside=1.0&most=1")
        assert not page.page.is_visible("#most-open"), "heads of one text have not changed"
        page.go("view=map&on=0.1&beside=@3&most=1")
        assert not page.page.is_visible("#most"), "nothing to lay side by side"


def expected(one: Capture, other: Capture, head: Head, keep: list[int] | None) -> np.ndarray:
    """The distances of a head's rows, those of ``other`` cut to what has a counterpart."""
    maps = [capture.maps[head.site][head.index].astype(np.float64) for capture in (one, other)]
    if keep is not None:
        maps[1] = maps[1][np.ix_(keep, keep)]
    return distances(maps[0][None], maps[1][None])[0]


def test_nothing_changed_between_the_same_weights(shared: Opened, pages) -> None:
    shared.open(pages["close"], "view=map&on=0.1&beside=@1&most=1")
    until(shared.page, "document.querySelectorAll('#most-list button').length")
    assert shared.text("#most-said").startswith("No head changed by more than 8 bits can tell")


def test_a_ranking_of_norms_divides_them_by_their_sums(browser: Any, tmp_path: Path) -> None:
    both = [av.capture(text, quantity="norm") for text in ("one two three", "one two four")]
    path = av.view(["one two three", "one two four"], quantity="norm", bits=16).save(
        tmp_path / "norm.html"
    )
    with opened(browser) as page:
        page.open(path, "view=map&on=0.1&beside=@1&most=1")
        until(page.page, "document.querySelectorAll('#most-list button').length")
        rows = compare([(both[0], both[1])], "position").heads
        want = {head.name.removeprefix("decoder:"): head.distance.mean for head in rows}
        told = page.all("#most-list button")
        for text in told:
            name, mean = text.split()[:2]
            assert holds(mean, want[name]), (text, want[name])


def test_two_runs_of_a_text_open_side_by_side(browser: Any, tmp_path: Path) -> None:
    model, other = (av.FreshConfig(layers=2, heads=4, seed=seed) for seed in (0, 1))
    texts = ["a b a c", "one two three"]
    path = av.view(texts, model=model, other_model=other, bits=16).save(tmp_path / "runs.html")
    held = [[av.capture(text, model=one) for one in (model, other)] for text in texts]
    with opened(browser) as page:
        for n in range(2):
            page.open(path, f"view=map&on=1.2&text={2 * n}")
            assert shown(page) == ["first", "second", "difference"]
            assert page.text("#second-caption").startswith(f"{2 * n + 2}. fresh mha")
            assert page.text("#second-caption").splitlines()[0].endswith(f"seed 1: {texts[n]}")
            told = over(page, "second", 1, 1)
            for seed in (0, 1):
                assert f"head 1.2, fresh mha, 2 layers of 4 heads, d-model 128, seed {seed}" in told
            _, values = difference(page)
            one, two = (of(capture, "1.2") for capture in held[n])
            assert np.abs(values - np.stack([one, two, two - one], -1).reshape(-1, 3)).max() < 1e-4
            page.press("j")
            until(page.page, "document.querySelectorAll('#most-list button').length")
            rows = compare([tuple(held[n])], "token").heads
            assert page.page.get_attribute("#most-list button", "data-head") == rows[0].name
        page.press("b")
        assert "text=3" in page.hash()
        assert shown(page) == ["first", "second", "difference"]
        options = page.all("#texts option", "text")
        assert [one.split(": ")[1] for one in options] == sorted(texts * 2)
        assert [re.search(r"^\d. fresh mha.* seed (\d):", one)[1] for one in options] == [
            "0",
            "1",
        ] * 2
        page.press("c")
        assert shown(page) == ["first"]
        # the line below the title names the run, the foot both of them; j opens the comparison
        page.open(path, "view=overview&text=1")
        assert page.text("#sentence").endswith("seed 1: a b a c")
        assert re.findall(r"seed (\d)", page.text("#origin")) == ["1", "0"]
        page.press("j")
        assert page.page.is_visible("#view-map")
        until(page.page, "document.querySelectorAll('#most-list button').length")
        page.press("j")
        assert not page.page.is_visible("#most")


def test_j_of_several_texts_compares_the_next_and_of_one_says_so(shared: Opened, pages) -> None:
    shared.open(pages["close"], "view=overview&on=0.1")
    fill = "id => getComputedStyle(document.getElementById(id)).backgroundColor"
    closed = shared.page.evaluate(fill, "compare")
    shared.press("j")
    for opened_one in ("compare", "most-open"):
        assert shared.page.evaluate(fill, opened_one) != closed
    until(shared.page, "document.querySelectorAll('#most-list button').length")
    assert "beside=%401" in shared.hash()


def test_heads_are_taken_away_from_the_first_run_alone() -> None:
    text = "a b a c"
    model = av.FreshConfig(layers=2, heads=2)
    page = av.view(text, model=model, without="0.1", other_model=model)
    whole, less = av.capture(text, model=model), av.capture(text, model=model, without="0.1")
    for held, want in zip(page.captures, (less, whole), strict=True):
        for site in want.maps:
            np.testing.assert_array_equal(held.maps[site], want.maps[site])
    first, second = re.findall(r'"run":"([^"]*)"', page.page.decode())
    assert first == f"{second} without 0.1"
    assert page.title == f"Attention of {first} and {second}"
    # a capture is as it is, too
    (_, other) = av.view(text, model=model, without="0.1", other_model=whole).captures
    assert other is whole


def test_runs_with_nothing_in_common_are_refused() -> None:
    one = made(2, 2, words(3))
    with pytest.raises(
        InputError, match=r"4 heads in 2 layers and .* 6 heads in 2 .* texts differ"
    ):
        av.view(one, other_model=made(3, 2, words(3, name="v")))
    (note,) = av.view(one, other_model=made(2, 2, words(3, name="v"))).notes
    assert note.startswith("The two runs are of different texts")
    page = av.view(one, other_model=made(3, 2, words(3)))
    assert "6 heads in 2 layers: heads of the same number stand side by side" in page.notes[0]
    assert page.notes[0] in page.page.decode()
    assert not av.view(one, other_model=made(2, 2, words(3), seed=1)).notes


def test_a_capture_is_shown_against_another(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    av.write_capture(made(2, 2, seed=1), "before.npz")
    av.write_capture(made(2, 2, seed=2), "after.npz")
    line = ["view", "--recorded", "before.npz", "--other-model", "after.npz", "-o", "b.html"]
    assert main(line) == 0
    data = data_of(Path("b.html").read_bytes())
    assert data["against"]
    assert [item["run"] for item in data["items"]] == [
        "made by hand (before.npz)",
        "made by hand (after.npz)",
    ]
    assert '"against":false' in av.view(made(2, 2)).page.decode()
    same = av.view(made(2, 2, seed=1), other_model=made(2, 2, seed=2)).page.decode()
    assert re.findall(r'"run":"([^"]*)"', same) == ["first run", "second run"]
    with pytest.raises(UsageError, match="the other capture"):
        av.view(made(2, 2), other_model="demo-bert")
    with pytest.raises(UsageError, match="ablate is of one model"):
        av.view("a b", other_model="demo-bert", ablate=True)
    Path("lines.txt").write_text("a b\n")
    with pytest.raises(ModelError, match=r"lines.txt is a file; other_model takes the folder"):
        av.view("a b", other_model="lines.txt")
