"""Who does this: heads ranked by a pair of tokens, and the pair that the page opens with."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import attnviz as av
from attnviz.scoring.merged import merge_words
from tests.features.view.test_view_page import KEPT, VIEWS, hover, near, of, tile
from tests.viewing import Opened, accessible, encoder_decoder, opened, pair, write_page

pytestmark = pytest.mark.slow

TEXT = "The kettle sang and the candle burned while the kettle sang and the candle burned."


@pytest.fixture(scope="module")
def pages(folder: Path) -> dict[str, Path]:
    held = {"pair": pair(), "three": encoder_decoder(), "demo": av.capture(TEXT)}
    found = {name: write_page(folder, name, one, bits=16) for name, one in held.items()}
    found["norm"] = av.view(TEXT, quantity="norm", bits=16).save(folder / "norm.html")
    return found | {"coarse": write_page(folder, "coarse", pair())}


def listed(page: Opened) -> list[tuple[str, str, str]]:
    """The heads as they are ranked, each with its weight (what follows ± too) and share in %."""
    told = page.all("#who-list button")
    number = r"<?[\d.]+(?: ± [\d.]+)?"
    return [re.fullmatch(rf"(\d+\.\d+) ({number}) ({number}) %", one).groups() for one in told]


def holds(text: str, value: float) -> bool:
    """Whether a number is what a text says of it: rounded, within bounds, or below one."""
    if text.startswith("<"):
        return value < float(text[1:])
    bare, _, off = text.partition(" ± ")
    return abs(float(bare) - value) <= (float(off) if off else 10 ** -len(bare.partition(".")[2]))


def ranks(page: Opened, values: dict[str, float]) -> None:
    """The page ranks these weights as NumPy does, and every digit is theirs."""
    found = listed(page)
    assert sorted(name for name, _, _ in found) == sorted(values)
    ordered = [values[name] for name, _, _ in found]
    assert (np.diff(ordered) <= 0.004).all()
    total = sum(values.values())
    for name, weight, share in found:
        assert holds(weight, values[name]), (name, weight, values[name])
        assert holds(share, 100 * values[name] / total), (name, share)


@pytest.mark.parametrize("name", ["pair", "coarse"])
@pytest.mark.parametrize(
    ("state", "value"),
    [
        ("", lambda w, _: w[7, 2]),
        ("&words=1", lambda w, sides: merge_words(w[None], sides)[0][0, 6, 2]),
        ("&separators=1&rescale=1", lambda w, _: w[7, 2] / w[7, KEPT].sum()),
        ("&quad=BA", lambda w, _: w[7, 2]),
    ],
)
def test_every_head_is_ranked_by_what_is_shown(
    shared: Opened, pages, name: str, state: str, value
) -> None:
    capture = pair()
    sides = capture.inputs.sides["encoder"]
    shared.open(pages[name], f"view=lines&on=0.0&who=q7k2{state}")
    want = {h.name: float(value(of(capture, h.name), sides)) for h in capture.layout}
    ranks(shared, want)
    best = max(want, key=want.get)
    said = re.search(r"most by heads? ([\d., ]+),", shared.text("#who-said"))[1].split(", ")
    assert best in said
    assert all(want[best] - want[one] < 0.02 for one in said)
    assert len(said) == 1 or name == "coarse"
    shared.click(f"#who-list [data-head='{best}']")
    assert shared.text("#lines-caption").startswith(f"head {best}")
    assert shared.page.get_attribute("#who-list [aria-current]", "data-head") == best


def test_norms_are_ranked_where_they_are_shown(shared: Opened, pages) -> None:
    for writes, quantity in ((1, "norm"), (0, "weights")):
        held = av.capture(TEXT, quantity=quantity)
        shared.open(pages["norm"], f"view=map&on=0.0&who=q9k4&writes={writes}")
        ranks(shared, {h.name: float(held[h][9, 4]) for h in held.layout})
    assert "Not weights" not in shared.text("#who-said")
    shared.press("v")
    assert "Not weights but ‖αf(x)‖" in shared.text("#who-said")


def test_a_cell_is_asked_about_by_pointer_and_by_keys(shared: Opened, pages) -> None:
    shared.open(pages["pair"], "view=map&on=0.1")
    assert not shared.page.is_visible("#who")
    hover(shared, 7, 2)
    shared.press("h")
    assert "who=q7k2" in shared.hash()
    hover(shared, 3, 4)
    shared.page.mouse.down()
    shared.page.mouse.up()
    assert "who=q3k4" in shared.settle().hash()
    shared.press("Escape")
    assert "who=" not in shared.hash()
    assert not shared.page.is_visible("#who")
    shared.page.mouse.move(2, 2)
    shared.press("Shift+ArrowDown", "Shift+ArrowRight", "h")
    assert re.search(r"who=q\d+k\d+", shared.hash())
    shared.press("h")
    assert "who=" not in shared.hash()


def test_tokens_of_text_and_lines_are_asked_about(shared: Opened, pages) -> None:
    shared.open(pages["pair"], "view=text&on=0.1&pin=q7")
    shared.page.hover("#text-body [data-at='2']")
    shared.settle().press("h")
    assert "who=q7k2" in shared.hash()
    shared.click("#text-body [data-at='4']")
    assert re.search(r"who=q4(&|$)", shared.hash())
    shared.click("#text-body [data-at='1']")
    assert "who=q4k1" in shared.hash()
    shared.go("view=text&on=0.1&toward=1&pin=q7")
    shared.page.hover("#text-body [data-at='2']")
    shared.settle().press("h")
    assert "who=q2k7" in shared.hash(), "the pinned token is attended to"
    shared.go("view=lines&on=0.1&pin=k3")
    shared.press("h")
    assert re.search(r"who=k3(&|$)", shared.hash())
    assert "who=q8k3" in shared.choose("#who-query", "8").hash()
    assert len(listed(shared)) == 6


def test_a_card_and_a_small_map_ask_too(shared: Opened, pages) -> None:
    capture = pair()
    weights = of(capture, "1.2")
    r, c = np.unravel_index(weights.argmax(), weights.shape)
    shared.open(pages["pair"], "view=card&head=1.2&on=1.2")
    shared.page.locator("#card-body [data-who]").first.click()
    assert f"who=q{r}k{c}" in shared.settle().hash()
    shared.go("view=overview&on=1.2")
    button = shared.page.locator("#overview-tiles [data-head='0.1']")
    box = button.bounding_box()
    side = box["width"] / 10
    shared.page.mouse.move(box["x"] + 4.5 * side, box["y"] + 6.5 * side)
    shared.settle().press("h")
    assert "who=q6k4" in shared.hash()


def test_small_maps_are_tinted_by_the_pair_and_marked_by_a_token(shared: Opened, pages) -> None:
    capture = pair()
    values = {h.name: of(capture, h.name)[7, 2] for h in capture.layout}
    top = max(values.values())
    shared.open(pages["pair"], "view=overview&scale=one")
    plain = {name: np.array(tile(shared, name, 0.55, 0.35)) for name in values}
    across = {name: np.array(tile(shared, name, 0.55, 0.7)) for name in values}
    shared.go("view=overview&scale=one&who=q7k2")
    for name, value in values.items():
        veil = 0.75 * (1 - value / top)
        assert near(tile(shared, name, 0.55, 0.35), plain[name] + veil * (255 - plain[name])), name
    shared.go("view=overview&scale=one&who=q7")
    for name in values:
        assert near(tile(shared, name, 0.55, 0.35), plain[name]), "a token alone tints nothing"
        assert not near(tile(shared, name, 0.55, 0.7), across[name], 8), "the row has its line"
    assert "marked in every small map" in shared.text("#who-said")
    assert listed(shared) == []


def test_a_link_ranks_at_once_and_a_hidden_token_is_said(shared: Opened, pages) -> None:
    shared.open(pages["pair"], "view=overview&on=0.0&who=q7k5", again=True)
    assert len(listed(shared)) == 6
    shared.press("s")
    assert "is hidden" in shared.text("#who-said")
    assert listed(shared) == []
    shared.go("view=overview&who=q7k99")
    assert "is hidden" in shared.text("#who-said")
    shared.go("view=overview&who=<b>")
    assert not shared.page.is_visible("#who")


def test_cross_attention_has_two_kinds_of_tokens(shared: Opened, pages) -> None:
    capture = encoder_decoder()
    shared.open(pages["three"], "view=map&kind=cross&who=q1k4")
    heads = [h for h in capture.layout if h.site.kind == "cross"]
    ranks(shared, {f"{h.site.layer}.{h.index}": float(capture[h][1, 4]) for h in heads})


def test_the_page_opens_with_a_pair_to_see(shared: Opened, pages) -> None:
    """The head's largest weight on a token after an earlier copy of the query."""
    capture = av.capture(TEXT)
    tokens = capture.inputs.sides["decoder"].queries.texts
    shared.open(pages["demo"], "view=overview", again=True)
    told = shared.text("#opening button")
    opening = shared.page.get_attribute("#opening button", "data-head")
    said = "perhaps looks at what followed the same token before"  # on four rows
    assert told.startswith(f"Head {opening} {said}: ")
    weights = of(capture, opening, "decoder")
    copies = [
        (weights[i, j], i, j)
        for i in range(1, len(tokens))
        for j in range(2, i - 1)
        if tokens[j - 1] == tokens[i]
    ]
    weight, i, j = max(copies)
    assert told.endswith(f" ({weight:.2f}).")
    shared.click("#opening button")
    assert f"who=q{i}k{j}" in shared.hash()
    assert shared.text("#map-caption").startswith(f"head {opening}")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_nothing_while_heads_are_ranked(browser: Any, pages, theme: str) -> None:
    with opened(browser) as page:
        for view in VIEWS:
            more = "who=q22k11&pin=q2&find=sang&top=2"
            page.open(pages["demo"], f"view={view}&on=3.0,1.1&theme={theme}&{more}")
            accessible(page.page, {} if theme == "light" else {"runOnly": ["color-contrast"]})
