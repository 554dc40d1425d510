"""What the live page opens on: measured when it is made, and as transformers has it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertForMaskedLM, BertModel, GPT2LMHeadModel

import attnviz as av
from attnviz.features.live.opening import MASKED, PLAIN, TEXT, Arc, opening
from attnviz.models.demo import DEMOS
from attnviz.models.native.source import Native
from tests import ROOT
from tests.features.live.test_live import ASK, live_page, maps_of, texts
from tests.samples import Samples
from tests.viewing import Opened, opened
from tests.web.family import MAKE
from tests.web.family import TEXT as OWN

PLACE, LAST = 6, 11
"""Where the first *bread* stands, and the last *stone*."""
WRITER, READER = (1, 4), (3, 0)


def native(name: str) -> Native:
    source = av.load(name)
    assert isinstance(source, Native)
    return source


def silence(head: int, width: int) -> Any:
    """Return a hook before the output projection that sets a head's columns to zero."""

    def hook(_: Any, given: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        heads = given[0].clone()
        heads[..., head * width : (head + 1) * width] = 0
        return (heads,)

    return hook


def eager(kind: Any, name: str, text: str, output: str, off: tuple[int, int] | None) -> Any:
    """Of transformers' own eager pass: token ids, probabilities, and the weights of every head."""
    model = kind.from_pretrained(DEMOS[name], attn_implementation="eager").double()
    width = model.config.hidden_size // model.config.num_attention_heads
    if off is not None:
        layer, head = off
        path = output.format(layer)
        model.get_submodule(path).register_forward_pre_hook(silence(head, width))
    (sides,) = av.load(name).prepare(av.Prompt(text)).sides.values()
    with torch.no_grad():
        out = model(torch.tensor([sides.queries.ids]), output_attentions=True)
    return sides.queries.ids, out.logits[0].softmax(-1), torch.stack(out.attentions)[:, 0]


def reference(off: tuple[int, int] | None = None) -> tuple[float, torch.Tensor]:
    """The probability of bread, and the weights of every head."""
    output = "transformer.h.{}.attn.c_proj"
    ids, shares, weights = eager(GPT2LMHeadModel, "demo-gpt2", TEXT, output, off)
    return float(shares[-1, ids[PLACE]]), weights


def test_two_heads_in_a_row_are_found_and_do_what_is_said() -> None:
    found = opening(native("demo-gpt2"))
    assert found is not None
    assert found.looks == (Arc("3.0", LAST, PLACE), Arc("1.4", PLACE, PLACE - 1))
    assert (found.at, found.switch) == (LAST, "1.4")
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


def test_a_text_of_ones_own_is_not_replaced(page: Opened, samples: Samples) -> None:
    tab = page.open(samples("live", MAKE["live"])).page
    assert tab.input_value("#text") == OWN
    assert not tab.is_visible("#stage")


def test_the_picture_shows_the_word_the_heads_and_the_switch(page: Opened, path: Path) -> None:
    tab = page.open(path).page
    share, weights = reference()
    assert tab.inner_text("#stage-word") == "bread"
    assert tab.inner_text("#stage-share") == f"{100 * share:.0f} %"
    assert f"with {weights[READER][LAST, PLACE]:.2f} of its weight" in tab.inner_text("#stage-said")
    assert [arc.text_content() for arc in tab.query_selector_all("#stage-arcs text")] == [
        "3.0",
        "1.4",
    ]
    page.click("#stage-switch")
    without, after = reference(WRITER)
    assert without < 0.001
    assert tab.inner_text("#stage-share") == "<0.1 %"
    assert f"{after[READER][LAST, PLACE]:.3f} of its weight" in tab.inner_text("#stage-said")
    assert tab.inner_text("#stage-switch") == "switch 1.4 on"
    page.click("#stage-switch")
    assert tab.inner_text("#stage-share") == f"{100 * share:.0f} %"


def test_a_link_to_another_token_has_no_empty_picture(page: Opened, path: Path) -> None:
    tab = page.open(path, "at=8", again=True).page
    assert not tab.is_visible("#stage")
    page.click("#token-11")
    assert tab.inner_text("#stage-word") == "bread"
    page.click("#token-8")
    assert tab.inner_text("#stage-word") == "bread", "what was drawn stays"


def test_it_leaves_room_for_a_text_of_ones_own_and_for_lessons(page: Opened, path: Path) -> None:
    tab = page.open(path, again=True).page
    page.fill("#text", "the dog ran")
    assert not tab.is_visible("#stage")
    page.fill("#text", TEXT)
    assert tab.is_visible("#stage")
    page.click("[data-lesson=next]")
    assert not tab.is_visible("#stage")


@pytest.mark.parametrize("width", [390, 768, 1440])
def test_words_and_arcs_stay_inside_the_page(page: Opened, path: Path, width: int) -> None:
    tab = page.open(path).page
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


@pytest.fixture(scope="module")
def masked(samples: Samples) -> Path:
    return live_page(samples, "demo-bert")


def filled(off: tuple[int, int] | None = None) -> tuple[float, torch.Tensor]:
    """The probability of *had* at the mask, and the weights there."""
    output = "bert.encoder.layer.{}.attention.output.dense"
    text = MASKED[0].format("[MASK]")
    _, shares, weights = eager(BertForMaskedLM, "demo-bert", text, output, off)
    had = native("demo-bert").portable().vocabulary.tokens.index("had")
    assert off is not None or int(shares[2].argmax()) == had
    return float(shares[2, had]), weights[:, :, 2]


def test_of_a_masked_model_the_head_that_matters_at_the_mask_is_found() -> None:
    """Of the heads that look at one word from there, the one without which the word loses most."""
    found = opening(native("demo-bert"))
    assert found is not None
    assert found.text == MASKED[0].format("[MASK]")
    assert (found.at, found.looks, found.switch) == (2, (Arc("0.5", 2, 3),), "0.5")
    share, weights = filled()
    assert share > 0.9
    assert weights[0, 5, 3] > 0.9
    without = {
        (int(layer), int(head)): filled((int(layer), int(head)))[0]
        for layer, head in torch.nonzero(weights.max(-1).values >= 0.5)
        if 0 < weights[layer, head].argmax() < weights.shape[-1] - 1
    }
    assert min(without, key=lambda pair: without[pair]) == (0, 5)
    assert without[0, 5] < 0.5 * share


def test_the_picture_of_a_mask_shows_its_word_and_the_switch(page: Opened, masked: Path) -> None:
    tab = page.open(masked).page
    share, without = filled()[0], filled((0, 5))[0]
    assert (
        tab.inner_text("#stage-words") == "he [MASK] been here before, and he knew the old house."
    )
    assert tab.inner_text("#stage-word") == "had"
    assert tab.inner_text("#stage-share") == f"{100 * share:.0f} %"
    assert [arc.text_content() for arc in tab.query_selector_all("#stage-arcs text")] == ["0.5"]
    page.click("#stage-switch")
    assert tab.inner_text("#stage-share") == f"{100 * without:.0f} %"
    assert "With head 0.5 off" in tab.inner_text("#stage-said")
    page.fill("#text", "something else")
    assert not tab.is_visible("#stage")


def test_of_a_model_without_words_the_heads_that_look_beside_are_found(minilm: str) -> None:
    """Those with the largest mean weights there, over the texts' rows, as transformers has them."""
    source = av.load(minilm)
    assert isinstance(source, Native)
    found = opening(source)
    assert found is not None
    assert (found.answer, found.switch) == (None, None)
    assert found.text in PLAIN
    before, behind = found.looks
    assert (before.query, before.key) == (found.at, found.at - 1)
    assert (behind.query, behind.key) == (found.at, found.at + 1)
    (sides,) = source.prepare(av.Prompt(found.text)).sides.values()
    model = BertModel.from_pretrained(minilm, attn_implementation="eager").double()
    with torch.no_grad():
        out = model(torch.tensor([sides.queries.ids]), output_attentions=True)
    weights = torch.stack(out.attentions)[:, 0]
    inner = torch.arange(2, len(sides.queries) - 2)
    for look, step in ((before, -1), (behind, 1)):
        means = weights[:, :, inner, inner + step].mean(-1)
        layer, head = divmod(int(means.argmax()), means.shape[1])
        assert look.head == f"{layer}.{head}"
        assert weights[layer, head, look.query, look.key] > 0.9


@pytest.mark.slow
def test_the_picture_of_a_word_and_its_neighbours(page: Opened, minilm: str, tmp_path) -> None:
    tab = page.open(av.live(model=minilm, max_mb=80.0).save(tmp_path / "m.html")).page
    assert tab.is_visible("#stage")
    assert not tab.is_visible("#stage-switch")
    assert len(tab.query_selector_all("#stage-arcs text")) == 2
    chosen = tab.inner_text("#tokens [aria-selected=true]")
    assert tab.inner_text("#stage-word") == chosen == tab.inner_text("#stage-words .from")
    assert len(tab.query_selector_all("#stage-words .found")) == 2
    tab.wait_for_timeout(250)
    assert tab.evaluate("location.hash") == ""


FOLDER = ROOT / "attnviz" / "features" / "live"
WABT = ROOT / ".venv" / "node" / "node_modules" / "wabt"
ASSEMBLE = """
const [, wabt, source, out] = process.argv;
const { readFileSync, writeFileSync } = require("fs");
require(wabt)().then((tool) => {
    const made = tool.parseWat("product.wat", readFileSync(source, "utf8"), { simd: true });
    made.validate({ simd: true });
    writeFileSync(out, made.toBinary({}).buffer);
});
"""


@pytest.mark.skipif(
    shutil.which("node") is None or not WABT.exists(), reason="needs node and wabt, which assembles"
)
def test_the_binary_is_the_text_assembled(tmp_path: Path) -> None:

    out = tmp_path / "product.wasm"
    source = FOLDER / "product.wat"
    subprocess.run(["node", "-e", ASSEMBLE, str(WABT), str(source), str(out)], check=True)
    assert out.read_bytes() == (FOLDER / "product.wasm").read_bytes()


def engines(page: Path, folder: Path) -> Iterator[Path]:
    """A page as it is, and one without the binary, by what multiplies in it."""
    whole = page.read_text("utf-8")
    assert "'wasm-unsafe-eval'" in whole
    assert "'unsafe-eval'" not in whole
    without, count = re.subn(r'(id="kernel">)[^<]+', r"\1", whole)
    assert count == 1
    for engine, text in (("WebAssembly", whole), ("JavaScript", without)):
        path = folder / f"{engine}.html"
        path.write_text(text, "utf-8")
        yield path


MOVED = """([text, off]) => attnviz.run(text, off).then(({ ids, before, after, changes, words }) =>
    [ids, changes, words, before, after].map(part => JSON.stringify(part)))"""


@pytest.mark.parametrize("name", ["demo-gpt2", pytest.param("demo-bert", marks=pytest.mark.slow)])
def test_both_ways_of_multiplying_agree_whatever_was_asked_before(
    browser: Any, samples: Samples, tmp_path: Path, name: str
) -> None:
    """A page without the binary falls back; weights and predictions are equal to 1e-5.

    After a long text, a short one, heads off, they are those of a fresh page to the bit: each pass
    keeps the room of its own longest text.
    """
    found, short, off = [], "the cat sat on the mat", ["1.4"]
    for path in engines(live_page(samples, name), tmp_path):
        with opened(browser) as tab:
            tab.open(path)
            assert tab.page.evaluate("document.documentElement.dataset.engine") == path.stem
            fresh = tab.page.evaluate(MOVED, [short, off])
            moved = json.loads(fresh[1]).values()
            assert sum(value > 0.001 for value in moved) > 6
            found.append([tab.page.evaluate(ASK, [one, off, 0]) for one in texts(6)[2:]])
            tab.open(path, again=True)
            for before in ([], off):
                for question in (["word " * 40, before], [short, []]):
                    tab.page.evaluate("asked => attnviz.run(...asked).then(() => 0)", question)
                assert tab.page.evaluate(MOVED, [short, off]) == fresh, (path.stem, before)
    for fast, plain in zip(*found, strict=True):
        assert fast["ids"] == plain["ids"]
        assert np.abs(maps_of(fast) - maps_of(plain)).max() < 1e-5
        for one, other in zip(fast["words"], plain["words"], strict=True):
            assert one["id"] == other["id"]
            assert abs(one["before"] - other["before"]) < 1e-5
            assert abs(one["after"] - other["after"]) < 1e-5
