"""Why this weight: what the page computes from stored queries and keys, against the model's own."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.core.capture import KeyMask
from attnviz.core.prompt import Prompt
from attnviz.core.reasons import HeadTerms
from attnviz.core.tokens import Tokens
from attnviz.errors import UsageError
from attnviz.features.view import page as viewer
from attnviz.features.view.encoding import pack_terms, terms_bytes
from tests.features.view.test_view_page import hover
from tests.features.view.test_view_who import holds
from tests.models.tiny import LONG, build
from tests.viewing import Opened, accessible, made, opened, until, write_page

pytestmark = pytest.mark.slow

TEXT = "The keys to the cabinet are on the table because the keys to the cabinet were lost"
FAMILIES = ("llama", "gemma2", "bloom", "gpt_oss", "mistral", "t5")


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    found = {"demo-gpt2": av.capture(TEXT, why="2.4,3.0")}
    found["demo-bert"] = av.capture(TEXT, model="demo-bert", why="1.*")
    for family in FAMILIES:
        folder = tmp_path_factory.mktemp(family)
        build(family, folder)
        found[family] = av.capture(Prompt(ids=LONG), model=str(folder), why="*.*")
    return found


@pytest.fixture(scope="module")
def pages(captures: dict[str, Any], folder: Path) -> dict[str, Path]:
    found = {name: write_page(folder, name, one) for name, one in captures.items()}
    return found | {"without": write_page(folder, "without", made(causal=True))}


def test_a_page_opens_on_the_clearest_of_the_heads_that_it_explains() -> None:
    def opening(why: str | None) -> str:
        return re.findall(r'"opening":"([^"]*)"', av.view(TEXT, why=why).page.decode())[0]

    usual = opening(None)
    assert opening("0.2") == "0.2" != usual
    assert opening(f"0.2,{usual}") == usual


def steps(page: Opened) -> dict[str, str]:
    """The steps of the explanation by name."""
    page.settle()
    return dict(
        page.page.eval_on_selector_all(
            ".why-steps tr", "all => all.map(r => [r.dataset.step, r.cells[1].textContent])"
        )
    )


def number(text: str) -> float:
    """A number of the page; the middle of what one below a bound can be."""
    if text.startswith("<"):
        return float(text[1:]) / 2
    return float(text.replace("−", "-").replace("∞", "inf"))


def agrees(page: Opened, why: Any, error: float) -> None:
    """The page's steps are those of the record, to the digits that it shows."""
    told = steps(page)
    noun = why.terms.noun
    expected = {"q·k": why.dot, "score": why.score, noun: why.norm}
    expected[f"α{noun}"] = why.weight * why.norm
    if why.terms.softcap is not None:
        expected["capped"] = why.capped
    if why.terms.bias is not None and why.allowed[why.key]:
        expected["bias"] = why.added
    if why.terms.sink is not None:
        expected["sink"] = why.terms.sink
    blocked = () if why.allowed[why.key] else ("blocked",)
    if {"capped", "bias", *blocked} & {*expected, *blocked}:  # else it is the score
        expected["scaled"] = why.scaled
    assert set(told) == {*expected, *blocked, "numerator", "sum", "weight"}
    if not told["numerator"].startswith("<"):
        assert number(told["numerator"]) / number(told["sum"]) == pytest.approx(
            why.weight, abs=0.01
        )
    for name, value in expected.items():
        shown = number(told[name])
        decimals = len(told[name].partition(".")[2])
        slack = 0.51 * 10**-decimals + 2e-3 * abs(value)
        assert shown == value or abs(shown - value) <= slack, (name, told[name], value)
    low, high = why.weight - error, why.weight + error
    assert any(holds(told["weight"], value) for value in (low, why.weight, high)), told["weight"]
    assert abs(why.weight - why.shown) < 1e-4
    assert "why-steps" in page.page.inner_html("#why-body")


CELLS = ((12, 3), (5, 5), (9, 0), (3, 11))


@pytest.mark.parametrize("name", ["demo-gpt2", "demo-bert", *FAMILIES])
def test_the_page_takes_weights_apart_as_the_record_does(
    shared: Opened, captures: dict[str, Any], pages: dict[str, Path], name: str
) -> None:
    capture = captures[name]
    for number_, head in enumerate(capture.terms):
        if number_ % 3 and name not in ("demo-gpt2",):
            continue
        _, facts = pack_terms(
            capture.terms[head], capture.reach[head.site], np.asarray(capture[head])
        )
        assert facts["error"] < 1e-3
        T, S = capture[head].shape
        for query, key in ((min(q, T - 1), min(k, S - 1)) for q, k in CELLS):
            state = f"view=map&kind={head.site.kind}&on={head.name}&head={head.name}"
            shared.open(pages[name], f"{state}&why=q{query}k{key}")
            agrees(shared, capture.why(head, query, key), facts["error"])
    rows = shared.page.eval_on_selector_all(
        ".why-row tbody tr", "all => all.map(r => [...r.cells].map(c => c.textContent))"
    )
    assert rows[-1][0] == "sum"
    parts = sum(number(row[2]) for row in rows[:-1])
    assert parts == pytest.approx(number(rows[-1][2]), abs=0.0006 * len(rows))


