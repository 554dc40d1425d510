"""Pages of very many heads: the strongest first, layers folded, all of them on demand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.core.capture import Capture
from attnviz.core.scores import HeadScores
from benchmarks.many import LENGTH, MOST_MB, SIZES, capture
from tests.viewing import Opened, opened, write_page

LAYERS, HEADS = 40, 14
PANEL = 11


@pytest.fixture(scope="module")
def many() -> Capture:
    return capture(LAYERS, HEADS, 6)


@pytest.fixture(scope="module")
def scored(many: Capture) -> dict[str, HeadScores]:
    return {one.head.name: one for one in av.heads(many).heads}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, many: Capture) -> Path:
    return write_page(tmp_path_factory.mktemp("many"), "many", many)


@pytest.fixture(scope="module")
def shared(browser: Any) -> Iterator[Opened]:
    with opened(browser, color_scheme="light", viewport={"width": 1440, "height": 900}) as found:
        yield found


def rows(page: Opened) -> dict[str, list[str]]:
    """The heads of every line of tiles, by its title."""
    return page.page.eval_on_selector_all(
        "#overview-tiles .row",
        "all => Object.fromEntries(all.map(row => [row.querySelector('.row-title').lastChild.data,"
        " [...row.querySelectorAll('button')].map(one => one.dataset.head)]))",
    )


def strength(one: HeadScores) -> tuple[bool, float]:
    """What the first heads have most of: they do something, and a large score of it."""
    if not one.roles:
        return (False, -1.0)
    return (not one.roles[0].rests, one.roles[0].evidence.mean or 0.0)


def test_it_opens_with_the_strongest_heads_of_every_role(shared: Opened, page, scored) -> None:
    shared.open(page, "view=overview")
    assert shared.pressed("#sorts") == ["by role"]
    found = {title.rpartition(" (")[0]: heads for title, heads in rows(shared).items()}
    wanted: dict[str, list[float]] = {}
    for one in scored.values():
        name = one.roles[0].name if one.roles else "no role"
        wanted.setdefault(name, []).append(one.roles[0].evidence.mean if one.roles else 0.0)
    assert set(found) == set(wanted)
    for title in rows(shared):
        name, _, count = title.rpartition(" (")
        here = found[name]
        cut = len(here) < len(wanted[name])
        said = f"{len(here)} of {len(wanted[name]):,})" if cut else f"{len(here):,})"
        assert count == said
        if name != "no role":
            values = [scored[head].roles[0].evidence.mean for head in here]
            assert values == pytest.approx(
                sorted(wanted[name], reverse=True)[: len(here)], abs=1e-5
            )
    assert shared.page.locator("#overview-tiles button").count() < 200
    assert "the strongest heads" in shared.text("#overview-said")


def test_layers_are_folded_to_their_strongest_heads(shared: Opened, page, scored) -> None:
    shared.open(page, "view=overview&sort=model")
    lines = rows(shared)
    assert list(lines) == [f"{n}–{n + 1}" for n in range(0, LAYERS, 2)]
    for title, heads in lines.items():
        layers = set(map(int, title.split("–")))
        here = [one for one in scored.values() if one.head.layer in layers]
        wanted = sorted(map(strength, here), reverse=True)[: len(heads)]
        for head, (does, mean) in zip(heads, wanted, strict=True):
            assert scored[head].head.layer in layers
            assert strength(scored[head]) == (does, pytest.approx(mean, abs=1e-5))
    assert shared.page.evaluate("document.documentElement.scrollWidth") <= 1440


def test_one_button_shows_all_of_them(shared: Opened, page) -> None:
    shared.open(page, "view=overview&sort=model")
    button = "#every"
    assert shared.text(button) == f"all {LAYERS * HEADS:,} heads"
    assert shared.page.get_attribute(button, "aria-pressed") == "false"
    shared.click(button)
    assert "every=1" in shared.hash()
    lines = rows(shared)
    assert list(lines) == [str(n) for n in range(LAYERS)]
    assert [head for line in lines.values() for head in line] == [
        f"{layer}.{head}" for layer in range(LAYERS) for head in range(HEADS)
    ]
    assert shared.page.locator("#heads .cell").count() == LAYERS * HEADS
    shared.click(button)
    assert len(rows(shared)) == LAYERS // 2


def test_the_panel_has_the_strongest_of_every_layer(shared: Opened, page, scored) -> None:
    shared.open(page, "view=map")
    cells = shared.all("#heads .cell[data-head]", "dataset.head")
    assert len(cells) == LAYERS * PANEL
    for layer in range(LAYERS):
        here = sorted((strength(s) for s in scored.values() if s.head.layer == layer), reverse=True)
        got = [strength(scored[name]) for name in cells if name.split(".")[0] == str(layer)]
        assert [mean for _, mean in got] == pytest.approx([m for _, m in here[:PANEL]], abs=1e-5)
    shared.click("#heads [data-layer='3']")
    assert shared.text("#on-count") == f"{HEADS + 1} of {LAYERS * HEADS:,} on"


def test_arrows_go_from_tile_to_tile(shared: Opened, page) -> None:
    shared.open(page, "view=overview&sort=model")
    first, second, *_ = rows(shared).values()
    shared.page.focus(f"#overview-tiles [data-head='{first[0]}']")
    shared.press("ArrowRight")
    focus = "document.activeElement.dataset.head"
    assert shared.page.evaluate(focus) == first[1]
    shared.press("ArrowDown", "ArrowLeft")
    assert shared.page.evaluate(focus) == second[0]
    shared.press("Enter")
    assert f"head={second[0]}" in shared.hash()
    assert "view=map" in shared.hash()


def test_a_head_that_is_folded_away_still_opens(shared: Opened, page, scored) -> None:
    shared.open(page, "view=overview&sort=model")
    shown = {head for line in rows(shared).values() for head in line}
    hidden = next(name for name in scored if name not in shown)
    shared.open(page, f"view=overview&sort=model&head={hidden}")
    assert shared.page.locator("#overview-tiles button[tabindex='0']").count() == 1
    shared.press("ArrowRight")
    assert shared.page.evaluate("document.activeElement") is not None
    shared.open(page, f"view=card&head={hidden}")
    assert hidden in shared.text("#card-body")


def test_rankings_list_the_first(shared: Opened, page, many: Capture) -> None:
    shared.open(page, "view=map&who=q3k2")
    named = shared.all("#who-list button", "dataset.head")
    weights = {head.name: float(many[head][3, 2]) for head in many.layout}
    assert len(named) == 100
    least = sorted(weights.values(), reverse=True)[99]
    assert min(weights[name] for name in named) >= least - 0.01


def test_a_page_of_few_heads_has_no_folds(shared: Opened, tmp_path: Path) -> None:
    shared.open(write_page(tmp_path, "few", capture(8, 32, 6)), "view=overview")
    assert shared.pressed("#sorts") == ["by layer"]
    assert not shared.page.is_visible("#every")
    assert shared.page.locator("#overview-tiles button").count() == 8 * 32


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "heads"), SIZES)
def test_pages_of_published_sizes_stay_small(layers: int, heads: int) -> None:
    assert len(av.view(capture(layers, heads, LENGTH)).page) <= MOST_MB * 1e6
