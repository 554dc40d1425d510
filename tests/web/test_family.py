"""What every page of the family has and does: header, help, words, paper; nothing piles up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.core.questions import term
from attnviz.core.tokens import Tokens
from attnviz.web.written import read_page
from tests import ROOT
from tests.samples import Samples
from tests.viewing import Opened, accessible, made, opened, write_page
from tests.web.family import MAKE, SETTLED, STATES, visit

PAGES = [name for name in MAKE if name != "sheet"]
STYLES = sorted((ROOT / "attnviz" / "features").rglob("style.css"))


@pytest.fixture(scope="module")
def pages(samples: Samples) -> dict[str, Path]:
    return {name: samples(name, make) for name, make in MAKE.items()}


@pytest.fixture(scope="module", params=PAGES)
def shown(request: Any, browser: Any, pages: dict[str, Path]) -> Iterator[Opened]:
    permissions = ["clipboard-read", "clipboard-write"]
    with opened(browser, reduced_motion="reduce", permissions=permissions) as found:
        visit(found, pages[request.param])
        found.name = request.param
        yield found


def test_a_page_has_the_header_and_a_help_that_opens_at_its_top(shown: Opened) -> None:
    page = shown.page
    order = "all => all.map(one => one.id || one.className).filter(Boolean)"
    last = page.eval_on_selector_all("header > *", order)[-4:-1]
    assert last == ["save", "line theme", "open-help"]
    page.set_viewport_size({"width": 640, "height": 400})
    page.click("#open-help")
    assert page.evaluate("document.getElementById('help').scrollTop") == 0
    assert page.evaluate("document.activeElement.id") == "help-title"
    assert page.locator("#help-figures dt").count() >= 3
    assert page.locator("#help-keys tr").count() >= 1
    page.keyboard.press("Escape")
    page.select_option("#theme", "dark")
    page.evaluate(SETTLED)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.select_option("#theme", "light")
    page.evaluate(SETTLED)
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    page.set_viewport_size({"width": 1280, "height": 900})


def test_marked_words_say_what_the_glossary_says(shown: Opened) -> None:
    page = shown.page
    marked = page.eval_on_selector_all("[data-term]", "all => all.map(one => one.dataset.term)")
    assert len(marked) == len(set(marked))
    assert marked or shown.name == "sheet"
    visible = [name for name in marked if page.locator(f'[data-term="{name}"]').is_visible()]
    for name in visible:
        page.hover(f'[data-term="{name}"]')
        said = page.inner_text("#word")
        assert term(name).text in said
        assert term(name).source in said
    if visible:
        page.focus(f'[data-term="{visible[-1]}"]')
        assert term(visible[-1]).text in page.inner_text("#word")
        page.keyboard.press("Escape")
        assert not page.is_visible("#word")


def test_paper_is_light_and_shows_all(shown: Opened) -> None:
    page = shown.page
    page.select_option("#theme", "dark")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.wait_for_timeout(60)
    ink = page.evaluate("getComputedStyle(document.body).color")
    assert max(map(int, re.findall(r"\d+", ink)[:3])) < 90
    if shown.name == "gallery":
        assert page.locator(".tile").count() == 40
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")


OVERLAPS = """() => [...document.querySelectorAll('table tr')].flatMap(row => {
    const boxes = [...row.children].map(cell => cell.getBoundingClientRect()).filter(b => b.width);
    const over = (box, n) => box.left < boxes[n].right - 1 && box.top < boxes[n].bottom - 1;
    return boxes.slice(1).filter(over)
        .map(box => `${row.textContent.slice(0, 30)} at ${box.left}`);
})"""
"""Cells that lie over the one before them."""
CUT = """() => [...document.querySelectorAll('canvas, svg, table, .legend i')]
    .filter(one => one.checkVisibility() && one.getBoundingClientRect().width)
    .filter(one => one.getBoundingClientRect().right > document.documentElement.clientWidth + 1
        || one.getBoundingClientRect().left < -1)
    .map(one => `${one.tagName} ${one.id} ${one.getBoundingClientRect().right}`)"""
"""What reaches over the edge of the paper."""
STUCK = """() => [...document.querySelectorAll('body *')]
    .filter(one => one.checkVisibility() && getComputedStyle(one).position === 'sticky')
    .map(one => `${one.tagName} ${one.id} ${one.textContent.slice(0, 20)}`)"""
"""What would lie where the window was scrolled to."""
GROUNDS = """() => [...document.querySelectorAll('body *')]
    .filter(one => one.checkVisibility() && one.textContent !== undefined)
    .filter(one => { const style = getComputedStyle(one);
        return (style.backgroundImage !== 'none' || style.backgroundColor !== 'rgba(0, 0, 0, 0)')
            && style.printColorAdjust !== 'exact'; }).length"""


@pytest.mark.parametrize("width", [718, pytest.param(794, marks=pytest.mark.slow)])
def test_paper_has_all_columns_and_all_colours(shown: Opened, width: int) -> None:
    """A4 with a browser's margins, and with none; windows are wider."""
    page = shown.page
    page.set_viewport_size({"width": 1440, "height": 900})
    page.evaluate(SETTLED)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print")
    page.set_viewport_size({"width": width, "height": 1000})
    page.wait_for_timeout(60)
    found = [page.evaluate(script) for script in (OVERLAPS, CUT, STUCK, GROUNDS)]
    page.emulate_media(media="screen")
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.set_viewport_size({"width": 1280, "height": 900})
    assert found == [[], [], [], 0]


