"""The picture and the sound in the page: what is tinted, against the arrays; pointer and keys."""

from __future__ import annotations

import base64
import io
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import attnviz as av
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Layout, Site
from attnviz.core.media import Crop, Picture, Sound, patch_grid
from attnviz.core.prompt import Inputs
from attnviz.core.provenance import SourceInfo
from attnviz.core.tokens import Sides, Tokens
from attnviz.drawing.overlay import tinted
from attnviz.drawing.palette import ramp, rgb
from attnviz.features.view import page as viewer
from attnviz.features.view.encoding import LONGEST, cells, scene
from tests.features.view.test_view_page import geometry, hover, near
from tests.viewing import Opened, accessible, data_of, made, opened, softmax, write_page

Image = pytest.importorskip("PIL.Image")

ROWS, COLUMNS = 3, 4
COUNT = ROWS * COLUMNS
HOSTILE = "<img src=x onerror=alert(1)>\u202e.png"
SEEN = Tokens(
    ("[CLS]", *(f"{r},{c}" for r in range(ROWS) for c in range(COLUMNS))),
    special=(True, *(False,) * COUNT),
    places=((), *((r, c) for r in range(ROWS) for c in range(COLUMNS))),
)
FRAMES = 10
HEARD = Tokens(
    tuple(f"{0.1 * n + 0.05:.2f}s" for n in range(FRAMES)) + ("[PAD]",) * 2,
    special=(False,) * FRAMES + (True,) * 2,
    places=tuple((0.1 * n + 0.05,) for n in range(FRAMES + 2)),
)
WORDS = Tokens(("so", " it", " is"))


