"""The text of the page that runs the model: what is expected beside it, and its roles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import attnviz as av
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
from attnviz.drawing.labels import head_phrase
from tests.features.live.test_live import live_page
from tests.samples import Samples
from tests.viewing import Opened, opened, until

TEXT = "The old man went to the"
WIDTHS = [390, 768, 1024, 1440]


def test_the_three_likeliest_words_are_those_of_the_model(page: Opened, path: Path) -> None:
    tab = page.open(path).page
    model = av.load("demo-gpt2")
    for off in ([], ["1.4", "3.0"]):
        page.open(path, f"text={TEXT.replace(' ', '+')}&off={','.join(off)}")
        with model.gated(dict.fromkeys(off, 0.0)):
            request = ForwardRequest(logits=True)
            logits = model.forward([model.prepare(Prompt(TEXT))], request=request).logits
        assert logits is not None
        best = logits[0, -1].softmax(-1).topk(3)
        names = model.portable().vocabulary.texts
        shown = tab.inner_text("#next-words").split("\n")
        assert shown[::2] == [names[n].replace(" ", "·") for n in best.indices.tolist()]
        for text, share in zip(shown[1::2], best.values.tolist(), strict=True):
            assert float(text.removesuffix(" %")) == pytest.approx(100 * share, abs=0.51)


@pytest.mark.parametrize("width", WIDTHS)
def test_text_and_next_words_stay_together(page: Opened, path: Path, width: int) -> None:
    page.page.set_viewport_size({"width": width, "height": 844})
    for state in ("", f"text={TEXT.replace(' ', '+')}"):
        tab = page.open(path, state).page
        text, words = (tab.locator(one).bounding_box() for one in ("#text", "#next-words"))
        assert text is not None
        assert words is not None
        if width == 390:
            header = tab.locator("header").bounding_box()
            assert text["y"] - header["y"] - header["height"] < 20, "first below the header"
            assert 0 < words["y"] - text["y"] - text["height"] < 40
        else:
            assert words["x"] > text["x"] + text["width"]
            assert words["y"] + words["height"] <= text["y"] + text["height"] + 30
        assert words["x"] + words["width"] <= width
        assert tab.locator("#next-words li").count() == 3


def test_no_text_says_what_to_type_and_draws_no_map(page: Opened, path: Path) -> None:
    tab = page.open(path, "text=").page
    assert "Type how a text begins" in tab.get_attribute("#text", "placeholder")
    assert tab.locator("#next-words li").count() == 3, "of how texts begin"
    parts = ("#stage", "#grid", "#map-before", "#river")
    assert not any(tab.is_visible(part) for part in parts)
    page.fill("#text", "the cat")
    assert all(tab.is_visible(part) for part in parts[1:])
    assert tab.locator("#map-before").bounding_box()["width"] > 200
    page.fill("#text", "  ")
    assert not tab.is_visible("#map-before")


def test_a_masked_model_asks_for_its_mask(page: Opened, samples: Samples) -> None:
    tab = page.open(live_page(samples, "demo-bert"), "text=").page
    assert "[MASK]" in tab.get_attribute("#text", "placeholder")
    page.fill("#text", "the cat [MASK] on the mat")
    assert tab.inner_text("#next-said") == "in the place of [MASK]"


TEXTS = (
    "the cat river moon stone bread the cat river moon stone",
    "One, two. (Three), four! one, two; three: four? Yes.",
    "ab ab ab ab",
    "The kettle sang and the candle burned while the kettle sang and the candle burned. " * 3,
)
FRESH = "!document.getElementById('groups').classList.contains('stale')"


@pytest.mark.parametrize("name", ["demo-gpt2", pytest.param("demo-bert", marks=pytest.mark.slow)])
def test_roles_are_those_of_heads_on_every_text(browser: Any, samples: Samples, name: str) -> None:
    with opened(browser) as page:
        page.open(live_page(samples, name))
        for text in TEXTS:
            page.fill("#text", text)
            until(page.page, FRESH)
            page.settle()
            found = page.page.eval_on_selector_all(
                "[data-head]",
                "all => all.map(one => [one.dataset.head, one.querySelector('.hidden').innerText])",
            )
            heads = av.heads(text, model=name).heads
            wanted = [[h.head.name, head_phrase(h.roles) or "no role"] for h in heads]
            assert found == wanted
            counts = page.page.locator("#groups [data-ids]").all_inner_texts()
            assert sum(int(one.split()[-1]) for one in counts) == sum(bool(h.roles) for h in heads)
