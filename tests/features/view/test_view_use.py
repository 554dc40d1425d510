"""The viewer's page as people use it: keys and focus, links, known digits, files, paper, needs."""

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
from attnviz.models import recorded
from tests.features.view.test_view_page import (
    KEPT,
    STATES_OF,
    VIEWS,
    cell,
    geometry,
    hover,
    of,
    wanted,
)
from tests.viewing import (
    Opened,
    accessible,
    encoder_decoder,
    made,
    opened,
    pair,
    until,
    words,
    write_page,
)

pytestmark = pytest.mark.slow

SVG = "{http://www.w3.org/2000/svg}"
HELD = "document.activeElement.id || document.activeElement.dataset.head"


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, Path]:
    repeats = av.capture("a b a b a c", model=av.FreshConfig(layers=2, heads=4, causal=True))
    made_of = {
        "pair": pair(),
        "repeats": repeats,
        "tall": made(4, 14, words(5)),
        "gpt": av.capture("The keys are on the table, aren't they? The keys are."),
        "three": encoder_decoder(),
    }
    found = {name: write_page(folder, name, one) for name, one in made_of.items()}
    return found | {"exact": write_page(folder, "exact", pair(), bits=16)}


# known digits


@pytest.mark.parametrize("head", ["0.1", "1.2"])
def test_every_digit_under_the_pointer_is_the_weights_own(shared: Opened, pages, head) -> None:
    weights = of(pair(), head)
    shared.open(pages["pair"], f"view=map&on={head}")
    for r in range(10):
        for c in range(10):
            told = hover(shared, r, c).split("\n")[1]
            # the row's ± changes nothing, a small weight has its own
            text, error = re.match(r"(<?[\d.]+)(?: ± ([\d.]+))? row 1, column", told).groups()
            if error is not None:
                assert abs(float(text) - weights[r, c]) <= float(error), (r, c)
            elif text.startswith("<"):
                assert weights[r, c] < float(text[1:])
            else:
                unit = 10.0 ** -len(text.partition(".")[2])
                assert abs(float(text) - weights[r, c]) <= unit, (r, c)


def test_the_largest_error_is_rounded_up(shared: Opened, pages) -> None:
    for name in ("pair", "exact"):
        shared.open(pages[name])
        said = float(re.search(r"off by at most ([\d.]+)", shared.text("#origin"))[1])
        shared.go("view=map&on=*&mix=max")
        worst = 0.0
        for head in pair().layout:
            shared.go(f"view=map&on={head.name}")
            worst = max(worst, np.abs(shared.numbers((10, 10))[0] - of(pair(), head.name)).max())
        assert worst * 0.98 <= said * 1.02
        assert said >= {"pair": 0.001, "exact": 1e-6}[name]


@pytest.mark.parametrize("state", STATES_OF)
@pytest.mark.parametrize("name", ["pair", "exact"])
def test_a_table_says_how_far_off_each_weight_can_be(
    shared: Opened, pages, name: str, state: str
) -> None:
    want = wanted(state)
    shared.open(pages[name], f"view=map&{state}")
    got = shared.numbers(want.shape[1:])
    assert (np.abs(got - want) <= shared.errors + 1e-7).all()
    assert shared.errors.max() < {"pair": 0.03, "exact": 2e-4}[name]
    _, (first, *others) = shared.table()
    assert ("8 bits" in first[-1]) == (name == "pair")
    assert ("hidden" in first[-1]) == any(part in state for part in ("separators", "first"))
    assert ("rescaled" in first[-1]) == ("rescale" in state)
    assert {line[-1] for line in others} == {""}


def test_a_table_has_no_weight_where_none_may_be(shared: Opened, tmp_path: Path) -> None:
    """Not allowed, allowed in one of two heads, and not known are three things."""
    known = av.capture("The cat sat on the mat.", device="cpu")
    shared.open(write_page(tmp_path, "causal", known), "view=map&on=0.1,2.4", again=True)
    names, lines = shared.table()
    assert names[4:] == ["head 0.1", "head 0.1 ±", "head 2.4", "head 2.4 ±", "allowed", "note"]
    for line in lines:
        later = int(line[2]) > int(line[0])
        assert line[-2] == ("0" if later else "1")
        assert (line[4:8] == [""] * 4) == later
    shared.open(write_page(tmp_path, "unknown", made(1, 1, words(4), causal=True)), "view=map")
    names, lines = shared.table()
    assert {line[-2] for line in lines} == {""}
    assert all(line[4] for line in lines)


# saving


