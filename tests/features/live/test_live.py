"""The page that runs the model itself, in a real browser: its numbers against ours, its switches.

Needs Chromium (the system's, or the one that $ATTNVIZ_CHROMIUM names).
"""

from __future__ import annotations

import base64
import functools
import random
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

import attnviz as av
from attnviz.cli import main
from attnviz.core.heads import Site
from attnviz.core.prompt import Prompt
from attnviz.core.source import ForwardRequest
from attnviz.corpus.lines import sentences
from attnviz.errors import SelectionError
from attnviz.features.live.page import rounded
from attnviz.models import demo
from tests import ROOT
from tests.cli.calling import ok
from tests.samples import Samples
from tests.viewing import Opened, accessible, data_of, opened

ASK = """async ([text, off, write]) => {
    const found = await attnviz.run(text, off, write);
    const maps = (found.after || found.before).map(map => {
        const bytes = new Uint8Array(map.buffer);
        let text = '';
        for (let i = 0; i < bytes.length; i += 8192) {
            text += String.fromCharCode(...bytes.subarray(i, i + 8192));
        }
        return btoa(text);
    });
    return { ids: found.ids, words: found.words, maps };
}"""

MODELS = ("demo-gpt2", "demo-bert")


def live_page(samples: Samples, model: str = MODELS[0]) -> Path:
    """Return the page of a bundled model on its own text, made once for all files."""
    return samples(f"live-{model}", lambda folder: av.live(model=model).save(folder / "live.html"))


@pytest.fixture(scope="module")
def pages(samples: Samples) -> dict[str, Path]:
    return {name: live_page(samples, name) for name in MODELS}


@pytest.fixture(scope="module", params=MODELS)
def running(request: Any, browser: Any, pages: dict[str, Path]) -> Iterator[tuple[str, Opened]]:
    with opened(browser) as found:
        yield request.param, found.open(pages[request.param])


@pytest.fixture
def gpt2(page: Opened, pages: dict[str, Path]) -> Opened:
    return page.open(pages["demo-gpt2"])


def maps_of(found: dict[str, Any], heads: int = 6) -> np.ndarray:
    """[layers, heads, tokens, tokens]; numbers in JSON would take most of the time."""
    count = len(found["ids"])
    raw = b"".join(base64.b64decode(layer) for layer in found["maps"])
    return np.frombuffer(raw, np.float32).reshape(-1, heads, count, count)


def texts(count: int) -> list[str]:
    """Texts of all lengths, some with words that come again."""
    draw = random.Random(5)
    words = (ROOT / "sample_inputs" / "story.txt").read_text("utf-8").split()
    out = []
    for number in range(count):
        size = draw.choice((1, 2, 5, 9, 17, 30, 60))
        start = draw.randrange(len(words) - size)
        some = words[start : start + size]
        out.append(" ".join(some + some[: draw.randrange(size + 1)] * (number % 2)))
    return out


def test_weights_and_words_are_those_of_capture(running: tuple[str, Opened]) -> None:
    name, page = running
    model = av.load(name)
    for text in texts(8):
        found = page.page.evaluate(ASK, [text, [], 0])
        inputs = model.prepare(Prompt(text))
        capture = av.capture(text, model=model)
        (kind,) = capture.layout.kinds
        assert tuple(found["ids"]) == inputs.sides[kind].queries.ids
        ours = np.stack([capture.maps[Site(kind, layer)] for layer in range(4)])
        assert np.abs(maps_of(found) - ours).max() < 2e-3
        logits = model.forward([inputs], request=ForwardRequest(logits=True)).logits[0, -1]
        best = logits.topk(5)
        assert [word["id"] for word in found["words"]][:5] == best.indices.tolist()
        shares = logits.softmax(-1)[best.indices]
        assert np.allclose([w["before"] for w in found["words"]][:5], shares, atol=1e-4)


@pytest.mark.parametrize("off", [["0.5"], ["2.4", "1.4"], [f"3.{n}" for n in range(6)]])
def test_heads_that_are_off_are_gone(running: tuple[str, Opened], off: list[str]) -> None:
    name, page = running
    model = av.load(name)
    text = texts(3)[2]
    found = page.page.evaluate(ASK, [text, off, 0])
    with model.gated(dict.fromkeys(off, 0.0)):
        capture = av.capture(text, model=model)
        logits = model.forward(
            [model.prepare(Prompt(text))], request=ForwardRequest(logits=True)
        ).logits[0, -1]
    ours = np.stack([maps for _, maps in sorted(capture.maps.items())])
    assert np.abs(maps_of(found) - ours).max() < 2e-3
    best = max(found["words"], key=lambda word: word["after"])
    assert best["id"] == int(logits.argmax())
    assert best["after"] == pytest.approx(float(logits.softmax(-1).max()), abs=1e-4)


