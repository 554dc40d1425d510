"""The viewer's page in a real browser: what it shows, against the arrays; what it does, and asks.

Needs Chromium (the system's, or the one that $ATTNVIZ_CHROMIUM names).
"""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image

import attnviz as av
from attnviz.core.capture import Capture
from attnviz.core.heads import Head, Site
from attnviz.drawing.grid import tally
from attnviz.drawing.palette import rgb
from attnviz.scoring.merged import merge_words
from attnviz.scoring.select import leading
from tests.features.view.test_view import HOSTILE, hostile
from tests.viewing import Opened, colors, encoder_decoder, made, opened, pair, words, write_page

BLUE, ORANGE = (0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)
"""The first two colours of heads shown together, on a light page."""
VIEWS = ("overview", "map", "lines", "text", "card")


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, Path]:
    fresh = av.capture("a b a b a c", model=av.FreshConfig(layers=2, heads=4, causal=True))
    several = [made(2, 2, words(4), seed=1), made(3, 2, words(6, name="v"), seed=2)]
    captures: dict[str, Any] = {
        "pair": pair(), "three": encoder_decoder(), "fresh": fresh, "several": several,
        "hostile": made(2, 2, hostile()),
    }  # fmt: skip
    return {name: write_page(folder, name, found, bits=16) for name, found in captures.items()}


def of(capture: Capture, name: str, kind: str = "encoder") -> np.ndarray:
    layer, head = name.split(".")
    return capture[Head(Site(kind, int(layer)), int(head))].astype(np.float64)


def geometry(page: Opened, selector: str = "#map-cells") -> dict[str, float]:
    return json.loads(page.page.get_attribute(selector, "data-geometry"))


def cell(page: Opened, r: int, c: int, off: float = 0.18) -> tuple[float, float]:
    """A place in a cell of the map, near its corner, where no number is written."""
    g = geometry(page)
    return g["left"] + (c + off - g["c0"]) * g["cw"], g["top"] + (r + off - g["r0"]) * g["ch"]


def hover(page: Opened, r: int, c: int) -> str:
    box = page.page.locator("#map-over").bounding_box()
    x, y = cell(page, r, c, 0.5)
    page.page.mouse.move(box["x"] + x, box["y"] + y)
    return page.settle().text("#tip")


def tile(page: Opened, head: str, x: float, y: float) -> tuple[int, int, int]:
    """The colour of a small map at a place in shares of its side."""
    left, top, side = page.page.eval_on_selector(
        f"#overview-tiles [data-head='{head}']",
        """button => {
            document.getElementById('probe')?.removeAttribute('id');
            button.closest('.tiles').querySelector('canvas').id = 'probe';
            return [button.offsetLeft, button.offsetTop, button.offsetWidth];
        }""",
    )
    return page.pixel("#probe", left + x * side, top + y * side)


def near(got: Any, want: np.ndarray, most: float = 2) -> bool:
    """Whether two colours are the same, but for rounding."""
    return bool(np.abs(np.array(got) - want).max() <= most)


def shown(value: float) -> str:
    """A score as the page writes it."""
    if value == 0:
        return "0"
    if value < 0.0001:
        return "<0.0001"
    return f"{value:.{4 if value < 0.00995 else 3 if value < 0.0995 else 2}f}"


def says(text: str, value: float) -> bool:
    """Whether a text is the value itself, rounded to the digits that the text has."""
    _, _, decimals = text.removeprefix("≈").partition(".")
    return text.removeprefix("≈") == f"{value:.{len(decimals)}f}"


def blended(weights: list[np.ndarray], paper: int = 255) -> np.ndarray:
    """The head that leads pulls the paper towards its colour by its share of its largest weight."""
    shares = np.stack([one / one.max() for one in weights])
    colors = np.array((BLUE, ORANGE), dtype=float)[shares.argmax(0)]
    return paper + shares.max(0)[..., None] * (colors - paper)