def test_an_overview_is_saved_whole_from_the_top_of_a_tall_model(browser: Any, pages) -> None:
    with opened(browser, viewport={"width": 1400, "height": 400}) as page:
        page.open(pages["tall"], "view=overview")
        svg = ElementTree.fromstring(page.downloaded("svg"))
        assert len([g for g in svg.iter(f"{SVG}g") if g.get("class") == "map"]) == 4 * 14
        assert Image.open(io.BytesIO(page.downloaded("png"))).size[1] > 2000
        assert not page.page.is_visible("#failure")


def test_the_red_bar_goes_when_the_page_is_drawn_again(browser: Any, pages) -> None:
    page = browser.new_page()
    page.goto(pages["pair"].as_uri())
    page.evaluate("dispatchEvent(new ErrorEvent('error', { message: 'a mishap' }))")
    assert "a mishap" in page.inner_text("#failure")
    page.keyboard.press("2")
    page.wait_for_selector("#failure", state="hidden")
    page.close()


@pytest.mark.parametrize(
    ("state", "name"),
    [
        ("view=card&head=1.2&on=0.0,0.1,0.2", "attnviz-card-head-1.2.png"),
        ("view=map&head=1.2&on=0.1", "attnviz-map-head-0.1.png"),
        ("view=lines&on=0.0,0.1,0.2", "attnviz-lines-3-heads.png"),
        ("view=overview&on=0.1", "attnviz-overview.png"),
    ],
)
def test_a_file_is_named_after_what_it_shows(shared: Opened, pages, state, name) -> None:
    shared.open(pages["pair"], state)
    shared.page.click("#save summary")
    with shared.page.expect_download() as waiting:
        shared.page.click("#save-png")
    shared.page.click("#save summary")
    assert waiting.value.suggested_filename == name


def test_all_heads_are_saved_as_csv(shared: Opened, pages) -> None:
    capture = pair()
    shared.open(pages["exact"], "view=overview&on=0.1&separators=1")
    names, lines = shared.table("all-csv")
    assert names[4:-2:2] == [f"head {head.name}" for head in capture.layout]
    values = np.array([[float(v) for v in line[4:-2:2]] for line in lines]).T.reshape(-1, 8, 8)
    want = np.stack([of(capture, head.name)[KEPT][:, KEPT] for head in capture.layout])
    np.testing.assert_allclose(values, want, atol=4e-5)


@pytest.mark.parametrize("name", ["pair", "exact"])
def test_all_heads_are_saved_as_numpy_arrays(shared: Opened, pages, tmp_path, name) -> None:
    capture = pair()
    shared.open(pages[name], "view=overview&on=0.1&separators=1")
    path = tmp_path / "all.npz"
    path.write_bytes(shared.saved("all-npz"))
    with np.load(path) as arrays:
        want = np.stack(list(capture.maps.values()))
        assert arrays["attentions"].dtype == np.float32
        most = {"pair": 4e-3, "exact": 2e-5}[name]
        np.testing.assert_allclose(arrays["attentions"], want, atol=most)
        assert arrays["heads"][1, 2] == "1.2"
        assert "off by at most" in str(arrays["meta"])
    if name == "exact":
        back = recorded.load(path)
        assert back.inputs.sides["encoder"].queries == capture.inputs.sides["encoder"].queries


def test_cross_attention_is_saved_with_both_sequences(shared: Opened, pages, tmp_path) -> None:
    shared.open(pages["three"], "kind=cross")
    path = tmp_path / "all.npz"
    path.write_bytes(shared.saved("all-npz"))
    with np.load(path) as arrays:
        assert arrays["attentions"].shape == (2, 2, 4, 5)
        assert list(arrays["tokens"]) == [f"tgt{i}" for i in range(4)]
        assert list(arrays["source_tokens"]) == [f"src{i}" for i in range(5)]


# keys and focus


def test_the_focus_goes_with_the_arrows(shared: Opened, pages) -> None:
    for place, view in (("#heads", "map"), ("#overview-tiles", "overview")):
        shared.open(pages["pair"], f"view={view}&on=0.0&head=0.0")
        shared.page.focus(f"{place} [data-head='0.0']")
        shared.press("ArrowRight", "ArrowDown")
        assert shared.page.evaluate("document.activeElement.dataset.head") == "1.1"
        assert shared.page.evaluate(f"!!document.activeElement.closest('{place}')")
    shared.open(pages["pair"], "view=map&on=0.0,1.1&head=0.0")
    shared.page.focus("#heads [data-head='0.0']")
    shared.press("ArrowRight").press("Space")
    assert shared.pressed("#heads") == ["0.0", "0.1", "1.1"], "Space toggles the head in focus"