def test_codes_say_how_far_they_move_weights() -> None:
    """The measured error is that of the numbers read, for biases of every kind."""
    rng = np.random.default_rng(3)
    query, key = rng.normal(0, 2, (9, 16)), rng.normal(0, 2, (9, 16))
    query[:, 3] *= 40  # a dimension that is much larger than the others
    distance = np.arange(9) - np.arange(9)[:, None]
    biases = {
        "": None, "key": np.broadcast_to(rng.normal(size=9), (9, 9)), "distance": np.sin(distance),
        "whole": rng.normal(size=(9, 9)),
    }  # fmt: skip
    for kind, bias in biases.items():
        terms = HeadTerms(query, key, 0.25, np.ones(9), bias=bias)
        for reach in (KeyMask(), KeyMask(causal=True), KeyMask(bits=rng.random((1, 9, 9)) < 0.7)):
            allowed = reach.allowed(9, 9)[0]
            weights = terms.weights(allowed)
            text, facts = pack_terms(terms, reach, weights)
            assert facts["bias"] == kind
            assert 0 < facts["error"] < 1e-3
            assert pack_terms(terms, reach, weights + 0.01)[1]["error"] > 0.009
            assert len(text) <= terms_bytes(terms) * 1.05 + 64


def test_it_opens_by_pointer_and_by_keys(shared: Opened, captures, pages) -> None:
    capture = captures["demo-gpt2"]
    page = shared.open(pages["demo-gpt2"], "view=map&on=3.0&head=3.0")
    assert not page.page.is_visible("#why")
    hover(page, 15, 3)
    page.press("y")
    assert "why=q15k3" in page.hash()
    assert page.page.is_visible("#why")
    agrees(page, capture.why("3.0", 15, 3), 1e-3)
    assert page.page.evaluate("document.activeElement.id") == "why-title"
    hover(page, 12, 6)  # points elsewhere: the explanation follows, the link does not
    until(page.page, "document.querySelector('.why-token').textContent.includes('(12)')")
    agrees(page, capture.why("3.0", 12, 6), 1e-3)
    assert "why=q15k3" in page.hash()
    page.page.mouse.move(2, 2)
    until(page.page, "document.querySelector('.why-token').textContent.includes('(15)')")
    hover(page, 12, 6)
    page.page.mouse.down()
    page.page.mouse.up()
    assert "why=q12k6" in page.settle().hash()
    page.press("Escape")
    assert "why=" not in page.hash()
    assert not page.page.is_visible("#why")
    page.page.focus("#map-over")
    page.page.mouse.move(2, 2)
    page.press("Shift+ArrowDown", "Shift+ArrowDown", "Shift+ArrowDown", "Shift+ArrowRight", "Enter")
    asked = page.hash()
    assert "why=q" in asked
    page.press("Shift+ArrowUp")
    until(page.page, "document.querySelector('.why-token').textContent.length > 0")
    page.press("Tab")
    assert page.page.evaluate("document.activeElement.id") == "why-close"
    page.press("Enter")
    assert not page.page.is_visible("#why")
    assert page.page.evaluate("document.activeElement.id") == "map-over"
    page.click("#ask-why")
    assert page.page.get_attribute("#ask-why", "aria-expanded") == "true"
    page.click("#ask-why")
    assert not page.page.is_visible("#why")


def test_bars_go_in_order_or_sorted(shared: Opened, pages) -> None:
    page = shared.open(pages["demo-gpt2"], "view=map&on=3.0&head=3.0&why=q15k3", again=True)
    drawn = "document.querySelector('#why canvas').toDataURL()"
    first = page.page.evaluate(drawn)
    page.click(".why-order")
    assert page.page.evaluate(drawn) != first
    assert page.page.evaluate("document.activeElement.className") == "why-order"
    page.click(".why-order")
    assert page.page.evaluate(drawn) == first


