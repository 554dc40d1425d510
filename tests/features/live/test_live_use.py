"""The page that runs the model, in use: tokens on its axes, its room, its help and its seed."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from transformers import TopKLogitsWarper, TopPLogitsWarper

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
from tests.features.live.test_live_why import pointing
from tests.viewing import Opened, opened, until
from tests.web.reference import mulberry32

pytestmark = pytest.mark.slow

TEXT = "The keys to the cabinet are on the table because the keys to the cabinet were lost"
LISTEN = """
    globalThis.written = {};
    const fillText = CanvasRenderingContext2D.prototype.fillText;
    const { get, set } = Object.getOwnPropertyDescriptor(HTMLCanvasElement.prototype, 'width');
    Object.defineProperty(HTMLCanvasElement.prototype, 'width', {
        get, set(value) { written[this.id] = []; set.call(this, value); },
    });
    CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const { a, b, c, d, e, f } = this.getTransform();
        const upright = Math.abs(b) < 1e-6;
        const color = this.fillStyle;
        const bold = /^(700|bold)/.test(this.font);
        const place = { x: a * x + c * y + e, y: b * x + d * y + f };
        written[this.canvas.id].push({ text, upright, ...place, bold, color });
        return fillText.call(this, text, x, y);
    };
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return av.live(TEXT).save(tmp_path_factory.mktemp("live-use") / "live.html")


@pytest.fixture
def page(browser: Any) -> Iterator[Opened]:
    with opened(browser) as found:
        found.page.add_init_script(LISTEN)
        yield found


def sized(page: Opened, path: Path, width: int, height: int, state: str = "") -> Opened:
    page.page.set_viewport_size({"width": width, "height": height})
    page.page.goto("about:blank")
    return page.open(path, state)


def labels(page: Opened, which: str = "before") -> tuple[list[dict[str, Any]], ...]:
    """The labels of queries, from the top, and those of keys, from the left."""
    found = page.page.evaluate("which => written[`axes-${which}`]", which)
    rows = sorted((one for one in found if one["upright"]), key=lambda one: one["y"])
    columns = sorted((one for one in found if not one["upright"]), key=lambda one: one["x"])
    return rows, columns


def texts(found: list[dict[str, Any]]) -> list[str]:
    return [one["text"] for one in found]


@pytest.mark.parametrize(("width", "height"), [(390, 900), (1280, 900), (2560, 1440)])
def test_both_axes_have_their_tokens(page: Opened, path: Path, width: int, height: int) -> None:
    sized(page, path, width, height)
    rows, columns = labels(page)
    all_of_them = page.all("#tokens .token")
    for found in (texts(rows), texts(columns)):
        assert len(found) == len(all_of_them) == 18
        for label, token in zip(found, all_of_them, strict=True):
            assert label == token or (label[-1] == "…" and token.startswith(label[:-1]))
        assert sum(map(str.__eq__, found, all_of_them)) >= 12
    assert [one["text"] for one in rows if one["color"] == rows[-1]["color"]] == ["·lost"]
    box = page.page.locator("#map-before").bounding_box()
    axes = page.page.locator("#axes-before").bounding_box()
    assert 40 < box["x"] - axes["x"] <= 120
    assert box["x"] + box["width"] == pytest.approx(axes["x"] + axes["width"])
    assert axes["x"] + axes["width"] <= width


def test_few_of_many_tokens_are_named_but_always_the_one_pointed_at(
    page: Opened, path: Path
) -> None:
    sized(page, path, 1280, 900)
    page.fill("#text", " ".join(f"{n} apples" for n in range(60)))
    count = page.page.locator("#tokens .token").count()
    rows, columns = labels(page)
    assert count > 100
    assert 15 < len(rows) < 60
    assert 15 < len(columns) < 60
    gaps = [b["y"] - a["y"] for a, b in pairwise(rows)]
    assert min(gaps) > 10
    for row, column in ((71, 40), (72, 41), (73, 42)):
        page.page.mouse.move(*pointing(page, "before", row, column, count))
        rows, columns = labels(page)
        step = page.page.locator("#map-before").bounding_box()["width"] / count
        (here,), (there,) = ([one for one in all_ if one["bold"]] for all_ in (rows, columns))
        gutter = page.page.locator("#axes-before").bounding_box()["height"] - step * count
        assert here["y"] == pytest.approx(gutter + (row + 0.5) * step, abs=1.5)
        assert there["x"] == pytest.approx(gutter + (column + 0.5) * step, abs=1.5)
        tip = page.page.inner_text("#tip")
        assert f"({row}) → " in tip or here["text"] in tip
    page.page.mouse.move(2, 2)
    assert not any(one["bold"] for all_ in labels(page) for one in all_)