def test_overview_draws_every_head_from_its_weights(shared: Opened, pages) -> None:
    capture = pair()
    shared.open(pages["pair"], "scale=one")
    tiles = shared.page.locator("#overview-tiles .tiles")
    assert tiles.count() == 2
    for layer in range(2):
        for index in range(3):
            head = f"{layer}.{index}"
            button = tiles.nth(layer).locator("button").nth(index)
            assert button.get_attribute("data-head") == head
            want = colors(of(capture, head), "viridis")
            for r, c in ((0, 0), (3, 7), (9, 1), (5, 5)):
                assert near(tile(shared, head, (c + 0.5) / 10, (r + 0.5) / 10), want[r, c])
    shared.go("view=overview")
    weights = of(capture, "0.1")
    want = colors(np.sqrt(weights[4, 2] / weights.max()), "viridis")
    assert near(tile(shared, "0.1", 0.25, 0.45), want)
    shared.page.hover("#overview-tiles [data-head='1.2']")
    assert "Head 1.2" in shared.text("#preview")
    shared.click("#overview-tiles [data-head='1.2']")
    assert shared.text("#map-caption").startswith("head 1.2")


def test_a_page_opens_at_a_head_that_does_something(shared: Opened, tmp_path: Path) -> None:
    """Not at the first head, which is diffuse, and at no sink; its card says both of it."""
    text = "The kettle sang and the candle burned while the kettle sang and the candle burned."
    capture = av.capture(text, model="demo-gpt2")
    report = av.heads(capture)
    best = max(
        (head for head in report.heads if head.does is not None),
        key=lambda head: max(role.evidence.lift for role in head.roles if not role.rests),
    )
    shared.open(write_page(tmp_path, "demo", capture))
    opening = shared.page.locator("#heads .current")
    assert opening.get_attribute("data-head") == best.head.name != "0.0"
    both = next(head for head in report.heads if head.does is not None and head.rests is not None)
    shared.go(f"view=card&head={both.head.name}")
    said = shared.text("#card-body")
    assert f"does {both.does.name}" in said
    assert f"sink: {both.rests.name}" in said
    rival = both.does.rival
    assert f"{rival.name} {shown(rival.mean)}" in said


def test_overview_sorts_by_role(shared: Opened, pages) -> None:
    report = av.heads(pair())
    plays = {(h.head.name, h.roles[0].name if h.roles else "no role") for h in report.heads}
    shared.open(pages["pair"], "sort=role")
    found = []
    for row in shared.page.locator("#overview-tiles .row").all():
        title = row.locator(".row-title").inner_text()
        for button in row.locator("button").all():
            found.append((button.get_attribute("data-head"), title.rpartition(" (")[0]))
            assert title.endswith(f"({row.locator('button').count()})")
    assert sorted(found) == sorted(plays)
    chips = shared.all("#roles button")
    assert [chip.strip() for chip in chips] == [
        f"{name or 'no role'} {n}" for name, n in tally(report)
    ]


def test_map_shows_weights_sums_and_colours(shared: Opened, pages) -> None:
    weights = of(pair(), "1.1")
    shared.open(pages["pair"], "view=map&on=1.1")
    want = colors(weights / weights.max(), "viridis")
    for r, c in ((0, 0), (2, 8), (9, 9), (4, 1)):
        tip = hover(shared, r, c)
        weight, row, column = re.fullmatch(
            r"(\S+) row (\S+), column (\S+)", tip.split("\n")[1]
        ).groups()
        assert says(weight, weights[r, c])
        assert row == "1"
        assert len(weight) >= 6
        assert says(column, weights[:, c].sum())
        assert near(shared.pixel("#map-cells", *cell(shared, r, c)), want[r, c])
    assert tip.split("\n")[0] == ". → a"


def test_row_scale_and_palette(shared: Opened, pages) -> None:
    weights = of(pair(), "0.0")
    shared.open(pages["pair"], "view=map&on=0.0&scale=row&palette=viridis")
    want = colors(weights / weights.max(1, keepdims=True), "viridis")
    for r, c in ((1, 3), (6, 2), (8, 8)):
        assert near(shared.pixel("#map-cells", *cell(shared, r, c)), want[r, c])


def test_of_blended_heads_the_one_that_leads_gives_the_colour(shared: Opened, pages) -> None:
    capture = pair()
    shared.open(pages["pair"], "view=map&on=0.1,1.2")
    want = blended([of(capture, "0.1"), of(capture, "1.2")])
    for r, c in ((0, 3), (7, 2), (9, 9), (5, 6)):
        assert near(shared.pixel("#map-cells", *cell(shared, r, c)), want[r, c])
    tip = hover(shared, 7, 2)
    for name in ("0.1", "1.2"):
        (weight,) = re.findall(rf"head {name}: (\S+) row 1,", tip)
        assert says(weight, of(capture, name)[7, 2])