def test_other_views_and_heads(shared: Opened, captures, pages) -> None:
    page = shared.open(pages["demo-gpt2"], "view=text&on=3.0&head=3.0&pin=q15&why=q15k3")
    key = "document.querySelectorAll('.why-token')[1].textContent.includes"
    tokens = captures["demo-gpt2"].tokens
    page.page.hover("#text-body [data-at='6']")
    until(page.page, f"{key}({tokens[6].strip()!r})")
    agrees(page, captures["demo-gpt2"].why("3.0", 15, 6), 1e-3)
    page.page.mouse.move(2, 2)
    until(page.page, f"{key}({tokens[3].strip()!r})")
    page.go("view=map&on=1.1&head=1.1&why=q15k3")
    assert "does not hold queries and keys of head 1.1" in page.text("#why-body")
    page.click("#why-body button:has-text('2.4')")
    agrees(page, captures["demo-gpt2"].why("2.4", 15, 3), 1e-3)
    page.go("view=card&head=2.4&on=1.1&why=q15k3")
    agrees(page, captures["demo-gpt2"].why("2.4", 15, 3), 1e-3)
    page.go("view=map&on=3.0&head=3.0&why=q15k99")
    assert page.text("#why-body") == "There is no such token."
    page.go("view=map&on=3.0&head=3.0&why=<b>")
    assert not page.page.is_visible("#why")


def test_a_page_without_queries_and_keys_does_not_offer_it(shared: Opened, pages) -> None:
    page = shared.open(pages["without"], "view=map&on=0.0&why=q1k0")
    assert not page.page.is_visible("#ask-why")
    assert not page.page.is_visible("#why")
    page.press("y")
    assert not page.page.is_visible("#why")


def test_norms_in_the_maps_leave_the_weight_as_it_is(shared: Opened, tmp_path, captures) -> None:
    path = av.view(TEXT, quantity="norm", why="3.0").save(tmp_path / "norm.html")
    page = shared.open(path, "view=map&on=3.0&head=3.0&writes=1&why=q15k3")
    agrees(page, captures["demo-gpt2"].why("3.0", 15, 3), 1e-3)


def test_hostile_tokens_stay_text(shared: Opened, tmp_path: Path) -> None:
    capture = av.capture(TEXT, why="3.0")
    (kind,) = capture.layout.kinds
    texts = list(capture.tokens)
    texts[3] = "<img src=x onerror=alert(1)>\u202e"
    tokens = Tokens(tuple(texts))
    sides = replace(capture.inputs.sides[kind], queries=tokens, keys=tokens)
    hostile = replace(capture, inputs=replace(capture.inputs, sides={kind: sides}))
    page = shared.open(write_page(tmp_path, "hostile", hostile), "view=map&on=3.0&why=q15k3")
    page.settle()
    assert "<img src=x onerror=alert(1)><U+202E>" in page.text("#why-body")
    assert page.page.locator("#why-body img").count() == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1000, 1280])
def test_axe_finds_nothing_and_nothing_is_cut(browser: Any, pages, theme: str, width: int) -> None:
    with opened(browser, viewport={"width": width, "height": 900}) as page:
        page.open(pages["gemma2"], f"view=map&on=0.1&head=0.1&theme={theme}&why=q9k8")
        assert steps(page)["capped"]
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width
        inside = "(document.querySelector('.why-inside').scrollWidth"
        assert page.page.evaluate(f"{inside} <= document.querySelector('#why').clientWidth)")
        accessible(page.page)


def test_it_is_printed(browser: Any, pages) -> None:
    with opened(browser, color_scheme="dark") as page:
        page.open(pages["demo-gpt2"], "view=map&on=3.0&head=3.0&why=q15k3")
        assert steps(page)
        page.page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.page.emulate_media(media="print")
        page.settle()
        assert page.page.is_visible(".why-steps")
        assert not page.page.is_visible("#why-close")
        box = page.page.locator("#why").bounding_box()
        assert box["width"] > 600
        # the strip is drawn on light paper
        assert page.page.evaluate("getComputedStyle(document.body).colorScheme") == "light"


def test_the_estimate_knows_queries_and_keys(captures) -> None:
    plain = av.capture(TEXT)
    capture = captures["demo-gpt2"]
    heads = [frozenset(capture.layout)]
    more = viewer.estimate([capture], heads) - viewer.estimate([plain], heads)
    real = len(av.view(capture).page) - len(av.view(plain).page)
    assert real <= more + 600
    assert more < 2 * real
    long = " ".join([TEXT] * 10)
    size = len(av.view(long, select="3.*").page) / 1e6
    with pytest.raises(UsageError, match="max_mb"):
        av.view(long, select="3.*", why="3.*", max_mb=size + 0.05)


def test_a_row_without_keys_has_no_weight() -> None:
    terms = HeadTerms(np.ones((2, 4)), np.ones((2, 4)), 0.5, np.ones(2))
    weights = terms.weights(np.array([[False, False], [True, True]]))
    assert weights.tolist() == [[0, 0], [0.5, 0.5]]
    assert math.isclose(weights[1].sum(), 1)
