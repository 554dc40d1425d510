"""What heads are worth, in the page: tints of the overview, their legend, lines on the cards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.drawing.grid import color
from attnviz.drawing.palette import anchors, rgb
from attnviz.features.ablation.result import Ablation
from tests.corpus.gold import results as gold
from tests.features.view.test_view import HOSTILE
from tests.features.view.test_view_page import near
from tests.repeated import REPEATED
from tests.viewing import Opened, accessible, opened

pytestmark = pytest.mark.slow

TEXTS = (*REPEATED, *(text.replace("The ", "A ") for text in REPEATED))  # enough for intervals

SYNTAX = gold.syntax(
    "demo-gpt2",
    "decoder",
    best=[gold.relation_head("1.2", HOSTILE[0], (0.8, 0.7, 0.9), (0.3, 0.2, 0.4), 40, "decoder")],
)


@pytest.fixture(scope="module")
def report() -> Ablation:
    return av.ablate(TEXTS, estimate="plain")


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    syntax = folder / f"{HOSTILE[0].replace('/', '')[:40]}.json"
    SYNTAX.save(syntax)
    logits = av.logits(TEXTS[0])
    made = av.view(TEXTS, ablate=True, evidence=[syntax, logits], bits=16)
    return made.save(folder / "worth.html")


def effects(report: Ablation) -> dict[str, Any]:
    return {one.name: one for one in report.effects if len(one.heads) == 1}


def strip(page: Opened, name: str) -> tuple[int, int, int]:
    """The colour below a small map, beside what is written there."""
    layer = int(name.partition(".")[0])
    found = page.page.locator(f".row:nth-of-type({layer + 2}) .tile[data-head='{name}']")
    box = "one => ['Left', 'Top', 'Width', 'Height'].map(side => one[`offset${side}`])"
    left, top, width, height = found.evaluate(box)
    return page.pixel(f".row:nth-of-type({layer + 2}) canvas", left + 2, top + (width + height) / 2)


def test_small_maps_are_tinted_by_the_effect(shared: Opened, page: Path, report) -> None:
    shared.open(page, "view=overview&tint=role")
    assert not shared.page.is_visible("#tint-legend")
    shared.choose("#tint", "ablate-effect")
    assert "tint" not in shared.hash()
    found = effects(report)
    top = max(abs(one.change) for one in found.values())
    for name, one in found.items():
        assert near(strip(shared, name), np.array(rgb(color(one.change, top, -1))), 4), name
    said = shared.text("#overview-said")
    assert "change of the loss without it in nats" in said
    assert "From these texts" in said
    assert f"at {report.positions:,} positions of {len(TEXTS)} texts" in said
    assert "in brackets where the interval includes 0" in said
    assert "hatched" not in said
    legend = shared.page.get_attribute("#tint-legend", "aria-label")
    assert "by ablation (mean at every position" in legend
    assert "blue: worse without it, orange: better without it" in legend
    picture = shared.saved("svg").decode()
    assert ", better without it</text>" in picture
    assert " nats, worse without it" in picture
    one = found["0.5"]
    label = shared.page.get_attribute(".tile[data-head='0.5']", "aria-label")
    assert f"change of the loss without it: {one.change:+.2g}" in label
    assert "nats" in label


def test_numbers_without_a_sign_go_through_a_palette(shared: Opened, page: Path, report) -> None:
    shared.open(page, "view=overview&tint=ablate-gradient")
    found = {name: one.gradient for name, one in effects(report).items()}
    largest, least = max(found, key=found.get), min(found, key=found.get)
    points = [np.array(rgb(point)) for point in anchors("blues")]
    assert near(strip(shared, largest), points[-1], 4)
    place = np.sqrt(found[least] / found[largest]) * (len(points) - 1)
    left = int(place)
    between = points[left] + (points[left + 1] - points[left]) * (place - left)
    assert near(strip(shared, least), between, 4)


def test_a_head_without_a_number_is_hatched_and_said(shared: Opened, page: Path) -> None:
    shared.open(page, "view=overview&tint=syntax-lead")
    assert near(strip(shared, "1.2"), np.array(rgb(color(0.3, 0.3, -1))), 4)
    assert "hatched: not measured (23 heads)" in shared.text("#overview-said")
    middle = shared.page.locator(".tile[data-head='0.0']").evaluate(
        "one => one.offsetTop + (one.offsetWidth + one.offsetHeight) / 2"
    )
    pixels = {shared.pixel(".row:nth-of-type(2) canvas", x, middle) for x in range(2, 30)}
    assert (255, 255, 255) in pixels
    assert min(map(min, pixels)) < 180  # lines on paper
    assert "not measured" in shared.page.get_attribute(".tile[data-head='0.0']", "aria-label")


def test_cards_say_what_was_found_and_how(shared: Opened, page: Path, report) -> None:
    shared.open(page, "view=card&head=0.5&on=0.5")
    card = shared.text("#card-body")
    one = effects(report)["0.5"]
    assert "Effect of ablating it" in card
    assert f"{one.first.joint_low:+.2g}".replace("-", "\u2212") in card, card
    assert f"mean |∂/∂gate| {one.gradient:.2g}" in card
    assert "these texts: Change of the loss without it (nats)" in card
    assert "by ablation (mean at every position" in card
    assert "What it writes" in card
    assert "logits for" in card
    assert "Nothing was found for this head." in card  # of the relations
    shared.go("view=card&head=1.2&on=1.2")
    card = shared.text("#card-body")
    assert "0.80 [0.70, 0.90] of 40, best offset 0.50" in card
    assert (
        shared.page.evaluate("document.querySelectorAll('#card-body img, #card-body b').length")
        == 0
    )


def test_dots_tables_and_pictures_carry_the_numbers(shared: Opened, page: Path, report) -> None:
    found = effects(report)
    shared.open(page, "view=overview&tint=ablate-effect&sort=likeness")
    assert "Beside a dot: its head and the change of the loss" in shared.text("#overview-said")
    assert not shared.page.is_visible("#tint-legend"), "it stands below the dots"
    top = max(abs(one.change) for one in found.values())
    picture = shared.saved("svg").decode()
    for one in found.values():
        assert f'fill="{color(one.change, top, -1)}"' in picture or abs(one.change) < top / 50
    assert "not measured" not in picture  # all were
    shared.go("view=overview&tint=ablate-effect")
    assert "change of the loss without it" in shared.saved("svg").decode()
    names, lines = shared.table()
    place = names.index("ablate-effect")
    assert names[place + 1 : place + 3] == ["ablate-effect_low", "ablate-effect_high"]
    for line in lines:
        one = found[line[0]]
        assert [float(part) for part in line[place : place + 3]] == pytest.approx(
            [one.change, one.first.joint_low, one.first.joint_high], rel=1e-3, abs=1e-6
        )


def test_heads_are_ranked_by_what_tints_them(shared: Opened, page: Path, report) -> None:
    shared.open(page, "view=overview&tint=role&sort=value")
    assert "sort=" not in shared.hash()  # roles have no values
    assert shared.page.is_disabled("#sorts [data-sort=value]")
    shared.choose("#tint", "ablate-effect")
    shared.click("#sorts [data-sort=value]")
    order = shared.all(".tile", "dataset.head")
    found = effects(report)
    assert order == sorted(found, key=lambda name: -found[name].change)
    assert "sort=value" in shared.hash()
    tiles = ".row canvas"
    wide = shared.page.locator(tiles).first.bounding_box()["width"]
    shared.click("#sorts [data-sort=likeness]")
    shared.click("#sorts [data-sort=value]")  # the tiles had no width meanwhile
    assert shared.page.locator(tiles).first.bounding_box()["width"] == wide
    assert wide > 600
    shared.choose("#tint", "syntax-lead")
    titles = shared.page.locator(".row-title").all_inner_texts()
    assert titles[1] == "not measured (23)"
    shared.choose("#tint", "role")
    assert shared.pressed("#sorts") == ["by layer"]


def test_a_page_opens_on_what_was_measured(shared: Opened, page: Path) -> None:
    shared.open(page, "view=overview&tint=ablate9-effect")
    assert shared.page.input_value("#tint") == "ablate-effect"
    assert shared.page.is_visible("#tint-legend")
    assert "tint" not in shared.hash()


def test_a_page_without_results_tints_by_role_or_sink(shared: Opened, tmp_path: Path) -> None:
    path = av.view(TEXTS[0]).save(tmp_path / "plain.html")
    shared.open(path)
    values = "all => all.map(one => one.value)"
    assert shared.page.eval_on_selector_all("#tint option", values) == ["role", "sink"]
    assert shared.page.input_value("#tint") == "role"


@pytest.mark.parametrize(("width", "theme"), [(360, "dark"), (1280, "light"), (3840, "dark")])
def test_axe_finds_nothing_and_nothing_overflows(
    browser: Any, page: Path, width: int, theme: str
) -> None:
    with opened(browser, viewport={"width": width, "height": 900}, color_scheme=theme) as shown:
        for state in ("tint=ablate-effect", "tint=syntax-lead&sort=likeness", "view=card&head=0.5"):
            shown.open(page, state)
            assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
            accessible(shown.page)


def test_heads_stand_by_the_weight_on_their_sink(shared: Opened, tmp_path: Path) -> None:
    """Without any other result; and the card leads to what attends to it."""
    text = "The keys to the cabinet are on the table because the keys to the cabinet were lost."
    scored = av.heads(text).heads
    shared.open(av.view(text).save(tmp_path / "sink.html"), "view=overview&tint=sink&sort=value")
    names = shared.all("#overview-tiles .tile", "dataset.head")
    ranked = sorted(scored, key=lambda one: -(one.scores["sink"].mean or 0.0))
    assert names == [one.head.name for one in ranked]
    (resting,) = [one for one in scored if one.head.name == "2.2"]
    label = shared.page.get_attribute(".tile[data-head='2.2']", "aria-label")
    assert (
        f"mean weight on the head’s sink: {resting.scores['sink'].mean:.2g}, ·are ({resting.sink})"
        in label
    )
    shared.go("view=card&head=2.2&on=2.2")
    shared.click("[data-sink]")
    assert {"toward=1", f"pin=k{resting.sink}"} <= set(shared.hash().lstrip("#").split("&"))
    assert shared.page.is_visible("#view-text")
    assert shared.text("#text-said").startswith("·are is attended to by")