A, B = list(range(6)), list(range(6, 10))
KEPT = [0, 1, 2, 3, 4, 6, 7, 8]


STATES_OF: dict[str, Any] = {
    "on=0.2": lambda w, _: w["0.2"][None],
    "on=0.1,1.0": lambda w, _: np.stack([w["0.1"], w["1.0"]]),
    "on=0.1,1.0,1.2&mix=mean": lambda w, _: (w["0.1"] + w["1.0"] + w["1.2"])[None] / 3,
    "on=0.*&mix=max": lambda w, _: np.maximum(np.maximum(w["0.0"], w["0.1"]), w["0.2"])[None],
    "on=0.2&words=1": lambda w, sides: merge_words(w["0.2"][None], sides)[0],
    "on=0.2&separators=1": lambda w, _: w["0.2"][None][:, KEPT][:, :, KEPT],
    "on=0.2&first=1": lambda w, _: w["0.2"][None, 1:, 1:],
    "on=0.2&quad=AB": lambda w, _: w["0.2"][None][:, A][:, :, B],
    "on=0.2&quad=BA": lambda w, _: w["0.2"][None][:, B][:, :, A],
    "on=0.2&quad=AA": lambda w, _: w["0.2"][None][:, A][:, :, A],
    "on=0.2&quad=BB": lambda w, _: w["0.2"][None][:, B][:, :, B],
    "on=0.2&first=1&rescale=1":
        lambda w, _: w["0.2"][None, 1:, 1:] / w["0.2"][1:, 1:].sum(1)[:, None],
    "on=0.2&words=1&separators=1&quad=BA":
        lambda w, sides: merge_words(w["0.2"][None], sides)[0][:, 5:7, :4],
}  # fmt: skip
"""What a page shows of the pair in each state, by NumPy from the maps."""


def wanted(state: str) -> np.ndarray:
    """The weights that a state shows, [n, T, S]."""
    capture = pair()
    weights = {h.name: of(capture, h.name) for h in capture.layout}
    return np.asarray(STATES_OF[state](weights, capture.inputs.sides["encoder"]))


@pytest.mark.parametrize("state", STATES_OF)
def test_what_is_shown_is_what_numpy_says(shared: Opened, pages, state: str) -> None:
    want = wanted(state)
    if "pair" not in shared.page.url:
        shared.open(pages["pair"])
    shared.go(f"view=map&{state}")
    assert (
        shared.page.get_attribute("#map-cells", "data-shape") == f"{want.shape[1]},{want.shape[2]}"
    )
    np.testing.assert_allclose(shared.numbers(want.shape[1:]), want, atol=4e-5)
    said = shared.text("#map-caption")
    assert ("rescaled" in said) == ("rescale" in state)
    assert ("hidden" in said) == any(part in state for part in ("separators", "first"))
    assert ("Only queries of sentence" in said) == ("quad" in state)


def test_lines_carry_the_weights(shared: Opened, pages) -> None:
    weights = of(pair(), "0.1")
    shared.open(pages["pair"], "view=lines&on=0.1&top=3&least=0.1")
    svg = ElementTree.fromstring(shared.saved("svg"))
    drawn = [p.attrib for p in svg.iter("{http://www.w3.org/2000/svg}path") if p.get("class")]
    want = sorted(w for row in weights for w in sorted(row)[-3:] if w >= 0.1)
    assert [float(line["stroke-opacity"]) for line in drawn] == pytest.approx(want, abs=1e-4)
    assert [float(line["stroke-width"]) for line in drawn] == pytest.approx(
        [0.6 + 5 * w for w in want], abs=0.006
    )
    assert shared.page.get_attribute("#lines-canvas", "data-lines") == str(len(want))
    g = geometry(shared, "#lines-canvas")
    strongest = np.unravel_index(weights.argmax(), weights.shape)
    x, y = g["labelW"] + 10, g["above"] + (strongest[0] + 0.5) * g["step"]
    share = weights.max()
    assert near(shared.pixel("#lines-canvas", x, y), 255 + share * (np.array(BLUE) - 255), 30)
    box = shared.page.locator("#lines-canvas").bounding_box()
    shared.page.mouse.move(box["x"] + 20, box["y"] + g["above"] + 2.5 * g["step"])
    shared.settle()
    assert shared.page.get_attribute("#lines-canvas", "data-lines") == str(
        (weights[2] > 0.001).sum()
    )
    assert shared.text("#tip").startswith("key attends to")
    assert says(shared.text("#tip").split("\n")[1].split()[0], weights[2].max())
    shared.page.mouse.move(box["x"] + g["width"] - 20, box["y"] + g["above"] + 6.5 * g["step"])
    shared.settle()
    assert shared.page.get_attribute("#lines-canvas", "data-lines") == str(
        (weights[:, 6] > 0.001).sum()
    )