def test_the_focus_goes_on_in_the_view_that_opens(shared: Opened, pages) -> None:
    shared.open(pages["pair"], "view=overview")
    shared.page.focus("#overview-tiles [data-head='0.0']")
    shared.press("Enter")
    assert shared.page.evaluate(HELD) == "map-over"
    shared.press("4")
    assert shared.page.evaluate(HELD) == "lines-frame"
    shared.press("5")
    assert shared.page.evaluate("document.activeElement.className") == "word special"
    shared.press("2")
    assert shared.page.evaluate(HELD) == "0.0"


def test_single_keys_can_be_turned_off(shared: Opened, pages) -> None:
    shared.open(pages["pair"], "view=map&on=0.0")
    shared.press("?")
    shared.page.uncheck("#letters")
    shared.press("Escape", "a", "w", "5", "+")
    assert shared.page.is_visible("#view-map")
    assert shared.pressed("#heads") == ["0.0"]
    link = shared.hash()
    assert "letters=0" in link
    assert "words" not in link
    shared.press("ArrowDown")
    assert shared.pressed("#heads") == ["1.0"], "arrows still work"
    shared.click("#open-help")
    shared.page.check("#letters")
    shared.press("Escape", "5")
    assert shared.page.is_visible("#view-text")


def test_the_first_stop_skips_to_the_picture(browser: Any, pages) -> None:
    with opened(browser) as page:
        page.open(pages["pair"], "view=map&on=0.1")
        page.press("Tab")
        assert page.page.evaluate(HELD) == "skip"
        assert page.page.locator("#skip").bounding_box()["y"] >= 0
        page.press("Enter")
        assert page.page.evaluate(HELD) == "map-over"
        assert "view=map" in page.hash()


def overlay(page: Opened) -> np.ndarray:
    """Where the map's overlay has any colour, [height, width]."""
    found = page.page.evaluate(
        """() => {
            const canvas = document.getElementById('map-over');
            const { width, height } = canvas;
            const copy = new OffscreenCanvas(width, height).getContext('2d');
            copy.drawImage(canvas, 0, 0);
            const { data } = copy.getImageData(0, 0, width, height);
            return [height, width, ...data.filter((_, i) => i % 4 === 3)];
        }"""
    )
    return np.array(found[2:]).reshape(found[:2]) > 0


def test_escape_leaves_the_crosshair(shared: Opened, pages) -> None:
    shared.open(pages["pair"], "view=map&on=0.1")
    shared.press("Shift+ArrowRight", "Shift+ArrowDown")
    assert shared.page.is_visible("#tip")
    assert overlay(shared).any()
    shared.press("Escape")
    assert not shared.page.is_visible("#tip")
    assert not overlay(shared).any()


def test_pinned_queries_and_keys_are_marked_in_the_map(shared: Opened, pages) -> None:
    shared.open(pages["pair"], "view=map&on=0.1&pin=k3")
    g = geometry(shared)
    marked = overlay(shared)
    assert marked[:, round(g["left"] + 3 * g["cw"]) - 1].mean() > 0.8
    assert marked.mean() < 0.05
    shared.go("view=map&on=0.1&pin=q3")
    assert overlay(shared)[round(g["top"] + 3 * g["ch"]) - 1].mean() > 0.8


# links


def test_a_number_can_be_typed_anew(shared: Opened, pages) -> None:
    shared.open(pages["pair"], "view=lines&on=0.1&top=1")
    shared.page.focus("#top")
    shared.press("End", "Backspace", "3")
    assert shared.page.input_value("#top") == "3"
    assert "top=3" in shared.hash()
    shared.press("Backspace")
    assert shared.page.input_value("#top") == ""
    shared.press("Tab")
    assert shared.page.input_value("#top") == "3"


def test_back_goes_to_the_view_and_head_before(browser: Any, pages) -> None:
    with opened(browser) as page:
        page.open(pages["pair"], "view=overview&on=0.0")
        page.hash()
        page.click("#overview-tiles [data-head='1.2']").hash()
        page.click("#words").hash()
        page.click("#tab-text").hash()
        page.press("ArrowLeft").hash()
        seen = []
        for _ in range(3):
            page.page.go_back()
            page.settle()
            link = page.hash()
            seen.append((re.findall(r"view=(\w+)", link), re.findall(r"head=([\d.]+)", link)))
        assert seen == [(["text"], ["1.2"]), (["map"], ["1.2"]), (["overview"], ["0.0"])]
        page.page.go_forward()
        assert page.settle().page.is_visible("#view-map")