SPOKEN = """[document.body.innerText, ...[...document.querySelectorAll('[aria-label], [title]')]
    .map(one => `${one.getAttribute('aria-label') || ''} ${one.title || ''}`)].join('\\n')"""


def test_a_minus_is_no_hyphen(shown: Opened) -> None:
    assert re.findall(r".{12}(?<![\w.·])-\d.{8}", shown.page.evaluate(SPOKEN)) == []
    for one in re.findall(r"\d ?%", shown.page.evaluate(SPOKEN)):
        assert one[1:] == " %"


def test_what_takes_keys_is_no_picture(shown: Opened) -> None:
    """A screen reader passes no keys on to an image."""
    assert shown.page.locator("canvas[tabindex][role=img], svg[tabindex][role=img]").count() == 0
    unnamed = "canvas[tabindex]:not([aria-label]), canvas[tabindex]:not([role])"
    assert shown.page.locator(unnamed).count() == 0


NO_NUMBER = re.compile(r"[-+−±<]?[\d.,]+\s?(%|[(\[±].*)|[−±<]\d.*|[-+]\d.*[^\d.e+-].*")
"""What a spreadsheet takes for a text: a minus sign of our own, a percent, an interval behind."""


def test_files_have_numbers_as_numbers(shown: Opened) -> None:
    if not shown.page.locator("#save-csv").count():
        return
    names, lines = shown.table()
    assert lines
    assert all(len(line) == len(names) for line in lines)
    tokens = {n for n, name in enumerate(names) if re.search("token|query$|key$|word|string", name)}
    texts = {cell for line in lines for n, cell in enumerate(line) if n not in tokens}
    assert [cell for cell in texts if NO_NUMBER.fullmatch(cell)] == []
    if "allowed" in names and shown.name in ("view", "live", "diff"):
        place, first = names.index("allowed"), names.index("key") + 1
        first += 2 * (names[first] == "second_query")
        barred = [line[first:place] for line in lines if line[place] == "0"]
        free = [line[first] for line in lines if line[place] == "1"]
        assert barred
        assert {cell for line in barred for cell in line} == {""}, "nothing, and no 0"
        assert all(map(float, free))


def test_every_page_has_the_same_menu(shown: Opened) -> None:
    """Picture, vector, numbers, the result, for a paper and a card; a gallery is of pictures."""
    found = shown.page.eval_on_selector_all(
        "#save button", "all => all.filter(one => !one.hidden).map(one => one.id)"
    )
    kinds = ("csv", "json") if shown.name == "gallery" else (
        "png", "svg", "csv", "json", "paper", "card")  # fmt: skip
    assert {f"save-{kind}" for kind in kinds} <= set(found)
    saved = json.loads(shown.saved("json"))
    if shown.name not in ("view", "long", "live", "gallery", "shapes"):
        page = read_page(shown.page.content().encode())
        assert saved == page
    else:
        assert saved["rows"]


def test_a_page_says_what_made_it(shown: Opened) -> None:
    """Model, hash, program, call and day, in a landmark; a button copies the line."""
    page = shown.page
    line = page.inner_text("footer #made-line")
    assert page.locator("#made-line").count() == 1
    assert f"attnviz {av.__version__}" in line
    if shown.name not in ("gallery", "shapes"):
        assert re.search(r"\d{4}-\d\d-\d\d$", line)
        assert " · av." in line or shown.name == "film"
    if shown.name not in ("long", "shapes", "gallery", "film"):
        assert re.match("demo-gpt2 [0-9a-f]{8} · ", line)
    page.click("#copy-made")
    page.wait_for_selector("#copy-made:text-is('copied')")
    assert page.evaluate("navigator.clipboard.readText()") == line