def test_what_was_kept_does_not_matter(running: tuple[str, Opened]) -> None:
    """Typing letter by letter, going back and switching heads end where a fresh start would."""
    _, page = running
    draw = random.Random(1)
    whole = texts(6)[5]
    for _ in range(8):
        text = whole[: draw.randrange(1, len(whole))]
        off = draw.sample(["0.5", "1.4", "2.0", "2.4", "3.3"], draw.randrange(4))
        kept = page.page.evaluate(ASK, [text, off, 0])
        page.page.evaluate(ASK, ["something else entirely", ["0.0"], 0])
        fresh = page.page.evaluate(ASK, [text, off, 0])
        assert kept["ids"] == fresh["ids"]
        assert kept["maps"] == fresh["maps"]
        assert kept["words"] == fresh["words"]


@functools.cache
def scripts(lines: int) -> list[str]:
    """Lines of every script: characters of all blocks that have letters, signs, marks, numbers."""
    draw = random.Random(9)
    blocks: dict[str, list[str]] = {}
    for code in range(0x20, 0x2FA20):
        char = chr(code)
        if unicodedata.category(char) not in ("Cn", "Cs", "Co"):
            blocks.setdefault(unicodedata.name(char, "").split(" ")[0], []).append(char)
    names = sorted(name for name, chars in blocks.items() if len(chars) > 20)
    out = []
    for number in range(lines):
        own = blocks[names[number % len(names)]]
        other = blocks[draw.choice(names)]
        words = []
        for _ in range(draw.randrange(1, 8)):
            source = own if draw.random() < 0.8 else other
            words.append("".join(draw.choices(source, k=draw.randrange(1, 9))))
            if draw.random() < 0.3:
                words[-1] += draw.choice(
                    ["'s", "'ll", "...", "!?", "1234", "\t", "\n\n", "  ", "\u3000"]
                )
        out.append(draw.choice([" ", "", "-"]).join(words))
    return [
        *out, "", " ", "\n", "[MASK] a[SEP]b <|endoftext|>c", "ΟΔΥΣΣΕΥΣ Σ", "İstanbul", "a" * 200,
    ]  # fmt: skip


def test_the_tokenizer_is_that_of_tokenizers(running: tuple[str, Opened]) -> None:
    name, page = running
    lines = scripts(600)
    tokenizer = Tokenizer.from_file(str(Path(demo.__file__).parent / name / "tokenizer.json"))
    wanted = [encoding.ids for encoding in tokenizer.encode_batch(lines)]
    found = page.page.evaluate("lines => attnviz.encode(lines)", lines)
    wrong = [line for line, a, b in zip(lines, wanted, found, strict=True) if a != b]
    assert not wrong, (len(wrong), wrong[:5])


def test_it_writes_what_the_model_would(gpt2: Opened) -> None:
    model = av.load("demo-gpt2")
    text = "The old man went to the"
    found = gpt2.page.evaluate(ASK, [text, [], 8])
    ids = list(model.prepare(Prompt(text)).sides["decoder"].queries.ids)
    for _ in range(8):
        logits = model.forward(
            [model.prepare(Prompt(ids=tuple(ids)))], request=ForwardRequest(logits=True)
        ).logits
        ids.append(int(logits[0, -1].argmax()))
    assert found["ids"] == ids


def test_switches_and_links(gpt2: Opened, pages: dict[str, Path]) -> None:
    page = gpt2.page
    gpt2.click('[data-head="2.4"]', modifiers=["Shift"])
    assert page.inner_text("#off-count") == "1 of 24 off"
    gpt2.fill("#text", "a b a b")
    page.wait_for_timeout(250)
    state = page.evaluate("location.hash")
    assert "off=2.4" in state
    gpt2.open(pages["demo-gpt2"], state[1:], again=True)
    assert page.input_value("#text") == "a b a b"
    assert page.inner_text("#off-count") == "1 of 24 off"
    page.keyboard.press("Tab")
    page.focus('[data-head="2.4"]')
    gpt2.press("x")
    assert page.inner_text("#off-count") == "24"


def test_what_a_causal_model_may_not_see_is_grey(gpt2: Opened) -> None:
    page = gpt2.page
    gpt2.fill("#text", "a b a b a b")
    box = page.locator("#map-before").bounding_box()
    page.mouse.move(box["x"] + 0.9 * box["width"], box["y"] + 0.1 * box["height"])
    assert page.inner_text("#tip").endswith("not allowed")
    assert gpt2.pixel("#map-before", 0.9 * box["width"], 0.2 * box["height"]) == (217, 217, 217)


def test_hostile_text_stays_text(gpt2: Opened) -> None:
    gpt2.fill("#text", "</script><img src=x onerror=alert(1)> <b>bold</b> \u202eabc")
    assert gpt2.page.eval_on_selector_all("#tokens b, #tokens img", "all => all.length") == 0
    assert "<U+202E>" in gpt2.page.inner_text("#tokens") or "<E2" in gpt2.page.inner_text("#tokens")