@pytest.mark.parametrize("zoom", ["0,0,0", "0.5,1,1", "1e9,0,0", "65,0,0"])
def test_a_zoom_that_cannot_be_is_left_out(shared: Opened, pages, zoom: str) -> None:
    shared.open(pages["pair"], f"view=map&on=0.1&zoom={zoom}")
    assert "zoom" not in shared.hash()
    assert geometry(shared)["cw"] > 10


# what is said


def test_many_heads_keep_apart_and_all_stand_in_the_key(shared: Opened, pages) -> None:
    """All of them share a sink, so that colours that add up would be black there."""
    shared.open(pages["tall"], "view=map&on=0.*,1.*")
    svg = ElementTree.fromstring(shared.saved("svg"))
    texts = [t.text for t in svg.iter(f"{SVG}text")]
    for name in (f"{layer}.{head}" for layer in (0, 1) for head in range(4)):
        assert any(text.startswith(f"head {name} ≤") for text in texts)
    right = float(svg.get("width"))
    assert all(float(t.get("x")) < right - 60 for t in svg.iter(f"{SVG}text") if "≤" in t.text)
    assert "leads there" in shared.text("#map-caption")
    for r in range(5):
        for c in range(5):
            red, green, blue = shared.pixel("#map-cells", *cell(shared, r, c))
            assert max(red, green, blue) > 150, "no mud"


def test_repeated_tokens_have_their_positions(shared: Opened, pages) -> None:
    shared.open(pages["repeats"], "view=map&on=0.1")
    assert hover(shared, 4, 1).split("\n")[0] == "a (4) → b (1)"
    assert hover(shared, 5, 5).split("\n")[0] == "c → c"
    shared.go("view=text&on=0.1&pin=q4")
    assert shared.text("#text-said").startswith("a (4) attends to")
    assert re.search(r"b \([13]\) [≈<\d]", shared.text("#text-said"))


def test_a_dot_for_a_space_is_explained_and_not_read_aloud(shared: Opened, pages) -> None:
    shared.open(pages["gpt"], "view=map&on=1.4")
    assert hover(shared, 3, 2).startswith("·are (3) → ·keys (2)")
    assert "(·) at the edge of a token stands for a space" in shared.text("#notes")
    shared.page.mouse.move(2, 2)
    shared.press("Shift+ArrowRight", *["Shift+ArrowDown"] * 3)
    shared.page.wait_for_timeout(200)
    assert shared.text("#spoken").startswith("are (3) to <|endoftext|>: ")
    shared.go("view=text&on=1.4&words=1")
    labels = shared.all("#text-body button", "getAttribute('aria-label')")
    assert "aren't" in labels
    assert not any("·" in label for label in labels)
    shared.open(pages["pair"])
    assert "stands for a space" not in shared.text("#notes")


def test_rescaled_quadrants_say_so_in_every_view(shared: Opened, pages) -> None:
    for view in VIEWS:
        shared.open(pages["pair"], f"view={view}&on=0.1&quad=AB&rescale=1")
        said = shared.text(f"#view-{view}")
        assert "Only queries of sentence A and keys of sentence B are shown" in said
        assert "rescaled" in said


def test_controls_without_effect_are_disabled(shared: Opened, pages) -> None:
    able = {}
    for view in VIEWS:
        shared.open(pages["pair"], f"view={view}&on=0.0,0.1")
        able[view] = {
            name
            for name in ("find", "scale", "palette", "words", "separators")
            if shared.page.is_enabled(f"#{name}")
        } | ({"mix"} if shared.page.is_enabled("#mix button") else set())
    always = {"words", "separators"}
    assert able == {
        "overview": {"scale", "palette"} | always, "map": {"find", "scale", "mix"} | always,
        "lines": {"find", "mix"} | always, "text": {"find", "scale", "mix"} | always,
        "card": always,
    }  # fmt: skip
    shared.open(pages["repeats"], "view=map&on=0.1")
    assert not shared.page.is_enabled("#separators")
    assert shared.page.is_enabled("#palette")


def test_a_chip_is_pressed_while_just_its_heads_are_on(shared: Opened, pages) -> None:
    shared.open(pages["gpt"], "view=map&on=0.0")
    chip = shared.page.locator("#roles button").first
    shared.click(f"#roles [data-role='{chip.get_attribute('data-role')}']")
    assert chip.get_attribute("aria-pressed") == "true"
    shared.press("x")
    assert chip.get_attribute("aria-pressed") == "false"


