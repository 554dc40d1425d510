"""What the live page opens on: measured when it is made, and as transformers has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GPT2LMHeadModel

import attnviz as av
from attnviz.features.live.opening import TEXT, Opening, opening
from attnviz.models.demo import DEMOS
from attnviz.models.native.source import Native
from tests.features.live.test_live import settled, started
from tests.viewing import Opened, opened

PLACE, LAST = 6, 11
"""Where the first *bread* stands, and the last *stone*."""
WRITER, READER = (1, 4), (3, 0)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return av.live().save(tmp_path_factory.mktemp("opening") / "live.html")


@pytest.fixture
def page(browser: Any) -> Iterator[Opened]:
    with opened(browser, viewport={"width": 1280, "height": 800}, reduced_motion="reduce") as tab:
        yield tab


def native(name: str) -> Native:
    source = av.load(name)
    assert isinstance(source, Native)
    return source


def reference(off: tuple[int, int] | None = None) -> tuple[float, torch.Tensor]:
    """Of transformers' own eager pass: the probability of bread, and the weights of every head."""
    model = GPT2LMHeadModel.from_pretrained(
        DEMOS["demo-gpt2"], attn_implementation="eager"
    ).double()
    width = model.config.n_embd // model.config.n_head
    if off is not None:
        layer, head = off

        def silence(_: Any, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
            heads = given[0].clone()
            heads[..., head * width : (head + 1) * width] = 0
            return (heads,)

        model.get_submodule(f"transformer.h.{layer}.attn.c_proj").register_forward_pre_hook(silence)
    (sides,) = av.load("demo-gpt2").prepare(av.Prompt(TEXT)).sides.values()
    ids = torch.tensor([sides.queries.ids])
    with torch.no_grad():
        out = model(ids, output_attentions=True)
    return float(out.logits[0, -1].softmax(-1)[ids[0, PLACE]]), torch.stack(out.attentions)[:, 0]


def test_two_heads_in_a_row_are_found_and_do_what_is_said() -> None:
    found = opening(native("demo-gpt2"))
    assert found is not None
    assert (found.key, found.reader, found.writer) == (PLACE, "3.0", "1.4")
    share, weights = reference()
    without, after = reference(WRITER)
    assert share > 0.9
    assert without < 0.01
    assert weights[READER][LAST, PLACE] > 0.5
    assert after[READER][LAST, PLACE] < 0.1
    falls = (weights - after)[2:, :, LAST, PLACE]
    assert divmod(int(falls.argmax()), falls.shape[1]) == (READER[0] - 2, READER[1]), (
        "looks away most"
    )
    assert weights[WRITER][PLACE, PLACE - 1] > 0.9


@pytest.mark.parametrize(
    ("model", "text"),
    [
        ("demo-bert", TEXT),
        ("demo-gpt2", "The keys to the cabinet are on the table"),
        ("demo-gpt2", "a"),
    ],
)
def test_what_shows_nothing_of_the_kind_opens_plainly(model: str, text: str) -> None:
    assert opening(native(model), text) is None


def test_a_text_of_ones_own_is_not_replaced(page: Opened, tmp_path: Path) -> None:
    own = av.live("the dog ran").save(tmp_path / "own.html")
    tab = started(page, own).page
    assert tab.input_value("#text") == "the dog ran"
    assert not tab.is_visible("#stage")


def test_the_picture_shows_the_word_the_heads_and_the_switch(page: Opened, path: Path) -> None:
    tab = started(page, path).page
    share, weights = reference()
    assert tab.inner_text("#stage-word") == "bread"
    assert tab.inner_text("#stage-share") == f"{100 * share:.0f} %"
    assert f"with {weights[READER][LAST, PLACE]:.2f} of its weight" in tab.inner_text("#stage-said")
    assert [arc.text_content() for arc in tab.query_selector_all("#stage-arcs text")] == [
        "3.0",
        "1.4",
    ]
    tab.click("#stage-switch")
    settled(page)
    without, after = reference(WRITER)
    assert without < 0.001
    assert tab.inner_text("#stage-share") == "<0.1 %"
    assert f"{after[READER][LAST, PLACE]:.3f} of its weight" in tab.inner_text("#stage-said")
    assert tab.inner_text("#stage-switch") == "switch 1.4 on"
    tab.click("#stage-switch")
    settled(page)
    assert tab.inner_text("#stage-share") == f"{100 * share:.0f} %"


def test_it_leaves_room_for_a_text_of_ones_own_and_for_lessons(page: Opened, path: Path) -> None:
    tab = started(page, path).page
    tab.fill("#text", "the dog ran")
    settled(page)
    assert not tab.is_visible("#stage")
    tab.fill("#text", TEXT)
    settled(page)
    assert tab.is_visible("#stage")
    tab.click("[data-lesson=next]")
    settled(page)
    assert not tab.is_visible("#stage")


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_words_and_arcs_stay_inside_the_page(page: Opened, path: Path, width: int) -> None:
    tab = started(page, path).page
    tab.set_viewport_size({"width": width, "height": 844})
    tab.wait_for_timeout(200)
    boxes = tab.evaluate(
        """() => [...document.querySelectorAll("#stage-words span, #stage-arcs *")].map((e) => {
            const { left, right, top } = e.getBoundingClientRect();
            return [left, right, top]; })"""
    )
    header = tab.evaluate("document.querySelector('header').getBoundingClientRect().bottom")
    assert len(boxes) == 11 + 4
    assert all(left >= 0 and right <= width and top >= header for left, right, top in boxes)


def test_what_it_holds_is_what_the_page_reads() -> None:
    assert {*Opening.__dataclass_fields__} == {"text", "answer", "key", "reader", "writer"}