def word_colors(page: Opened) -> list[tuple[int, ...]]:
    found = page.page.eval_on_selector_all(
        "#text-body button", "all => all.map(one => getComputedStyle(one).backgroundColor)"
    )
    return [tuple(map(int, re.findall(r"\d+", color)[:3])) for color in found]


def test_text_tints_words_by_their_weight(shared: Opened, pages) -> None:
    capture = pair()
    weights = [of(capture, "0.1"), of(capture, "1.2")]
    shared.open(pages["pair"], "view=text&on=0.1,1.2")
    shared.page.hover("#text-body [data-at='7']")
    shared.page.wait_for_timeout(200)
    want = blended(weights)[7]
    got = np.array(word_colors(shared))
    others = [i for i in range(10) if i != 7]
    assert np.abs(got[others] - want[others]).max() <= 1.1
    shared.go("view=text&on=0.1,1.2&pin=q7")
    label = shared.page.get_attribute("#text-body [data-at='3']", "aria-label")
    name, *told = label.split(", ")
    assert name == "##board"
    assert [says(one, weight[7, 3]) for one, weight in zip(told, weights, strict=True)] == [
        True
    ] * 2
    shared.go("view=text&on=0.1,1.2&toward=1&pin=q7")
    shared.page.mouse.move(5, 5)
    shared.page.wait_for_timeout(200)
    got = np.array(word_colors(shared))
    assert np.abs(got[others] - blended(weights)[others, 7]).max() <= 1.1
    assert shared.text("#text-body p") == "[CLS] a keyboard. [SEP] it fells [SEP]"


def test_cross_attention_has_a_text_for_each_side(shared: Opened, pages) -> None:
    weights = of(encoder_decoder(), "1.1", "cross")
    shared.open(pages["three"], "view=text&kind=cross&on=1.1&pin=k3")
    shared.page.wait_for_timeout(200)
    assert shared.page.locator("#text-body .paragraph").count() == 2
    labels = shared.all("#text-body [data-side=q]", "getAttribute('aria-label')")
    assert [label.split(", ")[0] for label in labels] == [f"tgt{i}" for i in range(4)]
    assert all(says(label.split(", ")[1], weights[i, 3]) for i, label in enumerate(labels))


def test_card_gives_evidence_and_pairs(shared: Opened, pages) -> None:
    capture = av.capture("a b a b a c", model=av.FreshConfig(layers=2, heads=4, causal=True))
    report = av.heads(capture)
    scored = next((h for h in report.heads if h.roles), report.heads[0])
    shared.open(pages["fresh"], f"view=card&head={scored.head.name}")
    body = shared.text("#card-body")
    for role in scored.roles:
        mean = role.evidence.mean
        kind = "sink" if role.rests else "does"
        assert re.search(rf"{role.name}\s+{kind}\s+{role.score}\s+{re.escape(shown(mean))}\s", body)
    for name, score in scored.scores.items():
        if score.mean is not None:
            title = name.replace("_", " ") + r"(: .* \(\d+\))?"  # the sink has its place
            line = rf"{title}\s+{re.escape(shown(score.mean))}\s.*\s{score.rows}"
            assert re.search(line, body)
    weights = of(capture, scored.head.name, "decoder")
    best = np.sort(weights, axis=None)[::-1][:12]
    cells = shared.all("#card-body section:nth-child(2) tbody tr", "lastChild.textContent")
    assert all(map(says, cells, best))
    assert len(cells) == (best > 0).sum()
    assert "Jain & Wallace 2019" in body
    names, (line,) = shared.table()
    assert line[0] == scored.head.name
    values = dict(zip(names, line, strict=True))
    assert float(values["entropy"]) == pytest.approx(scored.scores["entropy"].mean, rel=1e-4)