SEEN = "checkVisibility({ visibilityProperty: true }) && one.getBoundingClientRect().width > 0"
"""Whether an element is to be seen."""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_it_found_without_scripts(
    browser: Any, pages: dict[str, Path], name: str
) -> None:
    """Its headline, sentences, and a drawing, a table or steps; nothing that would not answer."""
    size = {"width": 390, "height": 844}
    with opened(browser, java_script_enabled=False, viewport=size) as found:
        found.visit(pages[name])
        assert found.page.locator("h1").first.is_visible()
        assert len(found.page.inner_text(".still")) > 40
        figures = found.all(".still svg, .still table, .still li", SEEN)
        assert figures or name == "gallery"
        assert all(figures[:5])
        dead = found.all("button:not(.term), input, select, canvas, summary", SEEN)
        assert not any(dead)
        assert found.page.evaluate("document.documentElement.scrollWidth") <= 390


FRAME = """<!doctype html><title>a post</title><iframe width="900" src="{}#embed=1"></iframe>
<script>const told = [];
addEventListener("message", ({{data}}) => {{
    if (data.attnviz !== "height") return;
    told.push(data.height);
    document.querySelector("iframe").style.height = `${{data.height}}px`;
}});</script>"""


@pytest.mark.parametrize("name", ["view", "atlas", "explain", "flow", "lens"])
def test_a_page_in_a_frame_is_bare_and_says_how_high_it_is(
    browser: Any, pages: dict[str, Path], name: str, tmp_path: Path
) -> None:
    (tmp_path / "post.html").write_text(FRAME.format(pages[name].as_uri()))
    with opened(browser, viewport={"width": 1000, "height": 700}) as found:
        found.documents |= {(tmp_path / "post.html").as_uri(), pages[name].as_uri()}
        found.page.goto((tmp_path / "post.html").as_uri())
        inner = found.page.frames[1]
        found.page.wait_for_function("told.length")
        inner.evaluate(SETTLED)
        assert not inner.is_visible("header")
        assert not inner.is_visible("footer")
        assert "embed" not in inner.evaluate("location.hash")
        found.page.wait_for_timeout(200)
        (_, *others), last = found.page.evaluate("told"), found.page.evaluate("told.at(-1)")
        found.page.evaluate("document.querySelector('iframe').style.height = '4000px'")
        found.page.wait_for_timeout(300)
        assert 200 < last < 4000
        assert found.page.evaluate("told.at(-1)") == last, "it does not follow its frame"
        assert len(others) < 8
        assert inner.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_page_gives_its_result_back(shown: Opened, pages: dict[str, Path]) -> None:
    result = av.read(pages[shown.name])
    if shown.name in ("view", "long", "live", "gallery", "shapes"):
        assert result.page == pages[shown.name].read_bytes()
        return
    assert result.schema.removeprefix("attnviz.").startswith(shown.name.partition("-")[0])
    assert type(result).from_json(result.to_json()) == result
    again = result.to_bytes(".html") if shown.name != "diff" else b""  # its maps stay in the page
    assert again or shown.name == "diff"


@pytest.mark.parametrize("shown", [*PAGES, "sheet"], indirect=True)
@pytest.mark.parametrize(
    ("width", "scheme"), [pytest.param(1280, "light", marks=pytest.mark.slow), (390, "dark")]
)
def test_axe_finds_nothing(shown: Opened, width: int, scheme: str) -> None:
    page = shown.page
    page.set_viewport_size({"width": width, "height": 800})
    page.emulate_media(color_scheme=scheme)
    page.select_option("#theme", "system")
    chosen = "document.querySelector('.row').click()"  # of a flow a token
    states = {"": "html"}
    if page.locator(".row").count():
        states[chosen] = "main"
    if shown.name in STATES:
        states[f"location.hash = '{STATES[shown.name]}'"] = "main"
    states["document.getElementById('help').showModal()"] = "#help"
    rules = {"rules": {"label-content-name-mismatch": {"enabled": True}}}
    for state, within in states.items():
        page.evaluate(state)
        page.evaluate(SETTLED)
        accessible(page, rules, within)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.keyboard.press("Escape")


