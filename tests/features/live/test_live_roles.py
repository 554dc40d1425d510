"""Roles in the page that runs the model: measured again on what is typed, as `heads` does."""

from __future__ import annotations

from typing import Any

import pytest

import attnviz as av
from attnviz.drawing.labels import head_phrase
from tests.features.live.test_live import live_page
from tests.samples import Samples
from tests.viewing import opened, until

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
            page.page.fill("#text", text)
            page.settle()
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