def test_toggles_by_head_layer_role_and_all(shared: Opened, pages) -> None:
    report = av.heads(pair())
    shared.open(pages["pair"], "view=map&on=0.0")
    shared.click("#heads [data-head='1.1']", modifiers=["Shift"])
    assert shared.pressed("#heads") == ["0.0", "1.1"]
    shared.click("#heads [data-head='0.0']", modifiers=["Shift"])
    assert shared.pressed("#heads") == ["1.1"]
    shared.click("#heads [data-head='1.1']", modifiers=["Shift"])
    assert shared.pressed("#heads") == ["1.1"], "one head always stays on"
    shared.click("#heads [data-head='0.2']")
    assert shared.pressed("#heads") == ["0.2"], "a click opens a head"
    assert "head=0.2" in shared.hash()
    shared.page.check("#several")
    shared.click("#heads [data-head='1.1']")
    assert shared.pressed("#heads") == ["0.2", "1.1"], "with the box, it adds one"
    shared.page.uncheck("#several")
    shared.click("#heads [data-head='1.1']")
    shared.click("#heads [data-layer='0']")
    assert shared.pressed("#heads") == ["0", "0.0", "0.1", "0.2", "1.1"]
    shared.click("#all-on")
    assert len(shared.pressed("#heads")) == 8
    assert shared.text("#on-count") == "6 of 6 on"
    for name, _ in tally(report):
        shared.click(f"#roles [data-role='{name or ''}']")
        want = [h.head.name for h in report.heads if (h.roles[0].name if h.roles else None) == name]
        on = [one for one in shared.pressed("#heads") if "." in one]
        assert on == want
    shared.click("#mix [data-mix=max]")
    assert shared.pressed("#mix") == ["max"]


STATES = (
    "view=map&kind=cross&on=0.1%2C1.0&head=1.0&mix=max&words=1&scale=row&palette=magma&theme=dark",
    "view=lines&kind=decoder&on=1.*&head=1.2&top=2&least=0.2&pin=k2&find=tgt",
    "view=text&kind=encoder&on=*&head=0.1&toward=1&first=1&separators=1&rescale=1&pin=q3",
    "view=overview&on=0.0&head=0.0&sort=role&theme=light",
    "view=map&on=0.2&head=0.2&zoom=2.000%2C1.000%2C0.500",
)


@pytest.mark.parametrize(
    "state", [pytest.param(one, marks=[pytest.mark.slow] * (n > 1)) for n, one in enumerate(STATES)]
)
def test_a_link_shows_the_same_again(shared: Opened, pages, state: str) -> None:
    shared.open(pages["three"], state)
    link = shared.hash()
    wanted = {part for part in state.split("&") if part != "kind=encoder"}
    assert wanted <= set(link.removeprefix("#").split("&"))
    picture = shared.page.screenshot()
    shared.open(pages["three"], link.removeprefix("#"), again=True)
    assert shared.hash() == link
    # how corners are smoothed may differ where only a part was painted anew
    one, other = (
        np.asarray(Image.open(io.BytesIO(b))) for b in (picture, shared.page.screenshot())
    )
    assert (one != other).any(-1).mean() < 1e-4


def test_junk_in_a_link_is_left_out(shared: Opened, pages) -> None:
    shared.open(
        pages["pair"],
        "view=evil&on=99.99,%00&head=__proto__&top=-3&zoom=x&text=77&pin=q&constructor=1"
        "&palette=toString",
    )
    for part in ("text", "map", "overview"):
        assert shared.page.is_visible(f"#view-{part}")
    leads = min(av.heads(pair()).heads, key=leading).head.name
    assert shared.pressed("#heads") == [leads]
    assert shared.hash() == f"#head={leads}&on={leads}&pin=q9"