def test_explain_shows_the_votes_of_every_head(browser: Any, pages: dict[str, Path]) -> None:
    inside = "e => [e.scrollWidth - e.clientWidth, e.firstChild.rows[0].cells.length]"
    with opened(browser) as found:
        visit(found, pages["explain"])
        for width in (390, 700, 1024, 1440):
            found.page.set_viewport_size({"width": width, "height": 800})
            found.page.evaluate(SETTLED)
            over, columns = found.page.eval_on_selector("#grid", inside)
            assert columns == 7
            assert over <= 0, width


CLICKS = {
    "view": ["#head-after", "#head-before", "button.word", "#tab-map", "#tab-card", "#tab-stage"],
    "long": ["#heads button", "#pairs button", "#zoom-out", "#find-next", "#show-sum", "#show-max"],
    "live": [
        *("button.tile", "#switch", ".token", "#ask-why", "#why-close", "#all-on"),
        *(".river-name", ".river-head", "#river-heads button"),
    ],
    "atlas": ["#grid button", "#heads tbody tr", "#heads thead button"],
    "diff": ["#heads tbody tr"],
    "flow": ["#stage", "#free"],
    "gallery": [".tile", "#close"],
}


@pytest.mark.parametrize(
    "name", ["atlas", *(pytest.param(n, marks=pytest.mark.slow) for n in CLICKS if n != "atlas")]
)
def test_no_listeners_pile_up(browser: Any, pages: dict[str, Path], name: str) -> None:
    """What is drawn anew leaves no listener behind, however often it is clicked."""
    with opened(browser) as found:
        visit(found, pages[name])
        session = found.page.context.new_cdp_session(found.page)
        session.send("Performance.enable")

        def listeners() -> int:
            session.send("HeapProfiler.collectGarbage")
            found.page.wait_for_timeout(150)
            session.send("HeapProfiler.collectGarbage")
            metrics = session.send("Performance.getMetrics")["metrics"]
            return next(m["value"] for m in metrics if m["name"] == "JSEventListeners")

        def click(rounds: int) -> None:
            found.page.evaluate(
                """async ([selectors, rounds]) => {
                    for (let n = 0; n < rounds; n++) for (const selector of selectors) {
                        const all = [...document.querySelectorAll(selector)];
                        const seen = all.filter(one => one.checkVisibility());
                        const click = new MouseEvent('click', { bubbles: true });
                        seen[n % seen.length]?.dispatchEvent(click);
                        await new Promise(done => setTimeout(done, 4));
                    }
                }""",
                [CLICKS[name], rounds],
            )
            found.page.evaluate(SETTLED)

        click(12)
        before = listeners()
        click(12)
        assert listeners() <= before + 6


def test_a_token_of_ten_thousand_letters_stays_in_its_page(browser: Any, tmp_path: Path) -> None:
    tokens = Tokens(("short", "a" * 10_000, "end", "ab " * 3000))
    path = write_page(tmp_path, "long", made(2, 2, tokens))
    with opened(browser, viewport={"width": 1000, "height": 800}) as found:
        for view in ("text", "stage", "map"):
            found.open(path, f"view={view}")
            found.page.wait_for_timeout(200)
            wide = found.page.eval_on_selector_all(
                "body *:not(#sentence, #sentence *, .hidden)",  # which are cut
                "all => Math.max(...all.map(e => Math.max(e.scrollWidth, e.offsetLeft)))",
            )
            assert wide <= 1000, view
            assert found.page.evaluate("document.documentElement.scrollHeight") <= 8000, view
            assert found.page.evaluate("document.documentElement.scrollWidth") <= 1000, view


@pytest.mark.parametrize("style", STYLES, ids=lambda path: path.parent.name)
def test_type_is_of_the_one_scale(style: Path) -> None:
    sizes = re.findall(r"font(?:-size)?:[^;}]*?(\d[\d.]*)px", style.read_text("utf-8"))
    assert sizes == []
    assert "--paper:" not in style.read_text("utf-8")


def test_nothing_is_said_of_one_of_many() -> None:
    """One text, one token, one head: no page speaks of them as several, before its script runs."""
    page = av.view("a").page.decode("utf-8")
    shown = re.sub(r"(?s)<(script|style)\b.*?</\1>|<[^>]*>", " ", page)
    said = " ".join(shown.split())
    assert "tokens" in said
    assert not re.search(r"\b1 (tokens|heads|texts|rows|queries|keys)\b", said)