@pytest.mark.parametrize("scheme", [pytest.param("light", marks=pytest.mark.slow), "dark"])
@pytest.mark.parametrize("width", [1280, pytest.param(390, marks=pytest.mark.slow)])
def test_axe_finds_nothing(gpt2: Opened, pages: dict[str, Path], scheme: str, width: int) -> None:
    gpt2.page.set_viewport_size({"width": width, "height": 900})
    gpt2.page.emulate_media(color_scheme=scheme)
    gpt2.open(pages["demo-gpt2"], "lesson=layers&step=2&told=1")
    for part, within in (("#lesson", "html"), ("#lessons", "#lessons")):
        assert gpt2.page.is_visible(part)
        assert gpt2.page.evaluate("document.documentElement.scrollWidth") <= width
        accessible(gpt2.page, within=within)
        gpt2.click("#open-lessons")


def test_an_empty_text_and_one_too_long(gpt2: Opened) -> None:
    gpt2.fill("#text", "word " * 400)
    assert "beyond the model's 256 left out" in gpt2.page.inner_text("#said")
    gpt2.fill("#text", "")
    assert gpt2.page.locator("#tokens .token").count() == 1  # <|endoftext|> stands before any text


@pytest.fixture(scope="module")
def coarse() -> Any:
    return av.live(bits=8)


def test_the_page_is_small_and_says_how_exact_it_is(pages: dict[str, Path], coarse: Any) -> None:
    assert pages["demo-gpt2"].stat().st_size < 9e6
    assert len(coarse.page) < 5.2e6
    assert 0 < coarse.error < 0.1
    assert re.search(r"moved weights by 0\.0\d+ and probabilities by", coarse.page.decode("utf-8"))


@pytest.mark.slow
def test_the_size_of_a_page_of_minilm(minilm: str) -> None:
    """In 8 bits, as docs/live.md says: 22.6 million numbers, four signs for three bytes."""
    found = av.live(model=minilm, bits=8, max_mb=60.0)
    assert round(len(found.page) / 1e6) == 30
    assert round(found.error, 3) == 0.039


def test_eight_bits_run_and_print_only_digits_that_stand(
    browser: Any, tmp_path: Path, coarse: Any
) -> None:
    exact = av.load("demo-gpt2")
    model = exact.rounded(lambda t: torch.from_numpy(rounded(t.numpy(), 8)))
    with opened(browser) as page:
        page.open(coarse.save(tmp_path / "coarse.html"))
        text = texts(1)[0]
        found = page.page.evaluate(ASK, [text, [], 0])
        ours = np.stack([maps for _, maps in sorted(av.capture(text, model=model).maps.items())])
        assert np.abs(maps_of(found) - ours).max() < 1e-4
        marked = page.page.locator(".river-norm").all_inner_texts()
        assert all(norm.startswith("≈ ") for norm in marked)
        seen = 0
        for text in sentences()[:4]:
            page.fill("#text", text)
            capture = av.capture(text, model=exact)
            layer, head = map(int, page.page.inner_text("#head-title").split()[-1].split("."))
            row = capture.maps[Site("decoder", layer)][head][-1]
            said = page.page.inner_text("#row-said").partition("looks at ")[2]
            for digits in re.findall(r" (\d\.\d+)", said):
                # one of the row's weights, in the model as it is, has this digit
                assert len(digits) == 3
                assert np.abs(row - float(digits)).min() <= 0.05 + coarse.error
                seen += 1
            inputs = exact.prepare(Prompt(text))
            logits = exact.forward([inputs], request=ForwardRequest(logits=True)).logits
            top = float(logits[0, -1].softmax(-1).max())
            shown = page.page.inner_text("#words tbody tr:first-child .share")
            assert re.fullmatch(r"<10 %|\d+0 %", shown)
            assert abs(top - float(shown.strip("< %")) / 100) <= 0.1
        assert seen


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bits": 4}, "bits takes 8 or 16, not 4"), ({"max_mb": 1.0}, "max_mb"),
        ({"model": "fresh"}, "native backend"), ({"text": " "}, "empty"),
    ],
)  # fmt: skip
def test_what_cannot_be_made(options: dict[str, Any], words: str) -> None:
    with pytest.raises(av.AttnvizError, match=words):
        av.live(**options)


def test_a_page_can_open_with_some_heads_alone() -> None:
    found = av.live(select="0.5, 3.*")
    assert found.error == 0, "its numbers are halves already"
    off = data_of(found.page)["off"]
    assert len(off) == 24 - 7
    assert {"0.5", "3.0"}.isdisjoint(off)
    with pytest.raises(SelectionError, match=r"no head 9\.9"):
        av.live(select="9.9")


@pytest.mark.parametrize("option", ["--span", "--spans", "--chat"])
def test_spans_of_a_text_that_changes_are_refused(option: str, capsys) -> None:
    assert main(["live", "The cat", option, "a=cat"]) == 2
    assert f"No such option '{option}'" in capsys.readouterr().err
    said = " ".join(ok(capsys, "live", "--help").split())
    assert "Chats and spans are parts of one text: see attnviz view" in said