def test_keyboard_alone_goes_everywhere(shared: Opened, pages) -> None:
    capture = pair()
    shared.open(pages["pair"], "view=overview")
    shared.press("ArrowRight", "ArrowDown", "ArrowRight")
    assert shared.pressed("#overview-tiles") == ["1.2"]
    shared.press("ArrowUp", "ArrowLeft", "Enter")
    assert shared.page.is_visible("#view-map")
    assert shared.text("#map-caption").startswith("head 0.1")
    shared.press("Shift+ArrowRight", "Shift+ArrowRight", "Shift+ArrowDown")
    weight = of(capture, "0.1")[1, 1]
    assert shared.text("#tip").split("\n")[0] == "a → a"
    shared.page.wait_for_timeout(200)
    where, _, told = shared.text("#spoken").partition(": ")
    assert (where, says(told, weight)) == ("a to a", True)
    shared.press("ArrowDown", "x")
    assert shared.pressed("#heads") == ["1.1"]
    shared.press("a", "m", "w", "s", "f", "r", "4")
    link = shared.hash()
    for part in ("on=*", "mix=mean", "words=1", "separators=1", "first=1", "rescale=1"):
        assert part in link.replace("%2A", "*")
    assert shared.page.is_visible("#view-lines")
    shared.press("w", "s", "f", "o", "5", "/")
    shared.page.keyboard.type("EL")
    assert shared.settle().text("#find-said") == "1 match"
    shared.press("Enter", "Escape")
    assert "pin=q7" in shared.hash()
    shared.press("Shift+ArrowLeft", "d")
    assert shared.text("#text-said").startswith("it is attended to by")
    shared.press("?")
    assert shared.page.is_visible("#help")
    assert "Shift + arrows" in shared.text("#help")
    shared.press("Escape")
    assert not shared.page.is_visible("#help")
    shared.press("3", "+", "+")
    assert "zoom=2.250" in shared.hash()
    shared.press("0", "t", "t")
    assert "zoom" not in shared.hash()
    assert shared.page.get_attribute("html", "data-theme") == "dark"
    reached = set()
    for _ in range(60):
        shared.page.keyboard.press("Tab")
        reached.add(
            shared.page.evaluate(
                "document.activeElement.id || document.activeElement.parentElement.id"
            )
        )
    assert {"open-help", "find", "words", "palette", "tab-map", "map-over"} <= reached


def test_search_marks_and_walks_the_matches(shared: Opened, pages) -> None:
    shared.open(pages["pair"], "view=text&on=0.0")
    shared.fill("#find", "sep]")
    found = shared.all("#text-body .found", "dataset.at")
    assert found == ["5", "9"]
    pins = []
    for _ in range(3):
        shared.page.press("#find", "Enter")
        pins.append(re.search(r"pin=(\w+)", shared.settle().hash())[1])
    assert pins == ["q5", "q9", "q5"]


def svg_map(svg: ElementTree.Element) -> np.ndarray:
    """The colours of the cells of a saved map, read from its paths."""
    (group,) = [
        g
        for g in svg.iter("{http://www.w3.org/2000/svg}g")
        if g.get("class") == "map" and int(g.get("data-rows")) > 1
    ]
    out = np.full((int(group.get("data-rows")), int(group.get("data-columns")), 3), -1)
    for path in group:
        for c, r, n in re.findall(r"M(\d+) (\d+)h(\d+)v1h-\d+z", path.get("d")):
            out[int(r), int(c) : int(c) + int(n)] = rgb(path.get("fill"))
    assert (out >= 0).all()
    return out