def test_two_maps_share_rows_beside_each_other_and_have_their_own_below(
    page: Opened, path: Path
) -> None:
    sized(page, path, 1280, 900, "off=2.4")
    assert labels(page)[0]
    assert not labels(page, "after")[0]
    assert labels(page, "after")[1]
    sized(page, path, 390, 900, "off=2.4")
    assert texts(labels(page)[0]) == texts(labels(page, "after")[0])


def test_the_map_grows_with_the_window(page: Opened, path: Path) -> None:
    sides, tiles = [], []
    for width, height in ((1280, 900), (2560, 1440), (3840, 2160)):
        sized(page, path, width, height)
        sides.append(page.page.locator("#map-before").bounding_box()["width"])
        tiles.append(page.page.locator(".tile").first.bounding_box()["width"])
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    assert 370 < sides[0] <= 420
    assert sides[1] > 780
    assert sides[2] > 1200
    assert tiles[0] > 50
    assert tiles[1] > 110
    assert tiles[2] > 180


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1000, 720), (390, 844)])
def test_why_opens_beside_or_right_below_the_map(
    page: Opened, path: Path, width: int, height: int
) -> None:
    sized(page, path, width, height)
    assert page.page.is_visible("#ask-why")
    page.click("#ask-why")
    until(page.page, "document.activeElement.id === 'why-title'")
    boxes = "ids => ids.map(id => document.getElementById(id).getBoundingClientRect().toJSON())"
    figure, why, part = page.page.evaluate(boxes, ["map-before", "why-title", "head-part"])
    assert 0 <= why["top"] < height - 20, "in sight"
    if width == 1280:
        assert why["left"] > figure["right"]
        assert abs(why["top"] - part["top"]) < 40
    else:
        assert -4 <= why["top"] - part["bottom"] < 40
        assert part["left"] - 1 <= why["left"] < part["right"]
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width


def test_signs_stay_within_their_tiles(page: Opened, path: Path) -> None:
    for width in (320, 390, 1280):
        sized(page, path, width, 900)
        wider = page.page.eval_on_selector_all(
            ".tile",
            """all => all.filter(tile => [...tile.querySelectorAll('.label *')].some(one =>
                one.getBoundingClientRect().right > tile.getBoundingClientRect().right)).length""",
        )
        assert wider == 0


def test_the_help_opens_by_its_key_and_closes(page: Opened, path: Path) -> None:
    sized(page, path, 1280, 900, "head=2.4&why=3")
    page.page.focus("#text")
    page.page.keyboard.type("?")
    assert not page.page.is_visible("#help")
    page.page.focus('[data-head="2.4"]')
    page.page.keyboard.press("?")
    assert page.page.is_visible("#help")
    said = page.page.inner_text("#help")
    assert all(word in said for word in ("Esc", "Jensen-Shannon", "square root", "induction"))
    page.page.keyboard.press("Escape")
    assert not page.page.is_visible("#help")
    assert page.page.is_visible("#why"), "only the help is closed"
    assert page.page.evaluate("document.activeElement.dataset.head") == "2.4"
    page.page.click("#open-help")
    page.page.click("#help button")
    assert not page.page.is_visible("#help")
    assert page.page.evaluate("document.activeElement.id") == "open-help"


RUN = "args => attnviz.run(...args).then(({ ids }) => ids)"


def test_a_seed_draws_the_same_text_again(page: Opened, path: Path) -> None:
    sized(page, path, 1280, 900)
    assert page.page.is_disabled("#seed"), "the likeliest token needs no seed"
    ids = {
        (seed, turn): tuple(page.page.evaluate(RUN, ["The old man", [], 12, 1.2, seed]))
        for seed in (0, 1, 2**32 - 1)
        for turn in range(2)
    }
    assert len(set(ids.values())) == 3
    assert all(ids[seed, 0] == ids[seed, 1] for seed, _ in ids)
    written = []
    for seed in (5, 5, 6):
        sized(page, path, 1280, 900, f"text=The+old+man&temperature=1.2&seed={seed}")
        assert page.page.input_value("#seed") == str(seed)
        page.click("#write-ten")
        written.append(page.page.input_value("#text"))
    assert written[0] == written[1] != written[2]
    page.page.fill("#seed", "77")
    page.page.wait_for_timeout(260)
    assert "seed=77" in page.page.evaluate("location.hash")
    page.page.fill("#seed", "-3")  # no seed: the last one stays
    page.page.focus("#text")
    assert page.page.input_value("#seed") == "77"


