"""One row's way through its head, and what MLPs, norms and the stream do: against float64."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.features.live.test_live import live_page
from tests.features.live.test_river import STATE, TEXT, WIDTH, close, inside
from tests.samples import Samples
from tests.viewing import Opened, accessible, opened, until

SIZE = {"width": 1440, "height": 900}
MOTION = "no-preference"
"""The window of the fixture page."""
MODELS = ("demo-gpt2", "demo-bert")
STEPS = ["q, k", "q·k", "÷ √d", "mask", "softmax", "× V", "sum"]
READ = """() => {
    const numbers = svg => {
        const found = new Array(svg.viewBox.baseVal.width).fill(0);
        for (const path of svg.querySelectorAll('path')) {
            for (const [, at, high] of path.getAttribute('d').matchAll(/M([\\d.]+) 0V([-\\d.e]+)/g))
                found[Math.floor(at)] = -high * svg.dataset.most;
        }
        return found;
    };
    const [q, sum] = [...document.querySelectorAll('.path-whole svg')].map(numbers);
    const rows = [...document.querySelectorAll('#path tbody tr')].map(row => ({
        key: row.dataset.key,
        values: [...row.cells].map(cell => cell.dataset.value ?? null),
        said: [...row.cells].map(cell => cell.textContent),
        strips: [...row.querySelectorAll('svg')].map(numbers),
        share: row.cells[5].querySelector('svg')?.style.getPropertyValue('--share'),
        masked: row.classList.contains('masked'),
        crossed: getComputedStyle(row.querySelector('.path-barred') ?? row).textDecorationLine,
    }));
    return { q, sum, rows };
}"""
"""The numbers that are drawn: bars by their heights, cells by what they were written from."""


@pytest.fixture(scope="module")
def pages(samples: Samples) -> dict[str, Path]:
    return {name: live_page(samples, name) for name in MODELS}


def near(one: Any, other: Any) -> None:
    """To 1e-4, of what is larger than 1 to that share of it."""
    one, other = np.asarray(one, np.float64), np.asarray(other, np.float64)
    assert np.abs(one - other).max() <= 1e-4 * max(1, np.abs(other).max())


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    ("head", "at", "key", "off"),
    [
        ("3.0", 11, 6, None),
        ("2.0", 8, 2, None),
        pytest.param("0.3", 4, 4, None, marks=pytest.mark.slow),
        pytest.param("3.0", 11, 6, (1, 4), marks=pytest.mark.slow),
    ],
)
def test_every_number_is_that_of_float64(
    page: Opened,
    pages: dict[str, Path],
    name: str,
    head: str,
    at: int,
    key: int,
    off: tuple[int, int] | None,
) -> None:
    switched = "" if off is None else f"&off={off[0]}.{off[1]}"
    page.open(pages[name], f"{STATE}&head={head}&at={at}&why={key}{switched}")
    until(page.page, "() => document.querySelector('#path tbody tr')")
    seen = page.page.evaluate(READ)
    queries, keys, values, mixed = inside(name, TEXT, off).head(head)
    dots = keys @ queries[at]
    open_keys = np.arange(len(keys)) <= at if name == "demo-gpt2" else np.ones(len(keys), bool)
    powers = np.where(open_keys, np.exp((dots - dots[open_keys].max()) / WIDTH**0.5), 0)
    weights = powers / powers.sum()
    near(mixed[at], weights @ values)  # what transformers sums is what is written here
    near(seen["q"], queries[at])
    near(seen["sum"], mixed[at])
    rest, listed = set(np.flatnonzero(open_keys)), 0
    for row in seen["rows"]:
        assert bool(row["masked"]) is (row["key"] != "rest" and not open_keys[int(row["key"])])
        if row["key"] == "rest":
            continue
        s = int(row["key"])
        rest.discard(s)
        listed += 1
        near([float(v) for v in row["values"][2:5]], [dots[s], dots[s] / WIDTH**0.5, weights[s]])
        near(row["strips"][0], keys[s])
        texts = [text.replace("−", "-") for text in row["said"]]
        assert float(texts[2]) == pytest.approx(dots[s], abs=0.00501)
        assert float(texts[3]) == pytest.approx(dots[s] / WIDTH**0.5, abs=0.00501)
        if row["masked"]:
            assert row["crossed"] == "line-through"
            assert texts[4:] == ["0", ""]
        else:
            assert row["crossed"] == "none"
            assert float(texts[4]) == pytest.approx(weights[s], rel=0.06, abs=5.1e-5)
            near(row["strips"][1], values[s])
            near(float(row["share"]), weights[s])
    assert key in {int(row["key"]) for row in seen["rows"] if row["key"] != "rest"}
    for row in seen["rows"]:
        if row["key"] == "rest":
            others = sorted(rest)
            near(float(row["values"][4]), weights[others].sum())
            near(row["strips"][0], weights[others] @ values[others])
            assert row["said"][0] == f"{len(others)} more"
            rest = set()
    assert not rest
    assert listed >= min(10, open_keys.sum())


def seen_steps(tab: Any) -> str:
    """The step that is reached."""
    return tab.inner_text("#path-steps [aria-pressed=true]")


def columns(tab: Any) -> int:
    """How many columns of the row are to be seen."""
    return tab.eval_on_selector_all(
        "#path tbody tr:first-child > *",
        "all => all.filter(one => getComputedStyle(one).visibility === 'visible').length",
    )


def test_it_plays_when_asked_in_four_seconds(page: Opened, pages: dict[str, Path]) -> None:
    tab = page.open(pages["demo-gpt2"], "at=8&why=6").page
    until(tab, "() => document.querySelector('#path tbody tr')")
    tab.wait_for_timeout(800)
    assert seen_steps(tab) == "sum", "it stands still, with all steps"
    assert columns(tab) == 6
    tab.click("#why-close")
    tab.evaluate("""globalThis.reached = [];
        new MutationObserver(() => {
            const name = document.querySelector('#path-steps [aria-pressed=true]').textContent;
            if (reached.at(-1)?.[0] !== name) reached.push([name, performance.now()]);
        }).observe(document.getElementById('path-steps'), { attributes: true, subtree: true });""")
    tab.click("#play-row")
    until(tab, "() => document.activeElement.id === 'path-play'")
    assert tab.inner_text("#path-play") == "pause"
    until(tab, "() => reached.at(-1)[0] === 'sum' && reached.length > 1")
    reached = tab.evaluate("reached")
    names = [name for name, _ in reached]
    assert names[-len(STEPS) :] == STEPS
    assert 3500 < reached[-1][1] - reached[-len(STEPS)][1] < 6500
    assert tab.inner_text("#path-play") == "▶ play"
    tab.keyboard.press("Enter")
    until(tab, "() => reached.at(-1)[0] === 'q·k'")
    tab.keyboard.press("Enter")
    tab.wait_for_timeout(900)
    assert seen_steps(tab) == "q·k", "paused"
    tab.wait_for_timeout(400)
    assert columns(tab) == 3
    tab.keyboard.press("Escape")
    assert not tab.is_visible("#path")


def test_steps_go_by_keyboard_and_say_what_happens(page: Opened, pages: dict[str, Path]) -> None:
    tab = page.open(pages["demo-gpt2"], "at=8&why=6").page
    until(tab, "() => document.querySelector('#path tbody tr')")
    tab.focus("#path-steps button")
    tab.keyboard.press("Enter")
    assert seen_steps(tab) == "q, k"
    for name, words in (
        ("q·k", "product with q"),
        ("÷ √d", "divided by 5.66"),
        ("mask", "3 later keys may not be seen"),
        ("softmax", "over the sum of the row"),
    ):
        tab.keyboard.press("ArrowRight")
        assert seen_steps(tab) == name
        assert words in tab.inner_text("#path-said")
        until(tab, f"() => document.getElementById('spoken').textContent.includes('{words}')")
    tab.wait_for_timeout(500)
    assert columns(tab) == 5
    tab.keyboard.press("ArrowLeft")
    assert seen_steps(tab) == "mask"
    assert tab.locator(".masked .path-barred").count() == 2
    assert "1 more key masked" in tab.inner_text("#path-row")
    page.click('#path-row [data-key="2"] button')
    until(tab, "() => document.querySelector('#path [aria-current]').dataset.key === '2'")
    assert tab.evaluate("document.activeElement.closest('tr').dataset.key") == "2"
    assert "·cat (2)" in tab.inner_text("#why-body p")
    assert seen_steps(tab) == "mask", "the step stays"


def test_without_motion_all_steps_are_there_at_once(page: Opened, pages: dict[str, Path]) -> None:
    page.page.emulate_media(reduced_motion="reduce")
    tab = page.open(pages["demo-gpt2"], "at=8").page
    tab.click("#play-row")
    until(tab, "() => document.querySelector('#path tbody tr')")
    assert seen_steps(tab) == "sum"
    assert columns(tab) == 6
    assert tab.inner_text("#path-play") == "▶ play"


def test_paper_has_all_steps(page: Opened, pages: dict[str, Path]) -> None:
    tab = page.open(pages["demo-gpt2"], "at=8&why=6").page
    until(tab, "() => document.querySelector('#path tbody tr')")
    tab.click("#path-steps button >> nth=1")
    tab.evaluate("dispatchEvent(new Event('beforeprint'))")
    tab.emulate_media(media="print")
    tab.wait_for_timeout(500)
    assert columns(tab) == 6
    assert not tab.is_visible("#path-play")
    tab.evaluate("dispatchEvent(new Event('afterprint'))")


def test_a_head_that_is_off_hands_on_nothing(page: Opened, pages: dict[str, Path]) -> None:
    tab = page.open(pages["demo-gpt2"], "head=2.0&at=8&why=2&off=2.0").page
    until(tab, "() => document.querySelector('#path tbody tr')")
    assert "nothing of it is passed on" in tab.inner_text("#path-said")
    tab.click("#why-before")
    assert "Through W_O" not in tab.inner_text("#path-said"), "known of the pass that goes on only"


@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("width", [390, pytest.param(1440, marks=pytest.mark.slow)])
def test_it_fits_and_axe_finds_nothing(
    page: Opened, pages: dict[str, Path], width: int, scheme: str
) -> None:
    page.page.set_viewport_size({"width": width, "height": 844})
    page.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    tab = page.open(pages["demo-gpt2"], "at=8&why=6").page
    until(tab, "() => document.querySelector('#path tbody tr')")
    for step, within in ((3, "html"), (6, "#path")):
        tab.locator("#path-steps button").nth(step).click()
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        wider = "all => all.filter(e => e.scrollWidth > e.clientWidth + 1).length"
        assert tab.eval_on_selector_all("#path td", wider) == 0
        accessible(tab, within=within)
    tab.locator(".river-normed").nth(1).focus()
    box = tab.locator("#fact").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    accessible(tab, within="#fact")


def told(tab: Any, selector: str) -> list[dict[str, float]]:
    """What every such part tells, by name."""
    labels = tab.eval_on_selector_all(selector, "all => all.map(e => e.getAttribute('aria-label'))")
    names = r"before|attention adds|between|MLP adds|after|mean|std\. deviation|length \w+"
    return [
        {
            name: float(value.rstrip(".").replace("−", "-"))
            for name, value in re.findall(rf"({names}) ([−\d.]+)", label)
        }
        for label in labels
    ]


@pytest.mark.parametrize(
    ("name", "at", "off"),
    [("demo-gpt2", 11, None), ("demo-gpt2", 6, (1, 4)), ("demo-bert", 5, None)],
)
def test_what_parts_tell_is_that_of_float64(
    page: Opened, pages: dict[str, Path], name: str, at: int, off: tuple[int, int] | None
) -> None:
    switched = "" if off is None else f"&off={off[0]}.{off[1]}"
    tab = page.open(pages[name], f"{STATE}&at={at}{switched}").page
    model = inside(name, TEXT, off)
    normed, mlps, streams = (told(tab, f".river-{kind}") for kind in ("normed", "mlp", "norm"))
    length = np.linalg.norm
    for layer, (mlp, stream) in enumerate(zip(mlps, streams, strict=True)):
        before, after = model.states[layer : layer + 2, at]
        attention, added = model.added[layer, :, at]
        # what stands between is read by GPT-2's second normalization, and given by BERT's first
        between = model.read[layer, 1, at] if name == "demo-gpt2" else model.given[layer, 0, at]
        wanted = {
            "before": before, "attention adds": attention, "between": between,
            "MLP adds": added, "after": after,
        }  # fmt: skip
        assert set(stream) == set(wanted)
        for key, vector in wanted.items():
            assert close(stream[key], float(length(vector))), (layer, key, stream)
        assert close(mlp["before"], float(length(between)))
        assert close(mlp["MLP adds"], float(length(added)))
        for which in range(2):
            found, read = normed[2 * layer + which], model.read[layer, which, at]
            assert close(abs(found["mean"]), abs(float(read.mean()))), (layer, which, found)
            assert found["mean"] == 0 or np.sign(found["mean"]) == np.sign(read.mean())
            assert close(found["std. deviation"], float(read.std()))
            assert close(found["length read"], float(length(read)))
            assert close(found["length given"], float(length(model.given[layer, which, at])))


def test_parts_open_by_pointer_keyboard_and_touch(
    browser: Any, page: Opened, pages: dict[str, Path]
) -> None:
    tab = page.open(pages["demo-gpt2"], "at=11").page
    assert not tab.is_visible("#fact")
    tab.hover(".river-mlp >> nth=3")
    assert "MLP of layer 3" in tab.inner_text("#fact")
    assert not tab.locator("#river-heads").is_visible()
    tab.mouse.move(2, 2)
    assert not tab.is_visible("#fact")
    assert tab.locator(".river-part[tabindex='0']").count() == 1
    tab.focus(".river-part[tabindex='0']")
    assert "normalization before attention, layer 0" in tab.inner_text("#fact")
    for kind in ("MLP of layer 0", "normalization before the MLP", "residual stream, layer 0"):
        tab.keyboard.press("ArrowRight")
        assert kind in tab.inner_text("#fact")
    bars = tab.eval_on_selector_all("#fact .bar-line i", "all => all.map(e => e.style.width)")
    assert len(bars) == 5
    assert "100%" in bars
    tab.keyboard.press("Escape")
    assert not tab.is_visible("#fact")
    page.click('[data-dot="1.0"]')
    size = {"width": 390, "height": 844}
    with opened(browser, viewport=size, has_touch=True) as phone:
        tab = phone.open(pages["demo-gpt2"], "at=11").page
        tab.locator(".river-norm").nth(1).tap()
        assert "residual stream, layer 1" in tab.inner_text("#fact")
        assert not tab.locator("#river-heads").is_visible()


def test_the_row_follows_what_is_typed(page: Opened, pages: dict[str, Path]) -> None:
    tab = page.open(pages["demo-gpt2"], "why=6").page
    until(tab, "() => document.querySelector('#path tbody tr')")
    tab.click("#path-steps button >> nth=2")
    tab.fill("#text", f"{TEXT} and home")
    until(tab, "() => document.querySelector('.path-whole').textContent.includes('·home')")
    assert seen_steps(tab) == "÷ √d"