def test_saved_pictures_hold_the_map(shared: Opened, pages) -> None:
    weights = of(pair(), "1.0")
    want = colors(weights / weights.max(), "viridis")
    shared.open(pages["pair"], "view=map&on=1.0")
    svg = ElementTree.fromstring(shared.saved("svg"))
    assert np.abs(svg_map(svg) - want).max() <= 2
    texts = [t.text for t in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("##board") == 2
    place = next(g for g in svg.iter("{http://www.w3.org/2000/svg}g") if g.get("data-rows") == "10")
    x, y, w, h = map(float, re.findall(r"[\d.]+", place.get("transform")))
    image = np.asarray(Image.open(io.BytesIO(shared.saved("png"))).convert("RGB")).astype(int)
    for r in range(10):
        for c in range(10):
            got = image[int(2 * (y + (r + 0.15) * h)), int(2 * (x + (c + 0.15) * w))]
            assert near(got, want[r, c])


@pytest.mark.parametrize("view", VIEWS)
def test_every_view_saves_in_every_format(shared: Opened, pages, view: str) -> None:
    shared.open(pages["three"], f"view={view}&kind=cross&on=0.*&pin=q1")
    root = ElementTree.fromstring(shared.downloaded("svg"))
    width, height = int(root.get("width")), int(root.get("height"))
    image = Image.open(io.BytesIO(shared.downloaded("png")))
    assert image.size == (2 * width, 2 * height)
    assert len(image.convert("RGB").resize((64, 64)).getcolors(4096)) > 20
    assert {"image", "script", "foreignObject"}.isdisjoint(e.tag.split("}")[1] for e in root.iter())
    names, lines = shared.table()
    assert all(len(line) == len(names) for line in lines)
    assert len(lines) == {"overview": 4, "card": 1}.get(view, 4 * 5)


def test_several_texts_have_a_picker(shared: Opened, pages) -> None:
    shared.open(pages["several"], "view=map&on=0.1")
    texts = shared.all("#texts option")
    assert texts == ["1. w0 w1 w2 w3", "2. v0 v1 v2 v3 v4 v5"]
    shared.choose("#texts", "1")
    want = of(made(3, 2, words(6, name="v"), seed=2), "0.1")
    np.testing.assert_allclose(shared.numbers((6, 6))[0], want, atol=4e-5)
    shared.press("[")
    assert shared.page.get_attribute("#map-cells", "data-shape") == "4,4"


def test_kinds_of_attention_are_apart(shared: Opened, pages) -> None:
    capture = encoder_decoder()
    shared.open(pages["three"], "view=map&on=1.1")
    for kind, shape in (("decoder", (4, 4)), ("cross", (4, 5)), ("encoder", (5, 5))):
        shared.click(f"#kinds [data-kind={kind}]")
        shared.click("#heads [data-head='1.1']")
        np.testing.assert_allclose(shared.numbers(shape)[0], of(capture, "1.1", kind), atol=4e-5)


def test_hostile_tokens_do_nothing(shared: Opened, pages) -> None:
    for view in VIEWS:
        shared.open(pages["hostile"], f"view={view}&on=0.1&pin=q0&find=%3Cscript%3E")
        found = "[window.pwned, document.images.length, document.querySelectorAll('b').length]"
        assert shared.page.evaluate(found) == [None, 0, 0]
        ElementTree.fromstring(shared.saved("svg"))
        shared.saved("csv")
        shared.saved("all-csv")
        with np.load(io.BytesIO(shared.saved("all-npz"))) as arrays:
            assert arrays["tokens"][0] == HOSTILE[0]
    shared.go("view=text&on=0.1")
    text = shared.text("#text-body")
    assert HOSTILE[0] in text
    assert "<U+202E>evil<U+202C>" in text
    assert not re.search("[\x00-\x08\u202a-\u202e\ud800-\udfff]", text)


@pytest.fixture(scope="module")
def sizes(folder: Path) -> dict[str, tuple[Path, Capture]]:
    captures = {
        "one": made(1, 1, words(1)), "two": made(1, 1, words(2)),
        "long": made(2, 2, words(500), causal=True), "many": made(34, 16, words(3)),
    }  # fmt: skip
    return {name: (write_page(folder, name, found), found) for name, found in captures.items()}


@pytest.mark.parametrize(
    "name",
    [
        "one",
        pytest.param("two", marks=pytest.mark.slow),
        *(pytest.param(size, marks=pytest.mark.slow) for size in ("long", "many")),
    ],
)
def test_every_size_works_in_every_view(shared: Opened, sizes, name: str) -> None:
    path, capture = sizes[name]
    last = list(capture.layout)[-1]
    (kind,) = capture.layout.kinds
    shape = capture[last].shape
    for view in VIEWS:
        shared.open(path, f"view={view}&on={last.name}&head={last.name}")
        assert shared.page.is_visible(f"#view-{view}")
        assert not shared.page.is_visible("#failure")
        if view == "text":
            assert shared.page.locator("#text-body button").count() == shape[0]
    shared.go(f"view=map&on={last.name}")
    np.testing.assert_allclose(shared.numbers(shape)[0], of(capture, last.name, kind), atol=4.1e-3)
    if name == "long":
        g = geometry(shared)
        assert g["ch"] * 500 == pytest.approx(g["plotH"])
        tip = hover(shared, 400, 123)
        assert tip.startswith("w400 → w123")
        shared.page.mouse.move(0, 0)
        shared.press("+", "+", "+", "+", "+", "+", "+", "+")
        assert geometry(shared)["ch"] > 10
    if name == "many":
        shared.go("view=overview")
        assert shared.page.locator("#overview-tiles button").count() < 200, "folded"
        shared.go("view=map")
        shared.click("#all-on")
        assert shared.text("#on-count") == "544 of 544 on"
        assert "on=*" in shared.hash().replace("%2A", "*")


def test_light_dark_and_the_systems_theme(browser: Any, pages) -> None:
    with opened(browser, color_scheme="dark") as page:
        ground = "getComputedStyle(document.querySelector('main')).backgroundColor"
        page.open(pages["pair"], "view=map&on=0.0&scale=one&palette=auto")
        assert page.page.evaluate(ground) == "rgb(20, 23, 28)"
        want = colors(of(pair(), "0.0"), "magma")
        assert near(page.pixel("#map-cells", *cell(page, 2, 3)), want[2, 3])
        page.choose("#theme", "light")
        assert page.page.evaluate(ground) == "rgb(255, 255, 255)"
        want = colors(of(pair(), "0.0"), "blues")
        assert near(page.pixel("#map-cells", *cell(page, 2, 3)), want[2, 3])


def test_a_phone_shows_it_all_by_touch(browser: Any, pages, sizes) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "device_scale_factor": 2}
    with opened(browser, **phone) as page:
        views = {pages["pair"]: VIEWS, sizes["long"][0]: VIEWS, sizes["many"][0]: VIEWS[:1]}
        for path, some in views.items():
            for view in some:
                page.open(path, f"view={view}&on=0.0,0.1")
                assert page.page.evaluate("document.documentElement.scrollWidth") <= 360, view
        page.open(pages["pair"], "view=overview")
        page.page.tap("#overview-tiles [data-head='0.2']")
        page.settle()
        assert page.text("#map-caption").startswith("head 0.2")
        x, y = cell(page, 3, 4, 0.5)
        page.page.tap("#map-over", position={"x": x, "y": y})
        assert page.settle().text("#tip").startswith("##board → .")
        page.page.tap("#panel summary")
        page.page.check("#several")
        page.page.tap("#heads [data-head='1.0']")
        assert page.settle().pressed("#heads") == ["0.2", "1.0"]
        page.page.tap("#tab-text")
        page.page.tap("#text-body [data-at='2']")
        assert page.settle().text("#text-said").startswith("key attends to")