def test_characters_cut_into_bytes_are_whole_in_title_picker_and_words(
    shared: Opened, tmp_path: Path
) -> None:
    texts = ["שלום 猫が好き 🚀", "we didn't"]
    path = write_page(tmp_path, "scripts", [av.capture(text) for text in texts])
    shared.open(path, "view=text&on=1.4&words=1")
    assert shared.text("#sentence") == texts[0]
    numbered = [f"{number}. {text}" for number, text in enumerate(texts, 1)]
    assert shared.all("#texts option") == numbered
    assert texts[0] in shared.text("#text-body").replace("\n", " ")
    assert shared.choose("#texts", "1").text("#sentence") == texts[1]
    assert "didn't" in shared.all("#text-body button")


# screens, paper, needs


@pytest.mark.parametrize("width", [360, 1280, 3840])
def test_targets_have_24_pixels(browser: Any, pages, width: int) -> None:
    with opened(browser, viewport={"width": width, "height": 900}) as page:
        for view in VIEWS:
            page.open(pages["pair"], f"view={view}&on=0.1")
            page.page.evaluate("document.getElementById('panel').open = true")
            small = page.page.evaluate(
                """() => [...document.querySelectorAll('button:not(.word), select, label.check')]
                    .map(one => [one.id || one.outerHTML.slice(0, 80), one.getBoundingClientRect()])
                    .filter(([, { width, height }]) => height && (width < 24 || height < 24))
                    .map(([name, { width, height }]) => [name, width, height])"""
            )
            assert small == [], view
        accessible(page.page, {"runOnly": ["target-size"]})


@pytest.mark.parametrize("view", ["overview", "map", "lines"])
def test_paper_gets_the_whole_drawing_in_light(browser: Any, pages, view: str) -> None:
    with opened(browser, color_scheme="dark", viewport={"width": 1280, "height": 2000}) as page:
        page.open(pages["tall"], f"view={view}&on=0.1,1.1")
        want = ElementTree.fromstring(page.saved("svg"))
        page.page.emulate_media(media="print")
        page.page.set_viewport_size({"width": 700, "height": 1000})
        page.settle()
        page.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.settle()
        assert not page.page.is_visible("main")
        box = page.page.locator("#print svg").bounding_box()
        assert box["width"] <= 700
        assert box["x"] >= 0
        texts = page.all("#print text")
        assert texts == [t.text for t in want.iter(f"{SVG}text")]
        grounds = (
            "[...document.querySelectorAll('#print rect, body')].map(r => r.getAttribute('fill'))"
        )
        assert "#14171c" not in page.page.evaluate(grounds)
        page.page.evaluate("dispatchEvent(new Event('afterprint'))")
        page.page.emulate_media(media="screen")
        assert page.settle().page.is_visible("main")
        assert page.page.locator("#print *").count() == 0


def test_paper_gets_layers_that_were_never_in_sight(browser: Any, pages) -> None:
    with opened(browser, viewport={"width": 1200, "height": 300}) as page:
        page.open(pages["tall"], "view=overview")
        until(
            page.page,
            """() => {
                dispatchEvent(new Event('beforeprint'));
                const found = document.querySelectorAll('#print g.map').length;
                if (found !== 4 * 14) dispatchEvent(new Event('afterprint'));
                return found === 4 * 14;
            }""",
        )


def test_forced_colours_keep_tints_choices_and_bars(browser: Any, pages) -> None:
    with opened(browser, forced_colors="active") as page:
        page.open(pages["pair"], "view=text&on=0.1&pin=q3")
        grounds = page.page.eval_on_selector_all(
            "#text-body button", "all => all.map(one => getComputedStyle(one).backgroundColor)"
        )
        assert len(set(grounds)) > 5
        style = (
            "one => { const s = getComputedStyle(one); return [s.outlineStyle, s.outlineWidth]; }"
        )
        for place in ("#text-body [aria-pressed=true]", "#heads [data-head][aria-pressed=true]"):
            assert page.page.eval_on_selector(place, style) == ["solid", "3px"]
        page.go("view=card&head=0.1")
        fill, bar = (
            page.page.eval_on_selector(f".{name}", "one => getComputedStyle(one).backgroundColor")
            for name in ("bar-fill", "bar")
        )
        assert fill != bar


def test_wide_screens_are_filled(browser: Any, pages) -> None:
    with opened(browser, viewport={"width": 3840, "height": 2160}) as page:
        page.open(pages["tall"], "view=overview")
        assert page.page.locator("#overview-tiles button").first.bounding_box()["width"] > 100
        page.go("view=map&on=0.1")
        assert geometry(page)["cw"] > 75
        page.go("view=lines&on=0.1")
        assert geometry(page, "#lines-canvas")["width"] > 1500