def picture(high: int = 60, wide: int = 80, name: str = HOSTILE) -> Picture:
    down, across = np.mgrid[:high, :wide]
    pixels = np.stack([down * 255 // high, across * 255 // wide, 90 + 0 * down], -1)
    return Picture(pixels.astype(np.uint8), ROWS, COLUMNS, name)


def sound() -> Sound:
    time = np.arange(1000) / 1000
    return Sound((np.cos(1000 * np.pi * time) * (time < 0.5)).astype(np.float32), 1000, "tone.wav")


def captured(sides: dict[Any, Sides], seed: int = 3, **media: Any) -> Capture:
    rng = np.random.default_rng(seed)
    layout = Layout(dict.fromkeys(sides, (3, 3)))
    maps = {
        site: softmax(rng, 3, len(sides[site.kind].queries), len(sides[site.kind].keys))
        for site in layout.sites
    }
    return Capture(SourceInfo("made", "recorded", ""), layout, Inputs(sides, **media), maps)


def seen() -> Capture:
    return captured({"encoder": Sides(SEEN, SEEN)}, picture=picture())


def heard() -> Capture:
    return captured({"encoder": Sides(HEARD, HEARD), "cross": Sides(WORDS, HEARD)}, sound=sound())


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, Path]:
    captures = {"seen": seen(), "heard": heard(), "both": [made(2, 2), seen()]}
    return {name: write_page(folder, name, one, bits=16) for name, one in captures.items()}


def weights(name: str = "0.1", kind: Any = "encoder", capture: Capture | None = None) -> np.ndarray:
    layer, head = map(int, name.split("."))
    return (capture or seen())[Head(Site(kind, layer), head)].astype(np.float64)


def expected(row: np.ndarray) -> np.ndarray:
    """What figures show for the same weights: the picture's pixels."""
    grid = patch_grid(picture(), SEEN.places, row)
    return tinted(picture(), grid / grid.max(), "viridis")


def point(page: Opened, row: int, column: int, rows: int = ROWS, columns: int = COLUMNS) -> None:
    box = page.page.locator("#scene-picture").bounding_box()
    x, y = (column + 0.5) / columns, (row + 0.5) / rows * (1 if rows > 1 else 0.8)
    page.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
    page.settle().page.wait_for_timeout(40)


def same_picture(page: Opened, wanted: np.ndarray, besides: tuple[int, int] = (-1, -1)) -> None:
    """Every patch has the colours that it has in figures; not where a frame is drawn."""
    size = page.page.eval_on_selector("#scene-picture", "c => [c.clientWidth, c.clientHeight]")
    high, wide = wanted.shape[:2]
    for r in range(ROWS):
        for c in range(COLUMNS):
            if (r, c) == besides:
                continue
            y, x = round((r + 0.5) * high / ROWS), round((c + 0.5) * wide / COLUMNS)
            got = page.pixel("#scene-picture", x * size[0] / wide, y * size[1] / high)
            assert near(got, wanted[y, x], 4), (r, c, got, wanted[y, x])


def test_the_page_has_a_small_copy(tmp_path: Path) -> None:
    found = scene(Inputs({"encoder": Sides(SEEN, SEEN)}, picture=picture(900, 1200)))
    assert found is not None
    assert (found["width"], found["height"]) == (LONGEST, LONGEST * 900 // 1200)
    coded = found["source"].removeprefix("data:image/png;base64,")
    kept = np.asarray(Image.open(io.BytesIO(base64.b64decode(coded))))
    np.testing.assert_allclose(kept[-1, -1], picture(900, 1200).pixels[-1, -1], atol=2)
    assert cells(SEEN, found) == [-1, *range(COUNT)]
    assert "\u202e" not in found["name"]


def test_a_sound_has_peaks_frame_by_frame() -> None:
    found = scene(heard().inputs)
    assert found is not None
    assert (found["columns"], found["step"]) == (FRAMES, 0.1)
    assert found["start"] == pytest.approx(0, abs=1e-6)
    peaks = np.frombuffer(base64.b64decode(found["source"]), np.uint8).reshape(FRAMES, -1, 2)
    samples = sound().samples.reshape(FRAMES, -1)
    np.testing.assert_allclose(peaks[..., 1].max(1), 128 + 127 * samples.max(1).clip(0), atol=1.5)
    np.testing.assert_allclose(peaks[..., 0].min(1), 128 + 127 * samples.min(1).clip(-1, 0), atol=2)
    assert cells(HEARD, found) == [*range(FRAMES), -2, -2]
    assert cells(WORDS, found) == []


def test_only_pages_with_a_picture_let_pictures_in(pages: dict[str, Path]) -> None:
    policies = {}
    for name, path in pages.items():
        html = path.read_text("utf-8")
        policies[name] = re.search(r'Content-Security-Policy" content="([^"]*)"', html)[1]
        assert HOSTILE not in html
    assert policies["seen"].startswith("default-src 'none'; img-src data:; script-src 'sha256-")
    assert "img-src data:;" in policies["both"]
    assert "img-src" not in policies["heard"]
    assert "unsafe" not in "".join(policies.values())


def test_the_size_is_estimated(pages: dict[str, Path]) -> None:
    one = seen()
    assert viewer.estimate([one], [set(one.layout)], 16) > len(pages["seen"].read_bytes()) * 0.98


def test_cls_first_then_the_patch_under_the_pointer(shared: Opened, pages: Any) -> None:
    shared.open(pages["seen"], "view=scene&on=0.1")
    assert shared.text("#tabs").split() == ["Overview", "Map", "Lines", "Picture", "Head", "card"]
    same_picture(shared, expected(weights()[0]))
    assert shared.text("#scene-said").startswith("[CLS] attends to – head 0.1: ")
    on_patches = 100 * weights()[0, 1:].sum()
    assert float(re.search(r"([\d.]+) % on patches", shared.text("#scene-said"))[1]) == (
        pytest.approx(on_patches, abs=0.51)
    )
    point(shared, 1, 2)
    same_picture(shared, expected(weights()[7]), besides=(1, 2))
    best = int(weights()[7].argmax())
    name = f"patch {SEEN.texts[best]}" if best else "[CLS]"
    assert f"% on patches; {name} " in shared.text("#scene-said")
    shared.page.mouse.move(2, 2)
    shared.settle()
    same_picture(shared, expected(weights()[0]))


def test_who_reads_it(shared: Opened, pages: Any) -> None:
    shared.open(pages["seen"], "view=scene&on=0.1&toward=1&pin=q7")
    same_picture(shared, expected(weights()[:, 7]), besides=(1, 2))
    assert shared.text("#scene-said").startswith("patch 1,2 is attended to by – head 0.1: ")


def test_several_heads_have_their_own_colours(shared: Opened, pages: Any) -> None:
    shared.open(pages["seen"], "view=scene&on=0.0,1.2&pin=q3")
    rows = [weights(name)[3] for name in ("0.0", "1.2")]
    shares = np.stack([patch_grid(picture(), SEEN.places, row) for row in rows])
    shares /= shares.max((1, 2), keepdims=True)
    leader = shares.argmax(0)
    blue, orange = np.array([(0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)], float)
    grey = picture().pixels @ np.array([0.299, 0.587, 0.114]) * 0.75
    part = np.kron(0.85 * np.sqrt(shares.max(0)), np.ones((20, 20)))[..., None]
    color = np.where(np.kron(leader, np.ones((20, 20)))[..., None] == 0, blue, orange)
    same_picture(shared, (1 - part) * grey[..., None] + part * color, besides=(0, 2))


def test_every_head_from_there(shared: Opened, pages: Any) -> None:
    shared.open(pages["seen"], "view=scene&on=0.1&pin=q7")
    boxes = shared.page.eval_on_selector_all(
        "#scene-heads button",
        "all => all.map(b => [b.dataset.head, ...['left', 'top', 'width', 'height']"
        ".map(n => Number.parseFloat(b.style[n]))])",
    )
    assert [box[0] for box in boxes] == ["0.0", "0.1", "0.2", "1.0", "1.1", "1.2"]
    for name, left, top, wide, high in boxes:
        wanted = expected(weights(name)[7])
        x, y = (3 + 0.5) / COLUMNS, (2 + 0.5) / ROWS
        got = shared.pixel("#scene-tiles", left + x * wide, top + y * high)
        assert near(got, wanted[round(y * 60), round(x * 80)], 5), name
    shared.click("#scene-heads [data-head='1.2']")
    assert shared.pressed("#heads") == ["1.2"]
    same_picture(shared, expected(weights("1.2")[7]), besides=(1, 2))


def test_the_keyboard_goes_from_patch_to_patch(shared: Opened, pages: Any) -> None:
    shared.open(pages["seen"], "view=scene&on=0.1&pin=q6")
    shared.press("Shift+ArrowRight", "Shift+ArrowDown")
    assert "pin=q11" in shared.hash()
    assert shared.text("#scene-said").startswith("patch 2,2 attends to")
    shared.press("Shift+ArrowDown", "Shift+ArrowRight", "Shift+ArrowRight")
    assert "pin=q12" in shared.hash(), "the last patch is the last"
    shared.press("Shift+ArrowUp", "Shift+ArrowUp", "Shift+ArrowUp")
    assert "pin=q0" in shared.hash(), "above the patches is what has no place"
    assert shared.text("#scene-said").startswith("[CLS] attends to")
    shared.press("Shift+ArrowDown")
    assert "pin=q1" in shared.hash()
    shared.press("Escape", "ArrowRight")
    assert "head=0.2" in shared.hash(), "arrows alone go to the next head, as in every view"
    until_said = "document.getElementById('spoken').textContent.startsWith('head 0.2')"
    shared.page.wait_for_timeout(200)
    assert shared.page.evaluate(until_said)


def test_a_click_keeps_the_patch_in_every_view(shared: Opened, pages: Any) -> None:
    shared.open(pages["seen"], "view=scene&on=0.1")
    point(shared, 0, 3)
    shared.page.mouse.down()
    shared.page.mouse.up()
    assert "pin=q4" in shared.settle().hash()
    shared.press("5")
    assert "Over the picture: from patch 0,3" in shared.text("#card-body")
    shared.press("4", "h")
    assert "who=q4" in shared.hash()
    point(shared, 2, 0)
    shared.page.mouse.down()
    shared.page.mouse.up()
    assert "who=q4k9" in shared.settle().hash(), "the second patch makes the pair"
    assert shared.page.locator("#who-list button").count() == 6


def test_the_map_names_and_frames_the_patches(shared: Opened, pages: Any) -> None:
    shared.open(pages["seen"], "view=map&on=0.1")
    assert "patch 1,1 → patch 2,3" in hover(shared, 6, 12)
    assert shared.page.locator("#tip canvas").count() == 1
    assert "[CLS] → patch 0,0" in hover(shared, 0, 1)


def test_a_text_has_its_text_and_a_picture_its_picture(shared: Opened, pages: Any) -> None:
    shared.open(pages["both"], "view=text")
    assert not shared.page.is_visible("#tab-scene")
    shared.press("]")
    assert shared.page.is_visible("#scene-picture")
    assert not shared.page.is_visible("#tab-text")
    assert shared.page.get_attribute("#scene-own img", "alt").endswith("<U+202E>.png")
    shared.press("[")
    assert shared.page.is_visible("#text-body")


def test_the_mean_of_all_patches_where_nothing_else_is(shared: Opened, tmp_path: Path) -> None:
    bare = Tokens(SEEN.texts[1:], places=SEEN.places[1:])
    capture = captured({"encoder": Sides(bare, bare)}, picture=picture())
    shared.open(write_page(tmp_path, "bare", capture, bits=16), "view=scene&on=0.1")
    row = weights(capture=capture).mean(0)
    grid = patch_grid(picture(), bare.places, row)
    same_picture(shared, tinted(picture(), grid / grid.max(), "viridis"))
    assert shared.text("#scene-said").startswith("the mean of all patches attends to – ")
    shared.press("Shift+ArrowRight")
    assert shared.text("#scene-said").startswith("patch 0,0 attends to")


def test_patches_of_several_pictures_are_named_by_their_picture(shared: Opened, tmp_path) -> None:
    """One picture of 1 x 4 patches, a row of the sheet apart from one of 1 x 2."""
    places = ((0, 0), (0, 1), (0, 2), (0, 3), (2, 0), (2, 1))
    names = ("1:0,0", "1:0,1", "1:0,2", "1:0,3", "2:0,0", "2:0,1")
    tokens = Tokens((*names, "what"), places=(*places, ()))
    plain = picture()
    crops = (
        Crop(1, "a.png", (80, 20), (0, 0, 80, 20), 1, 4),
        Crop(2, "b.png", (40, 20), (0, 0, 40, 20), 1, 2, row=2),
    )
    sheet = Picture(plain.pixels, ROWS, COLUMNS, "a.png, b.png", crops)
    path = write_page(
        tmp_path, "two", captured({"decoder": Sides(tokens, tokens)}, picture=sheet), bits=16
    )
    shared.open(path, "view=scene&on=0.1")
    for row, column, name in ((0, 3, "1:0,3"), (2, 1, "2:0,1")):
        point(shared, row, column)
        assert shared.text("#scene-said").startswith(f"patch {name} attends to")
    before = shared.text("#scene-said")
    point(shared, 1, 1)  # nothing is there
    assert shared.text("#scene-said") != before
    assert "patch 1:1,1" not in shared.text("#scene-said")


def test_a_sound_is_tinted_and_named_by_its_time(shared: Opened, pages: Any) -> None:
    shared.open(pages["heard"], "view=scene&kind=encoder&on=0.1")
    assert shared.text("#tab-scene") == "Sound"
    assert "all frames" in shared.text("#scene-said")
    assert shared.page.locator("#scene-chips button").count() == 0
    point(shared, 0, 3, 1, FRAMES)
    assert shared.text("#scene-said").startswith("0.30–0.40 s attends to – head 0.1: ")
    row = weights(capture=heard())[3]
    on = 100 * row[:FRAMES].sum() / row.sum()
    said = re.search(r"([\d.]+)(?:–[\d.]+)? % on the sound", shared.text("#scene-said"))[1]
    assert float(said) == pytest.approx(on, abs=0.6)
    size = shared.page.eval_on_selector("#scene-picture", "c => [c.clientWidth, c.clientHeight]")
    shares = row[:FRAMES] / row[:FRAMES].max()
    palette = np.array([rgb(color) for color in ramp("viridis")], float)
    for frame in (7, 9):
        got = shared.pixel("#scene-picture", (frame + 0.5) / FRAMES * size[0], 4)
        part = 0.85 * np.sqrt(shares[frame])
        wanted = (1 - part) * 255 + part * palette[round(shares[frame] * 255)]
        assert near(got, wanted, 4), frame


def test_words_look_at_a_sound(shared: Opened, pages: Any) -> None:
    shared.open(pages["heard"], "view=scene&kind=cross&on=1.2&pin=q1")
    assert shared.page.locator("#scene-chips button").all_inner_texts() == ["so", "it", "is"]
    assert shared.text("#scene-said").startswith("·it attends to – head 1.2: ")
    point(shared, 0, 6, 1, FRAMES)
    assert shared.text("#scene-said").startswith("0.60–0.70 s is attended to by – head 1.2: ")
    best = WORDS.texts[int(weights("1.2", "cross", heard())[:, 6].argmax())]
    assert f"– head 1.2: {best.replace(' ', '·')} " in shared.text("#scene-said")
    shared.page.mouse.move(2, 2)
    shared.press("Shift+ArrowDown", "Shift+ArrowRight")
    assert shared.text("#scene-said").startswith("0.10–0.20 s is attended to by")


def test_the_map_names_the_time(shared: Opened, pages: Any) -> None:
    shared.open(pages["heard"], "view=map&kind=cross&on=0.0")
    assert "·is → 0.80–0.90 s" in hover(shared, 2, 8)


def test_the_waveform_lies_along_the_map(shared: Opened, pages: Any) -> None:
    shared.open(pages["heard"], "view=map&kind=encoder&on=0.0")
    g = geometry(shared)
    paper, gap, strip = (255, 255, 255), 4, 34
    middle = g["top"] - gap - strip / 2
    for frame, loud in ((1, True), (4, True), (7, False), (9, False)):
        x = g["left"] + (frame + 0.5) * g["cw"]
        assert (shared.pixel("#map-cells", x, middle - 6) != paper) == loud, frame
        assert shared.pixel("#map-cells", x, middle) != paper, "a line where it is silent"
        y = g["top"] + (frame + 0.5) * g["ch"]
        side = g["left"] - gap - strip / 2 + 6
        assert (shared.pixel("#map-cells", side, y) != paper) == loud, frame
    svg = shared.saved("svg").decode()
    assert {"0 s", "0.4 s", "1 s"} <= set(re.findall(r">([\d.]+ s)<", svg))
    assert svg.count(">[PAD]<") == 4, "what was added keeps its labels, on both axes"
    shared.go("view=map&kind=cross&on=0.0")
    svg = shared.saved("svg").decode()
    assert ">·is<" in svg
    assert ">0.4 s<" in svg
    shared.go("view=map&kind=cross&on=0.0&first=1")
    assert ">0.4 s<" in shared.saved("svg").decode()
    shared.go("view=map&kind=encoder&on=0.0&zoom=2.000,2,5")
    zoomed = geometry(shared)
    assert zoomed["c0"] > 3
    for frame, loud in ((4.3, True), (4.8, True), (5.2, False), (8.5, False)):
        x = zoomed["left"] + (frame - zoomed["c0"]) * zoomed["cw"]
        y = zoomed["top"] - gap - strip / 2 - 6
        got = {shared.pixel("#map-cells", x + off, y) for off in range(5)}
        assert (got != {paper}) == loud, frame


def test_the_last_second_stands_free_of_what_was_added(shared: Opened, tmp_path: Path) -> None:
    half = 50
    tokens = Tokens(
        tuple(f"{0.02 * n + 0.01:.2f}s" for n in range(half)) + ("[PAD]",) * half,
        special=(False,) * half + (True,) * half,
        places=tuple((0.02 * n + 0.01,) for n in range(2 * half)),
    )
    path = write_page(tmp_path, "long", captured({"encoder": Sides(tokens, tokens)}, sound=sound()))
    svg = ElementTree.fromstring(shared.open(path, "view=map&on=0.0").saved("svg").decode())
    texts = list(svg.iter("{http://www.w3.org/2000/svg}text"))
    last = [one for one in texts if one.text == "1 s"]
    added = [one for one in texts if one.text == "[PAD]"]
    assert (len(last), len(added) > 20) == (2, True)
    for anchor, turned, axis, wide in (("start", True, "x", 17), ("end", False, "y", 0)):
        (end,) = (float(one.get(axis, "")) for one in last if one.get("text-anchor") == anchor)
        first = min(float(o.get(axis, "")) for o in added if bool(o.get("transform")) == turned)
        assert 11 < first - end - wide < 40


@pytest.mark.parametrize("name", ["seen", "heard"])
def test_what_is_seen_can_be_saved(shared: Opened, pages: Any, name: str) -> None:
    shared.open(pages[name], "view=scene&kind=encoder&on=0.1&pin=q3")
    drawn = Image.open(io.BytesIO(shared.saved("png")))
    assert len(drawn.getcolors(1 << 24)) > 20
    svg = ElementTree.fromstring(shared.saved("svg").decode())
    (image,) = svg.iter("{http://www.w3.org/2000/svg}image")
    inside = Image.open(io.BytesIO(base64.b64decode(image.get("href").partition(",")[2])))
    assert len(inside.getcolors(1 << 24)) > 20
    header, lines = shared.table()
    assert header[4] == "head 0.1"
    assert len(lines) == len(weights(capture=seen() if name == "seen" else heard())) ** 2


def test_on_paper(browser: Any, pages: Any) -> None:
    with opened(browser) as page:
        page.open(pages["seen"], "view=scene&on=0.1&theme=dark")
        page.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.page.emulate_media(media="print")
        page.page.wait_for_timeout(200)
        box = page.page.locator("#print image").bounding_box()
        assert box["width"] > 300
        page.page.evaluate("dispatchEvent(new Event('afterprint'))")


@pytest.mark.parametrize("theme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
@pytest.mark.parametrize("width", [390, pytest.param(1280, marks=pytest.mark.slow)])
def test_axe_finds_nothing(browser: Any, pages: Any, theme: str, width: int) -> None:
    with opened(browser, viewport={"width": width, "height": 840}) as page:
        for name, view, within in (
            ("seen", "scene", "html"),
            ("seen", "card", "#view-card"),
            ("heard", "scene", "#view-scene"),
        ):
            page.open(pages[name], f"view={view}&kind=cross&on=0.0,1.1&theme={theme}&pin=q2")
            accessible(page.page, within=within)
            wide = page.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, (name, view)


def test_a_saved_capture_brings_its_picture(tmp_path: Path) -> None:
    path = av.write_capture(seen(), tmp_path / "kept.npz")
    data = data_of(av.view(av.read(path)).page)
    assert data["items"][0]["scene"]["kind"] == "picture"
    assert data["items"][0]["axes"][0]["cells"] == [-1, *range(COUNT)]