def test_no_room_at_all_breaks_nothing(browser: Any, pages) -> None:
    """As in a frame that is not shown yet."""
    with opened(browser, viewport={"width": 30, "height": 40}) as page:
        for view in VIEWS:
            page.open(pages["pair"], f"view={view}&on=0.0,0.1", again=True)
        page.page.set_viewport_size({"width": 900, "height": 700})
        page.settle().go("view=map&on=0.2")
        assert hover(page, 3, 4).startswith("##board → .")


def test_the_policy_holds_in_the_browser(browser: Any, pages) -> None:
    page = browser.new_page()
    sent: list[str] = []
    stopped: list[str] = []
    page.on("requestfinished", lambda request: sent.append(request.url))
    page.on("requestfailed", lambda request: stopped.append(request.failure))
    page.goto(pages["pair"].as_uri())
    sent.clear()
    page.evaluate("""async () => {
        const script = document.createElement('script');
        script.textContent = 'window.pwned = 1';
        document.body.append(script);
        const image = document.createElement('img');
        image.setAttribute('onerror', 'window.pwned = 2');
        image.src = 'https://example.invalid/x.png';
        document.body.append(image);
        await fetch('https://example.invalid/').catch(() => 0);
        await new Promise(done => setTimeout(done, 100));
    }""")
    assert page.evaluate("window.pwned") is None
    assert sent == []
    assert set(stopped) <= {"csp"}
    page.close()


def test_a_browser_that_cannot_unpack_says_so(browser: Any, pages) -> None:
    page = browser.new_page()
    page.add_init_script("delete window.DecompressionStream")
    page.goto(pages["pair"].as_uri())
    assert "DecompressionStream" in page.inner_text("#failure")
    page.close()


def test_a_notebook_shows_it_in_a_frame(browser: Any, tmp_path: Path) -> None:
    host = tmp_path / "notebook.html"
    inside = av.view(made(12, 12, words(9)))._repr_html_()
    host.write_text(f"<!doctype html><meta charset=utf-8><title>n</title><body>{inside}", "utf-8")
    with opened(browser, viewport={"width": 1100, "height": 900}) as found:
        page = found.visit(host).page
        frame = page.frame_locator("iframe")
        frame.locator("[data-head='0.2'].tile").click()
        assert frame.locator("#map-caption").inner_text().startswith("head 0.2")
        page.wait_for_timeout(700)
        assert 480 <= page.locator("iframe").bounding_box()["height"] <= 1110