@pytest.mark.parametrize(("top_k", "top_p"), [(0, 1), (5, 1), (0, 0.4), (30, 0.6), (1, 1)])
def test_tokens_are_drawn_by_their_probabilities(
    page: Opened, path: Path, top_k: int, top_p: float
) -> None:
    """The token drawn is the one that the generator's number falls on, in the order of ids.

    Of those that transformers' own filters leave, by what they have there.
    """
    sized(page, path, 1280, 900)
    model = av.load("demo-gpt2")
    text, temperature = "The old man went to the", 1.3
    inputs = model.prepare(Prompt(text))
    before = len(inputs.sides["decoder"].queries.ids)
    logits = model.forward([inputs], request=ForwardRequest(logits=True)).logits
    assert logits is not None
    scores = logits[0, -1:].double() / temperature
    if top_k:
        scores = TopKLogitsWarper(top_k)(None, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(None, scores)
    shares = scores[0].softmax(-1)
    ends = shares.cumsum(-1)
    drawn = set()
    for seed in range(12):
        share = mulberry32(seed, before)
        found = page.page.evaluate(RUN, [text, [], 1, temperature, seed, top_k, top_p])[-1]
        assert shares[found] > 0
        low, high = float(ends[found - 1]) if found else 0.0, float(ends[found])
        assert low - 1e-3 <= share <= high + 1e-3
        drawn.add(found)
    assert (len(drawn) == 1) is (top_k == 1)


def test_how_a_token_is_drawn_stands_in_the_address(page: Opened, path: Path) -> None:
    sized(page, path, 1280, 900, "text=The+old+man&temperature=1.2&seed=5&topK=1")
    assert page.page.input_value("#top-k") == "1"
    assert page.page.input_value("#top-p") == ""
    page.click("#write-ten")
    likeliest = page.page.input_value("#text")
    sized(page, path, 1280, 900, "text=The+old+man")
    assert all(page.page.is_disabled(one) for one in ("#top-k", "#top-p", "#seed"))
    page.click("#write-ten")
    assert page.page.input_value("#text") == likeliest, "of one token the likeliest is drawn"
    sized(page, path, 1280, 900, "text=The+old+man&temperature=1.2&topK=x&topP=7")
    page.page.fill("#top-p", "0.35")
    page.page.fill("#top-k", "40")
    page.page.wait_for_timeout(260)
    state = page.page.evaluate("location.hash")
    assert "topP=0.35" in state
    assert "topK=40" in state


def test_the_button_says_whether_the_link_was_copied(browser: Any, path: Path) -> None:
    with opened(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.open(path)
        page.page.fill("#text", "my own words")
        page.page.click("#copy-link")
        until(page.page, "() => document.getElementById('copy-link').textContent === 'link copied'")
        link = page.page.evaluate("navigator.clipboard.readText()")
        assert "text=my+own+words" in link
        until(page.page, "() => document.getElementById('copy-link').textContent === 'copy link'")
        refused = "navigator.clipboard.writeText = () => Promise.reject(new Error('no'))"
        page.page.evaluate(f"() => {{ {refused}; }}")
        page.page.click("#copy-link")
        until(
            page.page,
            "() => document.getElementById('copy-link').textContent.startsWith('not copied')",
        )


def test_blue_is_on_and_what_is_off_is_hollow(page: Opened, path: Path) -> None:
    page.open(path)
    filled = """() => {
        const probe = document.body.appendChild(document.createElement('i'));
        probe.style.background = 'var(--on)';
        const blue = getComputedStyle(probe).backgroundColor;
        probe.remove();
        return [...document.querySelectorAll('button')].filter(one => one.checkVisibility()
            && getComputedStyle(one).backgroundColor === blue && one.offsetWidth)
            .map(one => one.textContent.trim());
    }"""
    page.page.click("#look-around")
    before = page.page.evaluate(filled)
    page.page.click("#groups [data-ids]")
    page.click("#places")
    assert page.page.locator("#groups [aria-pressed=true]").count() >= 1
    assert page.page.evaluate(filled) == before
    struck = "e => getComputedStyle(e).textDecorationLine"
    assert page.page.eval_on_selector("#groups [aria-pressed=true]", struck) == "line-through"
